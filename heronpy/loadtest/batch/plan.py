"""The scenes of `heron load-test batch`, their sizes, and the goals of all profiles of batch runs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heronpy.common.errors import ConfigError
from heronpy.common.nearest import suggestion
from heronpy.loadtest.checks import Check
from heronpy.loadtest.results import label_of, shown

#: Name to what it measures, in the order in which they run.
SCENES: dict[str, str] = {
    "cost": "CPU against the same topology as a stream, two processes by hand, and PySpark; memory of a worker",
    "small": "10 KB, from the command to its end",
    "kills": "kill -9 of a worker each 2 s",
    "failed": "a line that raises: until FAILED; failed near the end, mended and repeated: CPU",
    "preempted": "workers that get SIGTERM: none of their ends is charged",
    "history": "heron history show, with everything killed",
}
#: The most that is accepted.
GOALS: dict[str, float] = {
    "batch_vs_stream": 0.9,
    "batch_vs_hands": 3.0,
    "batch_vs_rdd": 0.8,
    "batch_worker_bytes": 150 << 20,
    "batch_small_s": 2.0,
    "batch_kills": 1.2,
    "batch_resumed": 0.12,
    "batch_failed_s": 15.0,
    "batch_charged": 0.0,
    "batch_history_s": 0.5,
    "straggler_time": 1.25,
    "straggler_in_vain": 0.03,
    "handover_live_s": 3.0,
    "handover_dump": 0.05,
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much the profiles do."""

    #: Of the logs of `cost`, `kills` and `failed`.
    bytes: int = 1 << 30
    preemptions: int = 100


def chosen(names: Sequence[str]) -> tuple[str, ...]:
    """The scenes of these names in the order in which they run; all when none is named. ConfigError for others."""
    for name in names:
        if name not in SCENES:
            hint = suggestion(name, SCENES, f"; known are {', '.join(SCENES)}")
            raise ConfigError(f"there is no scene '{name}' of batch runs{hint}")
    return tuple(name for name in SCENES if name in names or not names)


def judged(values: Mapping[str, float]) -> list[Check]:
    """Whether the figures of a run reach the goals that they have."""
    return [
        Check(label_of(name), values[name] <= most, f"{shown(name, values[name])}, at most {shown(name, most)}")
        for name, most in GOALS.items()
        if name in values
    ]
