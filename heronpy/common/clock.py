"""Sources of time.

Decisions use monotonic seconds that are passed as `now`; only the code that does I/O reads a clock. Wall time is shown
to users and never used for decisions, so a wall clock that jumps cannot expire a lease.
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
    """The monotonic clock of the machine, which never goes back and ignores changes to the wall clock."""

    __slots__ = ()

    def now(self) -> float:
        return time.monotonic()


def boot_s() -> float:
    """Return the seconds since this host booted, including the time while it was suspended, which counts for leases."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


#: The golden ratio, which spreads any number of groups evenly over an interval (Knuth, TAOCP 6.4).
_SPREAD = 0.6180339887498949
#: Seconds that a timer may fire early without firing again immediately.
_EARLY_S = 0.002
#: Number of consecutive containers whose processes wake together.
_CONTAINERS = 4


def shared_moment(now: float, interval_s: float, group: int = 0, every: int = 1) -> float:
    """Return the next moment, in monotonic seconds, for work that is done once per interval.

    All processes of a group get the same moments. Processes that wake at the same moment read each other's messages in
    one turn; at different moments, each would wake the others. Different groups get different moments, so that not all
    processes of a large host wake at the same time. With `every` = n, only every n-th moment counts.
    """
    shift = group * _SPREAD % 1.0 * interval_s
    apart_s = every * interval_s
    return (math.floor((now + _EARLY_S - shift) / apart_s) + 1) * apart_s + shift


def is_rare(now: float, interval_s: float, group: int = 0, every: int = 1) -> bool:
    """Whether the shared moment `now` is one of the moments that `shared_moment` returns for `every`."""
    before = now - 0.5 * interval_s
    return shared_moment(before, interval_s, group) > shared_moment(before, interval_s, group, every) - 0.5 * interval_s


def group_of(container: int) -> int:
    """Return the group of a container's processes, for `shared_moment`."""
    return container // _CONTAINERS


#: Maximum age in ns and maximum number of samples.
KEPT_NS: Final = 60_000_000_000
SAMPLES_MAX: Final = 16
#: Maximum drift between two clocks in seconds per second: twice NTP's assumption for one clock.
DRIFT: Final = 30e-6


class Offset(Struct, frozen=True):
    """An offset between two clocks in nanoseconds. A time on this clock plus `offset` is the time on the other clock,
    with an error of at most `error`.
    """

    offset: int
    error: int

    def aged(self, age_ns: int) -> Offset:
        """Return the offset with its error increased by the possible drift of the clocks in `age_ns`."""
        return Offset(self.offset, self.error + int(max(0, age_ns) * DRIFT))


def offset_of(sent_ns: int, at_ns: int, heard_ns: int) -> Offset:
    """Compute the offset from one round trip; `at_ns` is the time on the other clock."""
    trip = max(0, heard_ns - sent_ns)
    return Offset(at_ns - (sent_ns + trip // 2), trip // 2 + 1)


class ClockFilter:
    """Estimates the offset of another host's monotonic clock from at most `SAMPLES_MAX` round trips.

    The other host answers a request with its time, which was read between this host's request and the answer. The
    estimate assumes the middle, with an error of at most half the round trip. Like NTP's clock filter (RFC 5905), this
    class uses the most precise sample of the last minute; the error of older samples grows, because clocks drift.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[int, Offset]] = deque(maxlen=SAMPLES_MAX)

    def __len__(self) -> int:
        return len(self._samples)

    def take(self, sent_ns: int, at_ns: int, heard_ns: int) -> None:
        """Add a round trip; see `offset_of`."""
        self._samples.append((heard_ns, offset_of(sent_ns, at_ns, heard_ns)))

    def best(self, now_ns: int) -> Offset | None:
        """Return the current estimate; None if there is no sample from the last minute."""
        while self._samples and now_ns - self._samples[0][0] > KEPT_NS:
            self._samples.popleft()
        aged = (offset.aged(now_ns - heard_ns) for heard_ns, offset in self._samples)
        return min(aged, key=lambda one: one.error, default=None)

    def clear(self) -> None:
        """Drop all samples, because the other clock has been replaced."""
        self._samples.clear()
