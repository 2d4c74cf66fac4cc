"""Runs the profiles of work units, and builds the result document."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from heronpy.loadtest import calibration
from heronpy.loadtest.checks import Check
from heronpy.loadtest.cluster import Cluster
from heronpy.loadtest.run import Say, result_of
from heronpy.loadtest.units import plan
from heronpy.loadtest.units.bad import bad
from heronpy.loadtest.units.latency import latency
from heronpy.loadtest.units.ledger import ledger
from heronpy.loadtest.units.plan import Sizes
from heronpy.loadtest.units.quiet import quiet
from heronpy.loadtest.units.rebuild import rebuilding
from heronpy.loadtest.units.recovery import recovery
from heronpy.loadtest.units.straggler import straggler
from heronpy.loadtest.units.throughput import throughput

_Profile = Callable[[Cluster, Sizes, int, Say], tuple[dict[str, float], list[Check]]]
_RUNS: dict[str, _Profile] = {
    "throughput": throughput,
    "latency": latency,
    "straggler": straggler,
    "recovery": recovery,
    "ledger": ledger,
    "quiet": quiet,
    "bad": bad,
    "rebuild": rebuilding,
}


def run_units(where: Cluster, names: Sequence[str], sizes: Sizes, repeat: int, say: Say) -> dict[str, Any]:
    """The result document of these profiles, each run `repeat` times."""
    calibrations = [calibration.calibrate()]
    runs: list[dict[str, Any]] = []
    for number in range(1, repeat + 1):
        values: dict[str, float] = {}
        checks: list[Check] = []
        for name in names:
            found, judged = _RUNS[name](where, sizes, number, say)
            values.update(found)
            checks += judged
            _tidy(where)
            calibrations.append(calibration.calibrate())
        runs.append({"values": values, "checks": [check.as_json() for check in checks]})
    result = result_of(
        profile="units",
        about=f"work units: {', '.join(names)}",
        unit="units",
        options={"profiles": ", ".join(names), **asdict(sizes)},
        runs=runs,
        verdict=calibration.verdict(calibrations, []),
    )
    result["goals"] = plan.judged(result["summary"], sizes)
    return result


def _tidy(where: Cluster) -> None:
    """Logs and tables of a profile that has ended; their sum could fill a disk."""
    for folder in where.scratch.glob("load-units-*"):
        shutil.rmtree(folder, ignore_errors=True)
