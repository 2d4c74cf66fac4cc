"""The window in which a result was computed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """The half-open span of time [start, end), in seconds since the epoch."""

    start: float
    end: float
