"""Tuples in flight, and tuples as bolts see them. Pure.

A delivery contains the encoded values, so every receiver decodes its own copy. As between processes,
no receiver sees a change to an object that has been emitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from heronpy.api.tuple import Tuple


@dataclass(frozen=True, slots=True)
class Delivery:
    """One copy of a tuple for one task."""

    payload: bytes
    codec: int
    component: str
    stream: str
    source_task: int
    roots: tuple[int, ...]
    edge: int


class SimulatedTuple:
    """A tuple given to `process`: `values`, `component`, `stream`, `task` (the sender's), `id`."""

    __slots__ = (
        "component",
        "creation_time",
        "edge",
        "id",
        "is_done",
        "roots",
        "stream",
        "task",
        "values",
    )

    def __init__(self, values: list[Any], delivery: Delivery, creation_time: float) -> None:
        self.values = values
        self.component = delivery.component
        self.stream = delivery.stream
        self.task = delivery.source_task
        self.id = f"{delivery.source_task}-{delivery.edge}"
        self.roots = delivery.roots
        self.edge = delivery.edge
        self.creation_time = creation_time
        self.is_done = False

    def __iter__(self) -> Iterator[Any]:
        return iter((self.id, self.component, self.stream, self.task, self.values))

    def __repr__(self) -> str:
        return (
            f"Tuple(id={self.id!r}, component={self.component!r}, stream={self.stream!r}, "
            f"task={self.task!r}, values={self.values!r})"
        )


class Injection:
    """A tuple that a test injected; `state` is "pending", "acked", "failed" or "timed out"."""

    __slots__ = ("component", "state", "values")

    def __init__(self, component: str, values: list[Any]) -> None:
        self.component = component
        self.values = values
        self.state = "pending"

    @property
    def is_acked(self) -> bool:
        """True if the tuple was acked and, under ATLEAST_ONCE, all tuples anchored to it were acked too."""
        return self.state == "acked"

    def __repr__(self) -> str:
        return f"Injection({self.component!r}, {self.values!r}, state={self.state!r})"


def is_tuple(value: Any) -> bool:
    """Return whether a value is a tuple that user code may have received."""
    return isinstance(value, SimulatedTuple | Tuple)


def roots_of(anchors: Any) -> tuple[int, ...]:
    """Return the distinct spout tuples from which the anchors derive."""
    several = [anchors] if isinstance(anchors, SimulatedTuple) else anchors
    roots: dict[int, None] = {}
    for anchor in several:
        roots.update(dict.fromkeys(getattr(anchor, "roots", ())))
    return tuple(roots)


def several(tup: Any, what: str) -> list[Any]:
    """Return the tuples that user code passed to `ack` or `fail`: one tuple, or an iterable of tuples."""
    tuples = [tup] if is_tuple(tup) or not isinstance(tup, Iterable) else list(tup)
    for one in tuples:
        if not is_tuple(one):
            raise TypeError(
                f"{what}() takes a tuple that was passed to process(), or a list of such tuples, not {one!r:.100}"
            )
    return tuples
