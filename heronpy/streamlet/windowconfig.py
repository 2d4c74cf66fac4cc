"""The length of windows and the interval between their starts.

Durations are seconds (int or float) or timedeltas, including days and fractions of a second.
A tumbling window is a sliding window whose slide equals its length, so windows never overlap.
"""

from __future__ import annotations

import datetime
import math
from typing import TypeAlias

from heronpy.streamlet.errors import StreamletError

Duration: TypeAlias = "int | float | datetime.timedelta"


def _as_timedelta(value: Duration, what: str) -> datetime.timedelta:
    if isinstance(value, datetime.timedelta):
        duration = value
    elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        duration = datetime.timedelta(seconds=value)
    else:
        raise StreamletError(f"{what} is {value!r}; give a number of seconds or a datetime.timedelta")
    if duration <= datetime.timedelta(0):
        raise StreamletError(f"{what} is {value!r}; give a duration above zero")
    return duration


class WindowConfig:
    """The length and the slide of one operation's windows."""

    def __init__(self, window_duration: Duration, slide_interval: Duration) -> None:
        self._window_duration = _as_timedelta(window_duration, "the window duration")
        self._slide_interval = _as_timedelta(slide_interval, "the slide interval")
        if self._slide_interval > self._window_duration:
            raise StreamletError(
                f"the slide interval {self._slide_interval} is longer than the window "
                f"{self._window_duration}, so elements between windows would be lost; "
                "give a slide interval of at most the window's length"
            )

    @property
    def duration_s(self) -> float:
        """The length of a window in seconds."""
        return self._window_duration.total_seconds()

    @property
    def slide_s(self) -> float:
        """The time from the start of one window to the start of the next, in seconds."""
        return self._slide_interval.total_seconds()

    @staticmethod
    def create_tumbling_window(window_duration: Duration) -> WindowConfig:
        """Create windows that follow each other without overlap."""
        return WindowConfig(window_duration, window_duration)

    @staticmethod
    def create_sliding_window(window_duration: Duration, slide_interval: Duration) -> WindowConfig:
        """Create windows with the length `window_duration`; a new window begins every `slide_interval`."""
        return WindowConfig(window_duration, slide_interval)
