"""The duration of a fault's effect, from the first arrival times of tuples. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.float64]

#: Window of the rate, and the share of the earlier rate that it must reach.
WINDOW_S, STEP_S, HELD = 0.1, 0.02, 0.9
#: A fault shows its effect within this, or has none.
ONSET_S = 2.0
#: Averaging window of the overall rate after a fault.
CHANGE_S = 3.0
#: Maximum averaging window of the rate before a fault.
BEFORE_S = 60.0


@dataclass(frozen=True, slots=True)
class Recovery:
    """One fault."""

    fault: str
    at_s: float
    """Seconds after the first tuple."""
    seconds: float | None
    """Seconds from the fault until the rate was back; 0: never below; None: not before the end of the input."""
    change: float | None = None
    """Difference of the rate after the fault to the rate before the first fault; None: the input ended."""

    def as_json(self) -> dict[str, Any]:
        return {"fault": self.fault, "at_s": self.at_s, "seconds": self.seconds, "change": self.change}


def rates(times: Times, starts: Times, window_s: float = WINDOW_S) -> Times:
    """Tuples a second in the window after each start."""
    found: Times = (np.searchsorted(times, starts + window_s) - np.searchsorted(times, starts)) / window_s
    return found


def mean_before(times: Times, at: float) -> float:
    """The rate before a fault."""
    first = max(float(times[0]), at - BEFORE_S) if len(times) else at
    length = at - first
    return float((np.searchsorted(times, at) - np.searchsorted(times, first)) / length) if length > 0 else 0.0


def recoveries(times: Times, faults: list[tuple[float, str]], input_ended: float) -> list[Recovery]:
    """One per fault, by time; `times` are sorted. All are compared with the rate before the first fault."""
    found: list[Recovery] = []
    ordered = sorted(faults)
    if not ordered or not len(times):
        return found
    before = mean_before(times, ordered[0][0])
    wanted = before * HELD
    for number, (at, name) in enumerate(ordered):
        # A later fault ends the observation of this one only if this one is over.
        onset_end = min(at + ONSET_S, ordered[number + 1][0] if number + 1 < len(ordered) else at + ONSET_S)
        seconds = _seconds(times, at, onset_end, input_ended, wanted)
        found.append(Recovery(name, at - float(times[0]), seconds, _change(times, at, input_ended, before)))
    return found


def _change(times: Times, at: float, input_ended: float, before: float) -> float | None:
    if at + CHANGE_S > input_ended or before <= 0:
        return None
    return float(rates(times, np.array([at]), CHANGE_S)[0] / before - 1)


def _seconds(times: Times, at: float, onset_end: float, input_ended: float, wanted: float) -> float | None:
    starts = np.arange(at, max(input_ended - WINDOW_S, at) + STEP_S / 2, STEP_S)
    held = rates(times, starts) >= wanted
    dips = np.flatnonzero(~held & (starts < max(onset_end, at + STEP_S)))
    if not len(dips):
        return 0.0
    after = np.flatnonzero(held[dips[0] :])
    return float(starts[dips[0] + after[0]] - at) if len(after) else None


def longest_gap(times: Times) -> float:
    """The longest time without a new arrival."""
    return float(np.diff(times).max()) if len(times) > 1 else 0.0


def percentile(values: list[float], share: float) -> float | None:
    """The smallest value that `share` of all do not exceed; None if there are none."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * len(ordered) * 1000) // 1000) - 1))]
