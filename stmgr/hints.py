"""Hints for senders about full tasks, and about the largest frame for a task. Pure.

A stream manager sends hints to its own tasks and to the peers that send to it. A hint is sent when it changes, and all
hints are sent again when a link opens, so none is lost. The marks of a task's queue follow from the pace that the task
reports.
"""

from __future__ import annotations

from collections.abc import Callable

from heronpy.common.setting_types import StmgrSettings
from heronpy.wire.frames import CLAMP, Frame

from .backpressure import QUEUE_START_BYTES, Backpressure, frame_limit, marks_of
from .links import Link, Source, Waiting
from .neighbours import LocalTask

#: Upper limit of a pace: no task processes more tuples per second.
PACE_MAX = 1e12


def clamp_frame(on: bool, task: int = 0, limit: int = 0) -> bytes:
    """Return a CLAMP frame: without a task it stops or resumes a spout, with a task it is a hint about the task."""
    return Frame(kind=CLAMP, on=on, dest_task=task, count=limit).SerializeToString()


class Hints:
    """Hints to the senders of full tasks; `tasks` and `sources` belong to this container."""

    def __init__(
        self,
        settings: StmgrSettings,
        tasks: dict[int, LocalTask],
        sources: dict[bytes, Source],
        backpressure: Backpressure,
        now: Callable[[], float],
        owe_credit: Callable[[], None],
    ) -> None:
        self._tasks = tasks
        self._sources = sources
        self._backpressure = backpressure
        self._now = now
        self._owe_credit = owe_credit
        self._high, self._low = settings.backpressure_high_bytes, settings.backpressure_low_bytes
        self._target_s = settings.queue_target_ms / 1000
        #: The hints that senders got for tasks here and elsewhere: whether a task is full, and the limit of a frame.
        self._told: dict[int, tuple[bool, int]] = {}
        #: Called when announcements or clamps may have changed.
        self.on_pressure: Callable[[], None] = lambda: None

    def start_marks(self) -> tuple[int, int]:
        """Return the high and low marks in bytes for a task of unknown pace."""
        if not self._target_s:
            return self._high, self._low
        return min(self._high, QUEUE_START_BYTES), min(self._low, QUEUE_START_BYTES // 2)

    def is_avoided(self, task: int) -> bool:
        """Return whether senders to a full task can use other tasks."""
        alike = self._backpressure.alike.get(task)
        return alike is not None and not alike <= self._backpressure.full()

    def hold_sender(self, waiting: Waiting) -> None:
        """Withhold a frame's credit until the frame is sent. Shrink its sender's window if all other tasks are full."""
        task = waiting.dest_task
        if not self.is_avoided(task):
            assert waiting.creditor is not None
            here = (self._tasks.get(one) for one in self._backpressure.alike.get(task, (task,)))
            window = sum(one.link.high for one in here if one is not None) // 4 or len(waiting.data)
            waiting.creditor.shrink(window, self._now() + self._target_s)

    def observe(self, link: Link) -> None:
        """Check a queue that may have passed a mark, and send the hints."""
        marks = (link.high, link.low)
        if self._backpressure.observe(link.name, link.queued_bytes, link.top_task, self._now(), marks, link.pace):
            if link.task:
                full = link.name in self._backpressure.local
                self.tell(link.task, full, self._tasks[link.task].limit)
                if not full:
                    self._invite(link)
            self.on_pressure()

    def _invite(self, link: Link) -> None:
        """Give credit for a task's free space to senders that wait for a full task of its component."""
        room = link.high - link.queued_bytes
        for other in self._backpressure.alike.get(link.task, ()):
            if other in self._tasks and room > 0 and (freed := self._tasks[other].link.free(room)):
                room -= freed
                self._owe_credit()

    def take_pace(self, task: LocalTask, pace: float) -> None:
        """Set the pace of a task in tuples per second, from which the marks of its queue are computed."""
        # The pace is the task's claim, so infinity and NaN are ignored.
        if not 0 < pace < PACE_MAX:
            return
        link = task.link
        link.pace = pace
        if not self._target_s or not link.total_tuples:
            return
        bytes_per_s = pace * link.total_bytes / link.total_tuples
        link.high, link.low = marks_of(self._high, self._low, bytes_per_s, self._target_s)
        limit = frame_limit(pace, self._target_s)
        # Senders are notified if the difference matters.
        if bool(limit) != bool(task.limit) or not task.limit / 2 <= limit <= task.limit * 2:
            task.limit = limit
            self.tell(task.task, self._told.get(task.task, (False, 0))[0], limit)
            for source in self._sources.values():
                if not source.task:
                    source.reply(clamp_frame(task.task in source.holding, task.task, limit))

    def tell(self, task: int, full: bool, limit: int) -> None:
        """Send the tasks of this container a hint: whether a task is full, and the limit of a frame for the task."""
        if self._told.get(task, (False, 0)) == (full, limit):
            return
        self._told[task] = (full, limit)
        if not full and not limit:
            del self._told[task]
        message = clamp_frame(full, task, limit)
        for other in self._tasks.values():
            if other.link.open:
                other.link.send_control(message)

    def repeat(self, link: Link) -> None:
        """Send all hints to a task whose link has opened."""
        for about, (full, limit) in self._told.items():
            link.send_control(clamp_frame(full, about, limit))

    def repeat_limits(self, peer: Source) -> None:
        """Send the limits to a peer whose link has opened; its first frame for a full task triggers a hint."""
        for task in self._tasks.values():
            if task.limit:
                peer.reply(clamp_frame(False, task.task, task.limit))
