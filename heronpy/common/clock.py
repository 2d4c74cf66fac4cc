"""Where time comes from.

Decisions use monotonic seconds handed in as `now`; only shells own a clock. Wall time is what users read
and never for decisions, so a wall clock that jumps cannot expire a lease.
"""

from __future__ import annotations

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
