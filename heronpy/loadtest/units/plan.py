"""The profiles of work units, their sizes, and the goals for their figures. Has no side effects."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heronpy.common.errors import ConfigError
from heronpy.common.nearest import suggestion
from heronpy.loadtest.results import label_of, shown

#: Descriptions of the profiles by name, in the order in which they run.
PROFILES: dict[str, str] = {
    "throughput": "CPU per GB, compared with a hand-written loop, TextFileSpout to FileSink, and PySpark",
    "latency": "time from appending a line until its row is visible, at 1 MB/s",
    "straggler": "time per unit while one of three workers is 10 times as slow",
    "recovery": "time from killing a worker or keeper until a unit is leased or rows are published again",
    "ledger": "transactions of 8 processes in one SQLite ledger",
    "quiet": "CPU and ledger size for many files that do not grow",
    "bad": "attempts and time for one bad line, at which the worker raises or dies",
    "rebuild": "time to rebuild the ledger from its table",
}


@dataclass(frozen=True, slots=True)
class Sizes:
    #: Bytes of the logs of `throughput`.
    bytes: int = 64 << 20
    #: Duration in seconds of `latency`, `straggler`, `ledger`, `quiet` and of `recovery`, which kills every 2.5 s.
    seconds: float = 15.0
    #: Number of files of `quiet`.
    files: int = 10_000
    #: Number of lines of `bad`.
    lines: int = 1_000_000
    #: Number of units of `rebuild`.
    units: int = 10_000


@dataclass(frozen=True, slots=True)
class Goal:
    """The goal for a figure: a maximum, or with `at_least` a minimum."""

    figure: str
    limit: float
    at_least: bool = False

    def is_met(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit


def chosen(names: Sequence[str]) -> tuple[str, ...]:
    """Return the named profiles, or all profiles, in run order. Raises ConfigError for an unknown name."""
    for name in names:
        if name not in PROFILES:
            hint = suggestion(name, PROFILES, f"; choose one of {', '.join(PROFILES)}")
            raise ConfigError(f"there is no profile '{name}' of work units{hint}")
    return tuple(name for name in PROFILES if name in names or not names)


def goals(sizes: Sizes) -> tuple[Goal, ...]:
    """Return the goals; `crash_attempts` depends on the number of lines."""
    return (
        Goal("units_vs_hand", 1.25),
        Goal("units_vs_hands", 1.25),
        Goal("units_vs_lines", 0.6),
        Goal("units_vs_spark", 0.7),
        Goal("visible_p50_s", 2.2),
        Goal("visible_p99_s", 3.5),
        Goal("straggler_p99_share", 1.0),
        Goal("recovery_worker_max_s", 2.0),
        Goal("recovery_keeper_max_s", 2.0),
        Goal("ledger_rate", 200.0, at_least=True),
        Goal("ledger_p99_ms", 25.0),
        Goal("quiet_cpu_percent", 5.0),
        Goal("quiet_file_bytes", 1024.0),
        Goal("bad_attempts", 3.0),
        Goal("crash_attempts", 3.0 + math.ceil(math.log2(max(sizes.lines, 1)))),
        Goal("rebuild_s", 10.0),
    )


def judged(summary: Mapping[str, Mapping[str, float]], sizes: Sizes) -> list[dict[str, Any]]:
    """Compare the medians of a summary with the goals."""
    found = []
    for goal in goals(sizes):
        row = summary.get(goal.figure)
        if row is None:
            continue
        value, word = row["median"], "at least" if goal.at_least else "at most"
        text = f"{label_of(goal.figure)}: {shown(goal.figure, value)}, goal: {word} {shown(goal.figure, goal.limit)}"
        found.append({"name": goal.figure, "met": goal.is_met(value), "text": text})
    return found
