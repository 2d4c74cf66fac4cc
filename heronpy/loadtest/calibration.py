"""The current speed of this machine, and its variation, from a fixed loop of pure Python.

CPU figures of a shared machine vary with its other users (caches, hyperthreads, clock). The loop is the
counting that the word counts do per record, so CPU per million tuples divided by the loop's CPU is
comparable between machines.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any

from heronpy.loadtest.vocabulary import word_list

RECORDS = 1_000_000
ROUNDS = 5
#: Noisy: slower than the best calibration by more than this share, or other processes use this much of a core.
SPREAD_MAX = 0.10
OTHERS_MAX = 0.25


def count_words(words: list[str], records: int) -> dict[str, int]:
    """The fixed loop."""
    counts: dict[str, int] = {}
    get = counts.get
    for _ in range(records // len(words)):
        for word in words:
            counts[word] = get(word, 0) + 1
    return counts


@dataclass(frozen=True, slots=True)
class Calibration:
    """CPU seconds of a million rounds of the loop."""

    best_s: float
    median_s: float


def calibrate(rounds: int = ROUNDS) -> Calibration:
    """Run the loop a few times."""
    words = word_list(5000, 10_000)
    times = []
    for _ in range(rounds):
        began = time.process_time()
        count_words(words, RECORDS)
        times.append(time.process_time() - began)
    return Calibration(min(times), statistics.median(times))


def verdict(calibrations: list[Calibration], others_cores: list[float]) -> dict[str, Any]:
    """The noise of the machine, for the result document."""
    best = min(item.best_s for item in calibrations)
    spread = max(item.median_s for item in calibrations) / best - 1
    others = max(others_cores, default=0.0)
    reasons = []
    if spread > SPREAD_MAX:
        reasons.append(f"the calibration loop took up to {spread:.0%} longer than at best")
    if others > OTHERS_MAX:
        reasons.append(f"other processes used up to {others:.2f} cores")
    return {
        "loop_s_per_million": best,
        "before_s": calibrations[0].median_s,
        "after_s": calibrations[-1].median_s,
        "spread": spread,
        "others_cores": others,
        "noisy": bool(reasons),
        "text": "noisy machine: " + " and ".join(reasons) if reasons else "quiet machine",
    }
