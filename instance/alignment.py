"""Decides when a bolt has all barriers, and which frames wait until then. Pure.

Aligned: once the barrier of a source has come out of the queue, the source's later frames are held back
until the barriers of all sources are there; then the task is cut (its state belongs to the checkpoint),
and what was held back goes first. Unaligned: the task is cut at once, and the frames in flight
ahead of their source's barrier are recorded as part of the checkpoint.

Invariants: no frame of a blocked source is processed before the cut; frames of one source keep their
order; every item given to `data` is processed or held exactly once; what is held or recorded is bounded.
Numbers of checkpoints only grow; one that is over is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Generic, TypeVar

T = TypeVar("T")


class Step(Enum):
    """What to do with the offered frame or barrier."""

    #: A frame for the task.
    PROCESS = "process"
    #: A frame of a blocked source, kept here.
    HELD = "held"
    #: A frame of a blocked source, and no room for it: decline the checkpoint.
    FULL = "full"
    #: A barrier of a checkpoint that is over, or of an unknown source.
    IGNORED = "ignored"
    #: A barrier; others are missing.
    NOTED = "noted"
    #: The last barrier: cut now, then call `end`.
    CUT = "cut"
    #: A barrier of a newer checkpoint: call `end`, process what was held, and offer the barrier again.
    OVERTAKEN = "overtaken"


class Aligner(Generic[T]):
    """Aligns the barriers of one bolt task.

    `sources` are the tasks that send to it. `checkpoint` is the one that is being aligned, 0 when none is.
    """

    def __init__(self, sources: Iterable[int], bytes_max: int) -> None:
        self.sources = frozenset(sources)
        self.bytes_max = bytes_max
        self.checkpoint = 0
        #: The highest checkpoint that is over, complete or not.
        self.ended = 0
        self.blocked: set[int] = set()
        self.held_bytes = 0
        self._held: list[T] = []

    def data(self, source: int, item: T, size: int) -> Step:
        """A frame came out of the queue; `item` is what `end` returns for it."""
        if source not in self.blocked:
            return Step.PROCESS
        if self.held_bytes + size > self.bytes_max:
            return Step.FULL
        self._held.append(item)
        self.held_bytes += size
        return Step.HELD

    def barrier(self, source: int, checkpoint: int) -> Step:
        """A barrier came out of the queue."""
        if checkpoint <= self.ended or checkpoint < self.checkpoint or source not in self.sources:
            return Step.IGNORED
        if self.checkpoint and checkpoint > self.checkpoint:
            return Step.OVERTAKEN
        self.checkpoint = checkpoint
        self.blocked.add(source)
        return Step.CUT if self.blocked == self.sources else Step.NOTED

    def end(self) -> list[T]:
        """The alignment is over: cut, declined or overtaken. Returns what was held, in order."""
        self.ended = max(self.ended, self.checkpoint)
        self.checkpoint = 0
        self.blocked.clear()
        self.held_bytes = 0
        held, self._held = self._held, []
        return held

    def abort(self, checkpoint: int) -> list[T]:
        """This checkpoint and older ones are over; returns what is released."""
        released = self.end() if 0 < self.checkpoint <= checkpoint else []
        self.ended = max(self.ended, checkpoint)
        return released


class Recorder:
    """The data in flight at an unaligned cut: per source, the frames before its barrier."""

    def __init__(self, checkpoint: int, sources: Iterable[int], bytes_max: int) -> None:
        self.checkpoint = checkpoint
        self.open = set(sources)
        self.bytes_max = bytes_max
        self.frames: list[bytes] = []
        self.tuples = 0
        #: All that arrived while recording, recorded or not: it lies in memory either way.
        self.bytes = 0

    def wants(self, source: int) -> bool:
        """Whether the barrier of this source is still missing."""
        return source in self.open

    def data(self, frame: bytes, tuples: int) -> None:
        """A frame of a source whose barrier has not come."""
        self.frames.append(frame)
        self.tuples += tuples

    def arrived(self, size: int) -> bool:
        """A frame came in; False when there is no room for more."""
        self.bytes += size
        return self.bytes <= self.bytes_max

    def barrier(self, source: int) -> None:
        self.open.discard(source)

    @property
    def complete(self) -> bool:
        return not self.open


class Channels:
    """Counts the data frames that came from each source, against what the barriers say was sent."""

    def __init__(self) -> None:
        self._received: dict[int, int] = {}

    def count(self, source: int) -> None:
        self._received[source] = self._received.get(source, 0) + 1

    def difference(self, source: int, sent: int) -> int:
        """Frames that are missing (or, below zero, that came twice) when a barrier of the source arrives."""
        return sent - self._received.get(source, 0)
