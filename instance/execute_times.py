"""How long single calls of `process` take, from times of chunks of them. Pure.

A clock per tuple would cost more than many a call, so quick calls are timed in chunks and count with the mean of
their chunk. That would hide a single slow call among thousands, so:

- where calls take longer than `SINGLY_NS` on average, each is timed (at that length it costs 0.3 % of the time);
- a chunk that takes `SLOW_FACTOR` times as long as usual holds a slow call: all but one of its calls count as usual,
  and one has the rest of the time. If several were slow, that one is too slow; the sum is right in any case.

Usual is a moving average per source, as streams differ. It at most doubles with a chunk, so that one slow call does
not raise it, and a lasting change is followed within a few chunks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain, repeat
from operator import sub

#: (nanoseconds of a call, number of calls that took so long)
Sample = tuple[float, int]

SINGLY_NS = 100_000
SLOW_FACTOR = 20
#: Weight of the newest chunk in what is usual.
WEIGHT = 0.2
#: The slowest call is kept for each of this many periods; together more than a minute.
PERIOD_S = 10.0
PERIODS = 7


class ExecuteTimes:
    """The times of the calls of one task."""

    def __init__(self) -> None:
        #: By source, nanoseconds per call.
        self._usual: dict[str, float] = {}

    def singly(self, source: str) -> bool:
        """Whether each of the next calls for tuples of this source is to be timed."""
        return self._usual.get(source, 0.0) > SINGLY_NS

    def samples(self, source: str, count: int, took_ns: float, stamps: Sequence[int] = ()) -> list[Sample]:
        """What `count` calls, at least one, that took so long together count as.

        `stamps` are the times of the beginning and of the end of each call, if they were timed; the last ones may be
        missing. The samples are in the order of the calls then.
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
    """The samples of each stream, of calls for tuples of several; the slow call of a chunk goes to the largest one."""
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
    """The largest value of the last minute. One thread notes, any may read."""

    __slots__ = ("_largest", "_periods", "_until")

    def __init__(self) -> None:
        #: (number of the period, largest value)
        self._periods: list[tuple[int, float]] = [(-1, 0.0)] * PERIODS
        #: The largest value of the newest period, and its end.
        self._largest = self._until = 0.0

    def note(self, value: float, now: float) -> None:
        """`now` in monotonic seconds, never less than before."""
        if value <= self._largest and now < self._until:
            return
        period = int(now // PERIOD_S)
        self._until = (period + 1) * PERIOD_S
        known, largest = self._periods[period % PERIODS]
        if known != period or value > largest:
            self._largest = value
            self._periods[period % PERIODS] = (period, value)

    def at(self, now: float) -> float:
        """The largest value noted in the last minute; 0 when there is none."""
        newest = int(now // PERIOD_S)
        return max((value for period, value in self._periods if newest - PERIODS < period <= newest), default=0.0)
