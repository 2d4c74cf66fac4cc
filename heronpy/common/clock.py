"""Where time comes from.

Decisions use monotonic seconds handed in as `now`; only shells own a clock. Wall time is for people
and never for decisions, so a wall clock that jumps cannot expire a lease.
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
