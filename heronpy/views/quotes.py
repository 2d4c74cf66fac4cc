"""Texts that may quote users' values, and their replacements for readers who may not see values. Pure.

For example, an exception may name the order that could not be booked, and a report of skew names its key. This module
has a rule for each shape with such a text. Every answer and live message passes through `without_values` unless the
client may see values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar, cast, get_args, get_type_hints

import msgspec
from msgspec import Struct

from heronpy.views.advice import Finding
from heronpy.views.load import Load, ProcessRow, TaskLoad
from heronpy.views.overview import Topology
from heronpy.views.past import Event
from heronpy.views.plan import Node
from heronpy.views.progress import Progress
from heronpy.views.saved import Checkpoints

T = TypeVar("T")

#: Replaces a hidden text.
UNSEEN = "its last output needs the token 'all'"
#: States whose cause contains only text of the runtime, such as an awaited condition.
_OWN_WORDS = frozenset(("STARTING", "NO ANSWER", "NO MASTER", "DEAD"))
#: Kinds of events, and reasons of other events, that only contain text of the runtime.
_OWN_KINDS = frozenset(("master", "silent", "backpressure"))
_OWN_REASONS = frozenset(
    (("checkpoint", "checkpoint"), ("checkpoint", "savepoint"), ("update", "done"), ("update", "settings"))
)


def without_values(answer: T) -> T:
    """Return the answer without texts that may quote values; the same object if it contains no such text."""
    return cast(T, _hidden(answer))


def _hidden(found: Any) -> Any:
    if isinstance(found, Struct):
        changed = {}
        for name in _nested(type(found)):
            was = getattr(found, name)
            now = _hidden(was)
            if now is not was:
                changed[name] = now
        rule = _RULES.get(type(found))
        if rule is not None:
            changed |= {name: value for name, value in rule(found).items() if value != getattr(found, name)}
        return msgspec.structs.replace(found, **changed) if changed else found
    if isinstance(found, list | tuple) and any(isinstance(one, Struct | list | tuple | dict) for one in found):
        return _replaced(found, [_hidden(one) for one in found])
    if isinstance(found, dict):
        values = [_hidden(one) for one in found.values()]
        same = all(one is other for one, other in zip(found.values(), values))
        return found if same else dict(zip(found, values))
    return found


@cache
def _nested(kind: type[Struct]) -> list[str]:
    """Return the fields of a shape that may contain another shape."""
    return [name for name, hint in get_type_hints(kind).items() if _may_hold(hint)]


def _may_hold(hint: Any) -> bool:
    return hint is Any or (isinstance(hint, type) and issubclass(hint, Struct)) or any(map(_may_hold, get_args(hint)))


def _replaced(found: Sequence[Any], hidden: list[Any]) -> Sequence[Any]:
    return found if all(one is other for one, other in zip(found, hidden)) else hidden


def _finding(found: Finding) -> dict[str, Any]:
    return {"sentence": found.unquoted or found.sentence, "unquoted": ""}


def _topology(found: Topology) -> dict[str, Any]:
    cause = found.cause
    if found.ended_at is not None:
        cause = cause.partition(": ")[0]  # the first part states how the topology ended, and the rest gives the reason
    elif found.state not in _OWN_WORDS:
        cause = _words(cause)
    return {"cause": cause, "sentence": found.unquoted or found.sentence, "unquoted": ""}


def _load(found: Load) -> dict[str, Any]:
    return {"cause": found.cause if found.state in _OWN_WORDS else _words(found.cause)}


def _task(found: TaskLoad) -> dict[str, Any]:
    return {"error": _words(found.error), "exit_detail": found.exit_detail and _words(found.exit_detail)}


def _process(found: ProcessRow) -> dict[str, Any]:
    return {"exit_detail": found.exit_detail and _words(found.exit_detail)}


def _event(found: Event) -> dict[str, Any]:
    detail = _words(found.detail)
    if found.kind in _OWN_KINDS or (found.kind, found.reason) in _OWN_REASONS:
        return {"detail": detail}
    # The first part states the event, the second part its reason.
    text = found.text.partition(": ")[0]
    if found.kind in ("restart", "oom") and found.reason:
        text += f": {found.reason.replace('_', ' ')}"
    return {"text": text, "detail": detail}


def _checkpoints(found: Checkpoints) -> dict[str, Any]:
    return {"last_failure": _words(found.last_failure), "last_restore": _words(found.last_restore)}


def _progress(found: Progress) -> dict[str, Any]:
    return {"cause": _words(found.cause)}


def _node(found: Node) -> dict[str, Any]:
    return {"config": {}}


def _words(text: str) -> str:
    return UNSEEN if text else ""


_RULES: dict[type, Callable[[Any], dict[str, Any]]] = {
    Finding: _finding, Topology: _topology, Load: _load, TaskLoad: _task, ProcessRow: _process, Event: _event,
    Checkpoints: _checkpoints, Node: _node, Progress: _progress,
}  # fmt: skip
