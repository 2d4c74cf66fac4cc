"""Where time comes from.

Decisions use monotonic seconds handed in as `now`; only shells own a clock. Wall time is for people
and never for decisions, so a wall clock that jumps cannot expire a lease. Tests use `ManualClock`.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of monotonic seconds; the zero point means nothing."""

    def now(self) -> float: ...


class MonotonicClock:
    """The clock of the machine: never goes back, not touched by changes of the wall time."""

    __slots__ = ()

    def now(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that stands still until `advance` is called."""

    __slots__ = ("_now",)

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> float:
        """Move forward by `seconds` and return the new time."""
        if seconds < 0:
            raise ValueError(f"A clock cannot go back by {-seconds} s; advance by zero or more.")
        self._now += seconds
        return self._now
