"""A task's use of its time (busy, blocked and idle), and the durations of single calls to `process`. Pure.

*Busy* is all work of the task's thread: user code, and the runtime's work for its tuples. *Blocked* is waiting for
space in the out-queue, and at a spout also backpressure, its limit on pending tuples, and a sink that is not ready; the
time at that limit is also reported separately. *Idle* is all other time: no input, a pause that next_tuple requested, a
paused topology, or waiting for a plan. A call to user code that itself waits (for a database, or in `sleep`) is busy,
because the task can do nothing else.

An asynchronous bolt may wait with several tuples in progress. Its busy share is the used share of its limit
(heron.instance.async_concurrency), because at the limit it takes no further tuple.

The clock is read only when the task starts or stops waiting, never per tuple. Invariants: the three sums never fall,
and together with the time at the limit they equal the time since the start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain, repeat
from operator import sub
from typing import NamedTuple


class Doing(NamedTuple):
    """An activity of a task, for accounting its time."""

    work: float
    """Share of the time that counts as busy, from 0 to 1."""
    blocked: bool
    """True if the remaining time counts as blocked, False if it counts as idle."""
    at_limit: bool = False
    """True if the task is blocked because it waits for acks at topology.max.spout.pending."""


WORKING, BLOCKED, IDLE = Doing(1.0, False), Doing(0.0, True), Doing(0.0, False)
AT_LIMIT = Doing(0.0, True, at_limit=True)


class Totals(NamedTuple):
    """Nanoseconds of each activity since the task started."""

    busy: int
    blocked: int
    """Blocked time, except the time at the limit on pending tuples."""
    idle: int
    at_limit: int = 0

    def after(self, doing: Doing, took_ns: int) -> Totals:
        """Return the totals after this activity has lasted for the given time."""
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
        """All times are nanoseconds of one monotonic clock."""
        #: Replaced as a whole, so that another thread always reads a consistent value.
        self._moment = (doing, now_ns, Totals(0, 0, 0))

    @property
    def doing(self) -> Doing:
        return self._moment[0]

    def turn(self, doing: Doing, now_ns: int) -> None:
        before, since, totals = self._moment
        if now_ns < since:
            now_ns = since
        self._moment = (doing, now_ns, totals.after(before, now_ns - since))

    def totals(self, now_ns: int) -> Totals:
        """Return the sums up to now, including the current activity.

        Another thread that reads the clock just before a turn and calls this just after it may get slightly less than
        before.
        """
        doing, since, totals = self._moment
        return totals.after(doing, max(0, now_ns - since))


#: (nanoseconds of a call, number of calls with this time)
Sample = tuple[float, int]

SINGLY_NS = 100_000
SLOW_FACTOR = 20
#: Weight of the newest chunk in the usual time.
WEIGHT = 0.2
#: Number of periods for each of which the slowest call is kept; together more than a minute.
PERIOD_S = 10.0
PERIODS = 7


class ExecuteTimes:
    """The durations of one task's calls to user code.

    Reading a clock per tuple would take longer than many calls do, so quick calls are timed in chunks, and each is
    recorded with the mean of its chunk. That would hide a single slow call among thousands, so:

    - where calls take longer than `SINGLY_NS` on average, each is timed (at that length it costs 0.3 % of the time);
    - a chunk that takes `SLOW_FACTOR` times as long as usual contains a slow call: all other calls are recorded with
      the usual time, and the slow call with the remaining time. If several calls were slow, the recorded time of the
      slow call is too long; the sum is exact in any case. The usual time is a moving average per source, because
      streams differ. A chunk can at most double the usual time, so one slow call does not raise it much, and it follows
      a lasting change within a few chunks.
    """

    def __init__(self) -> None:
        #: Maps a source to nanoseconds per call.
        self._usual: dict[str, float] = {}

    def singly(self, source: str) -> bool:
        """Return whether to time each of the next calls for tuples of this source."""
        return self._usual.get(source, 0.0) > SINGLY_NS

    def samples(self, source: str, count: int, took_ns: float, stamps: Sequence[int] = ()) -> list[Sample]:
        """Return the histogram entries for `count` calls (at least one) with this total time.

        `stamps` are the times of the beginning and of the end of each call, if they were timed; the last stamps may be
        missing. With `stamps`, the samples are in the order of the calls.
        """
        mean = took_ns / count
        usual = self._usual.get(source)
        self._usual[source] = mean if usual is None else min(2 * usual, usual + WEIGHT * (mean - usual))
        if len(stamps) > 1:
            found: list[Sample] = [(max(0, each), 1) for each in map(sub, stamps[1:], stamps)]
            missing = count - len(found)
            if missing > 0:
                found.append((max(0.0, took_ns - (stamps[-1] - stamps[0])) / missing, missing))
            return found
        if usual is not None and count > 1 and mean > SLOW_FACTOR * usual:
            return [(usual, count - 1), (took_ns - usual * (count - 1), 1)]
        return [(mean, count)]


def by_stream(streams: Sequence[str], samples: list[Sample]) -> dict[str, list[Sample]]:
    """Return the samples of each stream for calls with several streams; the most frequent stream gets a slow call."""
    found: dict[str, list[Sample]] = {}
    usual, slow = samples[0][0], samples[1:]
    if len(samples) < len(streams) and (not slow or (len(slow) == 1 and slow[0][1] == 1)):
        for stream, number in Counter(streams).most_common():
            left = number - len(slow)
            found[stream] = [(usual, left), *slow] if left else slow
            slow = []
        return found
    each = chain.from_iterable(repeat((value, 1), number) for value, number in samples)
    for stream, sample in zip(streams, each):
        found.setdefault(stream, []).append(sample)
    return found


class RecentMax:
    """The largest value of the last minute. One thread records values; any thread may read."""

    __slots__ = ("_largest", "_periods", "_until")

    def __init__(self) -> None:
        #: (number of the period, largest value)
        self._periods: list[tuple[int, float]] = [(-1, 0.0)] * PERIODS
        #: The largest value of the newest period, and its end.
        self._largest = self._until = 0.0

    def note(self, value: float, now: float) -> None:
        """Record a value; `now` is in monotonic seconds and never decreases."""
        if value <= self._largest and now < self._until:
            return
        period = int(now // PERIOD_S)
        self._until = (period + 1) * PERIOD_S
        known, largest = self._periods[period % PERIODS]
        if known != period or value > largest:
            self._largest = value
            self._periods[period % PERIODS] = (period, value)

    def at(self, now: float) -> float:
        """Return the largest value of the last minute; 0 without values."""
        newest = int(now // PERIOD_S)
        return max((value for period, value in self._periods if newest - PERIODS < period <= newest), default=0.0)
