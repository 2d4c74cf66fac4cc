"""Handles frames of a bolt task that cannot be read, or cannot be read yet.

A tuple with a value that cannot be decoded goes to the dead letters when its turn comes. A frame that cannot
be split into values is dropped as a whole: its tuples are counted and, under ATLEAST_ONCE, acked, because the
same bytes would be sent again. A frame from a task that is not in the plan yet waits; a frame that cannot wait, or has
waited too long, is counted and, under ATLEAST_ONCE, failed, because it can be read when it is sent again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from heronpy.common.errors import WireError
from heronpy.proto import frame_pb2, plan_pb2
from heronpy.task.acks import BoltAcks
from heronpy.task.opening import FrameReader
from heronpy.wire import codec
from heronpy.wire.frames import ACK, BARRIER, COUNT_MAX, DATA, FAIL

from .in_queue import EarlyFrames, Entry, InQueue, Sized
from .progress import Progress

log = logging.getLogger("heron.instance")


class FrameOpener(FrameReader):
    """Opens the frames of one bolt task; used by the task's thread."""

    def __init__(
        self,
        acks: BoltAcks,
        queue: InQueue,
        progress: Progress,
        count: Callable[[str, str, float], None],
        report_exception: Callable[[Exception], None],
        watch_decoding: Callable[[str, str, int], codec.Watch | None],
        *,
        may_wait: bool,
        deserialize: Callable[[bytes], Any] | None,
        allow_pickle: bool,
    ) -> None:
        super().__init__(watch_decoding, acking=acks.acking, deserialize=deserialize, allow_pickle=allow_pickle)
        self._acks = acks
        self._queue = queue
        self._progress = progress
        self._count = count
        self._report_exception = report_exception
        self._may_wait = may_wait
        self.early_frames = EarlyFrames()

    def take_plan(self, plan: plan_pb2.PhysicalPlan, components: dict[int, str]) -> list[Sized]:
        """Use a new plan to read frames; return the frames that were waiting for this plan."""
        self.read_by(plan, components)
        return self.early_frames.take_known(self._components)

    def withholds(self, entry: Entry, now: float) -> bool:
        """Return whether an open frame cannot be read yet. The frame then waits here; if there is no space, it is
        dropped."""
        frame, size = entry.frame, entry.size
        if frame.source_task in self._components or not self._may_wait:
            return False
        self._queue.put_aside(entry)
        if not self.early_frames.hold(frame, size, now):
            self._lose([(frame, size)], "no space is left for a frame that must wait for the plan with its source")
        return True

    # ---- what cannot be opened ----------------------------------------------------------------

    def refuse(self, frame: frame_pb2.Frame, error: Exception) -> None:
        """Drop a frame that cannot be split into values: the same bytes would be sent again."""
        tuples = frame.count - frame.skip
        log.error("dropped a frame of %d tuples: %s: %s", tuples, type(error).__name__, error)
        if not isinstance(error, WireError):
            self._report_exception(error)
        self._count_malformed(tuples)
        self._acks.give_up(frame, ACK)

    def refuse_misfit(self, frame: frame_pb2.Frame, size: int) -> None:
        """Refuse a frame with inconsistent arrays, which must not be read; only return its credit."""
        self._count("__malformed-frames", "", 1)
        if frame.kind in (DATA, BARRIER):
            tuples = max(0, min(frame.count, COUNT_MAX) - frame.skip)
            log.error("refused a frame from task %d: its counts and arrays are inconsistent", frame.source_task)
            self._count_malformed(tuples)
            self._queue.refuse(size, tuples)

    def _count_malformed(self, tuples: int) -> None:
        self._count("__malformed-tuples", "", tuples)
        self._progress.lost += tuples

    def give_up_late(self, now: float) -> None:
        """Drop the frames whose plan did not arrive in time."""
        self._lose(self.early_frames.take_late(now), "no plan with their source arrived in time")

    def give_up_all(self) -> None:
        """Drop all frames that wait here when the task ends; their credit has already been returned."""
        self._lose(self.early_frames.take_all(), "the task ended before the plan with their source arrived")

    def _lose(self, frames: list[Sized], why: str) -> None:
        for frame, size in frames:
            tuples = frame.count - frame.skip
            log.warning("dropped %d tuples from task %d: %s", tuples, frame.source_task, why)
            self._queue.drop(frame, size)
            self._count("__gateway-lost-tuples", "unknown source", tuples)
            if frame.tracked and self._acks.acking:
                # When the tuples are sent again, this task may have the plan with their source.
                self._acks.give_up(frame, FAIL)
            else:
                self._progress.lost += tuples
