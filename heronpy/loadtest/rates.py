"""What a tuple costs at every rate: `passthrough` at given rates in given modes, each for some seconds.

Each step is a separate topology, so its counts are final and exact. One spout emits at the given rate; 0 is as fast
as it can.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heronpy.loadtest import calibration, profiles, system_calls
from heronpy.loadtest.cluster import Cluster
from heronpy.loadtest.profiles import Load
from heronpy.loadtest.run import TAIL_S, Say, result_of, run_once
from heronpy.loadtest.steps import checks_of, rate_text, step_of, values_of_steps

PROFILE = "passthrough"
WARMUP_S = 1.0


def load_of(mode: str, rate: float, step_s: float, parameters: Sequence[str], counting: bool) -> Load:
    """The run of one step."""
    duration_s = WARMUP_S + step_s + (TAIL_S if counting else 0.0)
    changes = {"mode": mode, "rate": rate, "duration_s": duration_s, "warmup_s": WARMUP_S}
    return profiles.changed(profiles.load(PROFILE), changes, list(parameters))


def run_rates(
    where: Cluster,
    rates: Sequence[float],
    modes: Sequence[str],
    step_s: float,
    parameters: Sequence[str],
    repeat: int,
    say: Say,
) -> dict[str, Any]:
    """The result document."""
    calibrations = [calibration.calibrate()]
    reason = system_calls.missing()
    runs: list[dict[str, Any]] = []
    others: list[float] = []
    for number in range(1, repeat + 1):
        steps: list[dict[str, Any]] = []
        checks: list[dict[str, Any]] = []
        for place, (mode, rate) in enumerate([(mode, rate) for mode in modes for rate in rates]):
            load = load_of(mode, rate, step_s, parameters, counting=not reason)
            run = run_once(where, load, number * 1000 + place, count_calls=not reason)
            steps.append(step_of(mode, rate, run, reason))
            checks += checks_of(mode, rate, run)
            others.append(run["figures"]["others_cores"])
            again = f"run {number} of {repeat}: " if repeat > 1 else ""
            say(f"{again}{mode} {rate_text(rate)}: {steps[-1]['rate']:,.0f}/s, {steps[-1]['cpu_cores']:.2f} cores")
        runs.append({"values": values_of_steps(steps), "checks": checks, "steps": steps})
        calibrations.append(calibration.calibrate())
    return result_of(
        profile="rates",
        about="1 spout at each rate, 1 sink, 100 bytes: what a tuple costs, and how late it is",
        unit="tuples",
        options={
            "rates": ",".join(f"{rate:g}" if rate else "max" for rate in rates),
            "modes": ",".join(modes),
            "step_s": step_s,
            "set": ",".join(parameters),
        },
        runs=runs,
        verdict=calibration.verdict(calibrations, others),
    )
