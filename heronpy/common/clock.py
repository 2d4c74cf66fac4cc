"""Sources of time.

Decisions use monotonic seconds passed as `now`; only shells own a clock. Wall time is only for users and never for
decisions, so a wall clock that jumps cannot expire a lease.
"""

from __future__ import annotations

import math
import time
from collections import deque
from typing import Final, Protocol

from msgspec import Struct


class Clock(Protocol):
    """A source of monotonic seconds with an arbitrary zero point."""

    def now(self) -> float: ...


class MonotonicClock:
    """The monotonic clock of the machine: never goes back, unaffected by changes of the wall time."""

    __slots__ = ()

    def now(self) -> float:
        return time.monotonic()


def boot_s() -> float:
    """Seconds since the boot of this host, including the time in which it was suspended: leases count that, too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


#: Spreads any number of groups evenly over an interval: the golden ratio (Knuth, TAOCP 6.4).
_SPREAD = 0.6180339887498949
#: How early a timer may fire without firing again at once.
_EARLY_S = 0.002
#: Containers with neighbouring numbers whose processes wake together.
_CONTAINERS = 4


def shared_moment(now: float, interval_s: float, group: int = 0, every: int = 1) -> float:
    """The next moment, in monotonic seconds, of work done once per interval; the processes of a host share the moment.

    Processes that wake at the same moment read each other's messages in one go; at different moments, each would wake
    the others. Groups have different moments, so that not everything on a large host wakes at once. With `every` = n,
    it is one of n moments.
    """
    shift = group * _SPREAD % 1.0 * interval_s
    apart_s = every * interval_s
    return (math.floor((now + _EARLY_S - shift) / apart_s) + 1) * apart_s + shift


def is_rare(now: float, interval_s: float, group: int = 0, every: int = 1) -> bool:
    """Whether the shared moment `now` falls on an every-n-th tick."""
    before = now - 0.5 * interval_s
    return shared_moment(before, interval_s, group) > shared_moment(before, interval_s, group, every) - 0.5 * interval_s


def group_of(container: int) -> int:
    """The group of the processes of a container, for `shared_moment`."""
    return container // _CONTAINERS


#: How long a sample counts, in ns, and the number of samples kept.
KEPT_NS: Final = 60_000_000_000
SAMPLES_MAX: Final = 16
#: How fast two clocks may drift apart, in seconds per second: twice NTP's assumption for one clock.
DRIFT: Final = 30e-6


class Offset(Struct, frozen=True):
    """An offset in nanoseconds. `offset`, added to a time of this clock, gives a time of the other clock; it is wrong
    by at most `error`.
    """

    offset: int
    error: int

    def aged(self, age_ns: int) -> Offset:
        """The offset after this time, with a larger error."""
        return Offset(self.offset, self.error + int(max(0, age_ns) * DRIFT))


def offset_of(sent_ns: int, at_ns: int, heard_ns: int) -> Offset:
    """The offset of one round trip; `at_ns` is a time of the other clock."""
    trip = max(0, heard_ns - sent_ns)
    return Offset(at_ns - (sent_ns + trip // 2), trip // 2 + 1)


class ClockFilter:
    """How far another host's monotonic clock is from this one's, from round trips; at most `SAMPLES_MAX` of them.

    A request is sent, and the other side answers with its time, which lies between the two times here. The middle is
    assumed, with an error of at most half of the round trip. Like NTP's clock filter (RFC 5905), this uses the most
    exact sample of the last minute; older samples are less exact, because clocks drift.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[int, Offset]] = deque(maxlen=SAMPLES_MAX)

    def __len__(self) -> int:
        return len(self._samples)

    def take(self, sent_ns: int, at_ns: int, heard_ns: int) -> None:
        """Take a round trip; see `offset_of`."""
        self._samples.append((heard_ns, offset_of(sent_ns, at_ns, heard_ns)))

    def best(self, now_ns: int) -> Offset | None:
        """The current estimate; None without a sample in the last minute."""
        while self._samples and now_ns - self._samples[0][0] > KEPT_NS:
            self._samples.popleft()
        aged = (offset.aged(now_ns - heard_ns) for heard_ns, offset in self._samples)
        return min(aged, key=lambda one: one.error, default=None)

    def clear(self) -> None:
        """Forget all samples, because the other clock is a different one now."""
        self._samples.clear()
