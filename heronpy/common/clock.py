"""Where time comes from.

Decisions use monotonic seconds handed in as `now`; only shells own a clock. Wall time is what users read
and never for decisions, so a wall clock that jumps cannot expire a lease.
"""

from __future__ import annotations

import math
import time
from typing import Protocol


class Clock(Protocol):
    """A source of monotonic seconds with an arbitrary zero point."""

    def now(self) -> float: ...


class MonotonicClock:
    """The monotonic clock of the machine: never goes back, unaffected by changes of the wall time."""

    __slots__ = ()

    def now(self) -> float:
        return time.monotonic()


#: Spreads groups evenly over an interval, however many there are: the golden ratio (Knuth, TAOCP 6.4).
_SPREAD = 0.6180339887498949
#: A timer may fire so much early, and must not fire again at once.
_EARLY_S = 0.002
#: Containers with neighbouring numbers whose processes wake together.
_CONTAINERS = 4


def shared_moment(now: float, interval_s: float, group: int = 0, every: int = 1) -> float:
    """When to do next what is done once per interval, in monotonic seconds; the processes of a host do it together.

    Those that wake at the same moment read each other's messages in one go, where each would wake the others at a
    moment of its own. Groups have moments of their own, so that not everything on a large host wakes at once. With
    `every`, it is one of every so many moments.
    """
    shift = group * _SPREAD % 1.0 * interval_s
    apart_s = every * interval_s
    return (math.floor((now + _EARLY_S - shift) / apart_s) + 1) * apart_s + shift


def is_rare(now: float, interval_s: float, group: int = 0, every: int = 1) -> bool:
    """Whether `now`, at a shared moment, is at one of those that come once in so many."""
    before = now - 0.5 * interval_s
    return shared_moment(before, interval_s, group) > shared_moment(before, interval_s, group, every) - 0.5 * interval_s


def group_of(container: int) -> int:
    """The group of the processes of a container, for `shared_moment`."""
    return container // _CONTAINERS
