"""Tuples as a bolt sees them, and the frame they came in.

A tuple holds its values, its frame and its place in the frame; all else (component, stream, task,
roots, edges) is the frame's and is looked up when somebody asks. Creating one costs about 60 ns.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, repeat
from typing import Any

import msgspec
import numpy as np

from heronpy.wire.frames import Array32, Array64, edges_of, frame_pb2, root_tasks_of, roots_of


class InFrame:
    """What the tuples of one received frame share; holds the acking state of a tracked frame.

    Invariants: `values_[i]` is the XOR of tuple i's own edge and of all edges of tuples anchored to
    it that were settled so far; a tuple whose `done` bit is set was acked or failed for good.
    """

    __slots__ = (
        "component", "stream", "task", "count", "tracked", "created", "whole_done", "touched",
        "roots", "root_tasks", "root_counts", "offsets", "values_", "done", "envelope",
    )  # fmt: skip

    def __init__(self, component: str, stream: str, task: int, size: int, created: float) -> None:
        self.component = component
        self.stream = stream
        self.task = task
        self.count = size
        self.created = created
        self.tracked = False
        #: Every tuple was acked at once; later acks of them are duplicates.
        self.whole_done = False
        #: Somebody anchored to a tuple of this frame.
        self.touched = False
        self.envelope: frame_pb2.Frame | None = None
        self.values_: Array64 | None = None
        self.done: Any = None

    def track(self, envelope: frame_pb2.Frame) -> None:
        """Take the roots and edges of a tracked frame; the payload is dropped from the copy."""
        own = frame_pb2.Frame()
        own.CopyFrom(envelope)
        own.ClearField("payload")
        self.envelope = own
        self.tracked = True

    def unpack(self) -> None:
        """Make the arrays that partial acks and anchors need."""
        if self.values_ is not None or self.envelope is None:
            return
        envelope = self.envelope
        self.values_ = edges_of(envelope)
        self.roots: Array64 = roots_of(envelope)
        self.root_tasks: Array32 = root_tasks_of(envelope, len(self.roots))
        if envelope.root_counts:
            self.root_counts: Array32 | None = np.frombuffer(envelope.root_counts, dtype="<u4")
            self.offsets = np.concatenate(([0], np.cumsum(self.root_counts, dtype=np.int64)))
        else:
            self.root_counts = None
        self.done = np.zeros(self.count, dtype=bool)

    def roots_at(self, index: int) -> list[tuple[int, int]]:
        """The (spout task, root) pairs of tuple `index`."""
        if not self.tracked:
            return []
        self.unpack()
        if self.root_counts is None:
            return [(int(self.root_tasks[index]), int(self.roots[index]))]
        low, high = self.offsets[index], self.offsets[index + 1]
        return [(int(t), int(r)) for t, r in zip(self.root_tasks[low:high], self.roots[low:high], strict=True)]


class HeronTuple(msgspec.Struct, gc=False, eq=False):
    """A tuple given to `process`: `values`, `component`, `stream`, `task` (the sender's), `id`."""

    values: list[Any]
    frame: Any
    index: int = 0

    @property
    def component(self) -> str:
        return self.frame.component

    @property
    def stream(self) -> str:
        return self.frame.stream

    @property
    def task(self) -> int:
        """The task that sent this tuple."""
        return self.frame.task

    @property
    def id(self) -> str:
        """Unique within the task that received the tuple."""
        return f"{self.frame.task}-{id(self.frame):x}-{self.index}"

    @property
    def creation_time(self) -> float:
        """Monotonic seconds when this task received the tuple."""
        return self.frame.created

    @property
    def roots(self) -> list[tuple[int, int]]:
        """(spout task, root) pairs of the spout tuples that this tuple derives from."""
        return self.frame.roots_at(self.index)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.id, self.component, self.stream, self.task, self.values))

    def __repr__(self) -> str:
        return (
            f"Tuple(id={self.id!r}, component={self.component!r}, stream={self.stream!r}, "
            f"task={self.task!r}, values={self.values!r})"
        )


def make_tuples(flat: list[Any], width: int, frame: InFrame) -> list[HeronTuple]:
    """Regroup a flat list of values into tuples of `width` values each."""
    if width == 1:
        rows: Any = [[value] for value in flat]
    elif width == 0:
        # A stream without fields: the flat list holds one placeholder per tuple.
        rows = [[] for _ in flat]
    else:
        rows = map(list, zip(*[iter(flat)] * width, strict=True))
    if frame.tracked:
        return list(map(HeronTuple, rows, repeat(frame), count()))
    return list(map(HeronTuple, rows, repeat(frame)))
