"""Microbenchmarks: their costs are ratios to a calibration loop, so that floors hold on any machine.

    python -m pytest tests/bench -o python_files='bench_*.py' -m bench
    HERON_BENCH_RECORD=1 python -m pytest ...      writes what was measured to floors.json

The files are called bench_*.py, so an ordinary test run does not collect them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from heronpy.loadtest.inputs import word_list
from heronpy.loadtest.run import count_words

FLOORS = Path(__file__).with_name("floors.json")
#: A ratio may be this much above its recorded one: smaller differences are the machine's.
SLACK = 1.35
#: The best of this many runs is that of an undisturbed machine.
ROUNDS = 30


def loop_ns() -> float:
    """Nanoseconds of one round of the calibration loop, at best."""
    words = word_list(5000, 10_000)
    best = float("inf")
    for _ in range(20):
        began = time.perf_counter_ns()
        count_words(words, 10_000)
        best = min(best, (time.perf_counter_ns() - began) / 10_000)
    return best


class Floors:
    """Recorded ratios, and those of this run."""

    def __init__(self) -> None:
        self.recorded: dict[str, float] = json.loads(FLOORS.read_text(encoding="utf-8")) if FLOORS.is_file() else {}
        self.measured: dict[str, float] = {}
        self.recording = bool(os.environ.get("HERON_BENCH_RECORD"))

    def save(self) -> None:
        if self.recording and self.measured:
            merged = {**self.recorded, **self.measured}
            FLOORS.write_text(json.dumps(dict(sorted(merged.items())), indent=2) + "\n", encoding="utf-8")


@pytest.fixture(scope="session")
def floors() -> Iterator[Floors]:
    found = Floors()
    yield found
    found.save()


@pytest.fixture
def per_item(
    benchmark: Any, floors: Floors, request: pytest.FixtureRequest
) -> Callable[[Callable[[], object], int], None]:
    """Measures a function that handles `items` items, and compares the cost of one with the record."""

    def measure(function: Callable[[], object], items: int) -> None:
        name = request.node.name.removeprefix("test_")
        before = loop_ns()
        benchmark.pedantic(function, rounds=ROUNDS, iterations=1, warmup_rounds=3)
        cost = benchmark.stats.stats.min * 1e9 / items
        ratio = cost / min(before, loop_ns())
        benchmark.extra_info.update(ns_per_item=round(cost, 1), loops_per_item=round(ratio, 3))
        floors.measured[name] = round(ratio, 3)
        if floors.recording:
            return
        recorded = floors.recorded.get(name)
        assert recorded is not None, f"{name} has no record; run once with HERON_BENCH_RECORD=1"
        assert ratio <= recorded * SLACK, (
            f"{name} costs {cost:.0f} ns an item, {ratio:.2f} rounds of the calibration loop;"
            f" recorded are {recorded:.2f}, allowed {recorded * SLACK:.2f}"
        )

    return measure
