"""The window in which a result was computed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, init=False, repr=False)
class Window:
    """The half-open time span [start, end), in seconds since 1970."""

    _start_time: float
    _end_time: float

    def __init__(self, start_time: float, end_time: float) -> None:
        object.__setattr__(self, "_start_time", start_time)
        object.__setattr__(self, "_end_time", end_time)

    @property
    def start(self) -> float:
        """The first moment that belongs to the window."""
        return self._start_time

    @property
    def end(self) -> float:
        """The first moment after the window."""
        return self._end_time

    def __repr__(self) -> str:
        return f"Window {{start_time: {self._start_time}, end_time: {self._end_time}}}"
