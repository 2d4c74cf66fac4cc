"""A task's progress, as counted by its own thread, and whether its bolt is ready."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass

from heronpy.api.bolt.base_bolt import NotReadyError
from heronpy.common.errors import DeadlineError, TopologyError


@dataclass(slots=True)
class Progress:
    """Counters that the control thread may read at any time."""

    emitted: int = 0
    executed: int = 0
    acked: int = 0
    failed: int = 0
    #: Wall time, emitted, executed, acked and failed at one moment; replaced as a whole.
    counted: tuple[float, int, int, int, int] = (0.0, 0, 0, 0, 0)
    in_tuples: int = 0
    in_bytes: int = 0
    out_tuples: int = 0
    out_bytes: int = 0
    pending: int = 0
    #: Number of abandoned tuples: kept as dead letters; or not processed, not kept and not sent again.
    dead_letters: int = 0
    #: Number of dead letters of earlier processes of this task.
    letters_before: int = 0
    lost: int = 0
    turned_at: float = 0.0
    resting: bool = False
    #: True if this is a spout whose class does not override fail().
    forgets_failed: bool = False
    #: True if this is a spout whose state is restored from a checkpoint together with the other tasks.
    rewinds: bool = False
    #: True if spouts replay tuples that a link loses, because there are acks or checkpoints.
    sends_again: bool = False
    #: With acks: whether tuples outside of any tuple tree were sent, which are never replayed.
    untracked: bool = False

    def count(self, emitted: int) -> None:
        """Record the counters of this moment; for the task's thread, between or within calls to user code."""
        self.emitted = emitted
        self.counted = (time.time(), emitted, self.executed, self.acked, self.failed)

    def counts(self) -> tuple[float, int, int, int, int]:
        """Return the counters and their time: now while the task rests, else the time of the last count."""
        now, counted = time.time(), self.counted
        # The task replaces `counted` before each rest: the same tuple means that it is still the same rest.
        rests = self.resting and counted[0] <= now
        return (now, *counted[1:]) if rests and self.counted is counted else counted

    def loop_age_s(self) -> float:
        """Return the seconds since the last turn of the loop; 0 while it waits."""
        return 0.0 if self.resting else max(0.0, time.monotonic() - self.turned_at)


#: Interval in seconds at which a bolt that is not ready is polled again.
ASK_S = 0.25
#: Maximum number of characters of the reason for waiting.
TEXT_MAX = 500


class ReadyTimeoutError(DeadlineError):
    """A bolt is not ready after `heron.instance.ready_timeout_s`."""


class Readiness:
    """Polls one bolt's `is_ready`, and calls `changed` if its reason changes. Raises TopologyError for a coroutine.

    `is_ready` is polled at intervals, never per tuple, and only while the plan holds back the spouts: once tuples flow,
    a task that restarts takes them when it can. The task's thread polls; the control thread reads `waiting_for` and
    `since` for the status.
    """

    def __init__(
        self, component: str, is_ready: Callable[[], bool], limit_s: float, changed: Callable[[], None], now: float
    ) -> None:
        if inspect.iscoroutinefunction(is_ready):
            raise TopologyError(
                f"is_ready of component {component} is a coroutine; make it a plain method that does not block"
            )
        self._component = component
        self._is_ready = is_ready
        self._limit_s = limit_s
        self._changed = changed
        self._next = now
        #: The reason for waiting, and the time at which the bolt began to wait for it.
        self.waiting_for = f"{component} is not ready"
        self.since = now

    def ask(self, now: float) -> bool:
        """Return whether the bolt is ready, checked at intervals; raise the bolt's exception, or ReadyTimeoutError."""
        if now < self._next:
            return False
        self._next = now + ASK_S
        before, self.waiting_for = self.waiting_for, f"{self._component} is not ready"
        try:
            if self._is_ready():
                return True
        except NotReadyError as error:
            self.waiting_for = " ".join(str(error).split())[:TEXT_MAX] or self.waiting_for
        if self.waiting_for != before:
            self._changed()
        if self._limit_s and now - self.since >= self._limit_s:
            raise ReadyTimeoutError(
                f"{self._component} is not ready after {self._limit_s:g} s: {self.waiting_for} "
                "(heron.instance.ready_timeout_s)"
            )
        return False
