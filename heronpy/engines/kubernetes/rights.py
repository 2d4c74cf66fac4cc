"""What the engine asks of the API server, so what its user needs a Role for. Pure."""

from __future__ import annotations

from typing import Final

#: Verb, group, resource.
NEEDED: Final = (
    *((verb, "", "pods") for verb in ("create", "delete", "get", "list", "watch")),
    ("get", "", "pods/log"),
    ("create", "", "secrets"),
    ("create", "policy", "poddisruptionbudgets"),
    ("patch", "policy", "poddisruptionbudgets"),
)


def rules() -> list[dict[str, list[str]]]:
    """The rules of the least Role."""
    found: dict[tuple[str, str], list[str]] = {}
    for verb, group, kind in NEEDED:
        found.setdefault((group, kind), []).append(verb)
    return [{"apiGroups": [group], "resources": [kind], "verbs": verbs} for (group, kind), verbs in found.items()]
