"""The engine's requests to the API server, the Role that they need, and the meaning of refusals. Pure."""

from __future__ import annotations

import json
from typing import Final

from heronpy.engines.contract import EngineAwayError, EngineFatalError
from heronpy.engines.kubernetes.seen import of, text

#: Temporary refusals: too early, too many requests, a conflict, or an expired login. A later attempt may succeed.
_FOR_NOW = frozenset({401, 408, 409, 410, 425, 429})
WORDS_MAX = 500
#: Verb, group, resource.
NEEDED: Final = (
    *((verb, "", "pods") for verb in ("create", "delete", "get", "list", "watch")),
    ("get", "", "pods/log"),
    ("create", "", "secrets"),
    ("create", "policy", "poddisruptionbudgets"),
    ("patch", "policy", "poddisruptionbudgets"),
)


def rules() -> list[dict[str, list[str]]]:
    """The rules of the smallest sufficient Role."""
    found: dict[tuple[str, str], list[str]] = {}
    for verb, group, kind in NEEDED:
        found.setdefault((group, kind), []).append(verb)
    return [{"apiGroups": [group], "resources": [kind], "verbs": verbs} for (group, kind), verbs in found.items()]


class GoneError(EngineAwayError):
    """The object does not exist."""


class ExistsError(EngineAwayError):
    """An object with this name already exists."""


class ExpiredError(EngineAwayError):
    """The version of a list, or a position in the list, has expired; the list must be read again."""


def refusal(verb: str, what: str, status: int, body: bytes) -> EngineFatalError | EngineAwayError:
    """The error for a refused request, described by `verb` (create) and `what` (pods in namespace x)."""
    said, why, kind = words(body), "", ""
    try:
        found = json.loads(body)
        why, kind = text(of(found), "reason"), text(of(found, "details"), "kind")
    except ValueError:
        pass
    told = f"the API server refuses to {verb} {what}: {said or f'status {status}'}"
    if status == 404 and kind == "namespaces":
        return EngineFatalError(f"{told}; create the namespace, or set heron.kubernetes.namespace")
    if status == 404:
        return GoneError(told)
    if status == 409 and why == "AlreadyExists":
        return ExistsError(told)
    if status == 410:
        return ExpiredError(told)
    if status == 401:
        return EngineAwayError(f"{told}; log in again, or check the credentials of the context")
    if status in _FOR_NOW or status >= 500:
        return EngineAwayError(told)
    return EngineFatalError(told)


def words(body: bytes) -> str:
    """The error message in the server's answer; empty if there is none."""
    try:
        found = text(of(json.loads(body)), "message")
    except ValueError:
        found = body.decode(errors="replace")
    return " ".join(found.split())[:WORDS_MAX]
