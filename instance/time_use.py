"""Where the time of a task goes: busy, blocked and idle. Pure.

*Busy* is user code and the runtime's own work for its tuples: whatever the task's thread does. *Blocked* is waiting
for room in the outgoing queue, and at a spout also backpressure, its limit of pending tuples, and a sink that is not
ready; the time at that limit is also told by itself. *Idle* is the rest: no input, a pause that next_tuple asked for, a
paused topology, a plan that is awaited. A call of user code that waits by itself (for a database, or in `sleep`) is
busy: the task can do nothing else meanwhile.

An asynchronous bolt may wait with several tuples in progress. It is busy to the part of its bound
(heron.instance.async_concurrency) that is in use, because at the whole bound it takes no further tuple.

Time is taken only when the task begins and ends to wait, never per tuple. Invariants: the three sums never fall, and
together with that at the limit they are the time since the beginning.
"""

from __future__ import annotations

from typing import NamedTuple


class Doing(NamedTuple):
    """What a task does for a while."""

    work: float
    """Part of the time that counts as busy, from 0 to 1."""
    blocked: bool
    """Whether the rest is blocked; else it is idle."""
    at_limit: bool = False
    """What is blocked waits for acks, at topology.max.spout.pending."""


WORKING, BLOCKED, IDLE = Doing(1.0, False), Doing(0.0, True), Doing(0.0, False)
AT_LIMIT = Doing(0.0, True, at_limit=True)


class Totals(NamedTuple):
    """Nanoseconds since the beginning."""

    busy: int
    blocked: int
    """Without the time at the limit of pending tuples."""
    idle: int
    at_limit: int = 0

    def after(self, doing: Doing, took_ns: int) -> Totals:
        """The totals when the task has done this for so long."""
        if doing is WORKING:
            return Totals(self.busy + took_ns, self.blocked, self.idle, self.at_limit)
        work = round(doing.work * took_ns)
        rest = took_ns - work
        busy = self.busy + work
        if doing.at_limit:
            return Totals(busy, self.blocked, self.idle, self.at_limit + rest)
        if doing.blocked:
            return Totals(busy, self.blocked + rest, self.idle, self.at_limit)
        return Totals(busy, self.blocked, self.idle + rest, self.at_limit)


class TimeUse:
    """The time of one task. Its thread calls `turn`; any thread may read the totals."""

    __slots__ = ("_moment",)

    def __init__(self, now_ns: int, doing: Doing = IDLE) -> None:
        """All times are of one monotonic clock, in nanoseconds."""
        #: Replaced as a whole, so that what another thread reads is of one moment.
        self._moment = (doing, now_ns, Totals(0, 0, 0))

    @property
    def doing(self) -> Doing:
        """What the task does now."""
        return self._moment[0]

    def turn(self, doing: Doing, now_ns: int) -> None:
        """From now on the task does this."""
        before, since, totals = self._moment
        if now_ns < since:
            now_ns = since
        self._moment = (doing, now_ns, totals.after(before, now_ns - since))

    def totals(self, now_ns: int) -> Totals:
        """The sums up to now, with what is being done.

        Another thread that takes the time just before a turn and asks just after it may get slightly less than before.
        """
        doing, since, totals = self._moment
        return totals.after(doing, max(0, now_ns - since))
