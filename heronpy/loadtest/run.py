"""Runs a profile, once or several times, and builds the result document.

A topology is submitted with paused spouts, so that CPU and time are counted from the first emit on;
its tasks are bounded, so that it finishes by itself and every count is final.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from heronpy.loadtest import calibration, measure, system_calls
from heronpy.loadtest.checks import checks
from heronpy.loadtest.cluster import Cluster, submitted
from heronpy.loadtest.profiles import Load, program_of
from heronpy.loadtest.results import SCHEMA, summary_of
from heronpy.loadtest.watch import Watch, host_facts, watch

#: Extra time of a run beyond its emitting: start, drain, final reports.
PATIENCE_S = 60.0
#: The slowest assumed rate of a run bounded by a number of tuples.
SLOWEST_RATE = 20_000.0
#: The end of a run during which system calls are counted, and for how long: `heron` needs up to ACTIVATE_S before
#: the spouts emit, and perf is to be done before the last tuple.
TAIL_S, COUNT_S, ACTIVATE_S = 2.0, 1.0, 0.4

Say = Callable[[str], None]


def run_profile(where: Cluster, load: Load, repeat: int, say: Say) -> dict[str, Any]:
    """The result document of a profile, run `repeat` times."""
    calibrations = [calibration.calibrate()]
    runs: list[dict[str, Any]] = []
    for number in range(1, repeat + 1):
        run = run_once(where, load, number)
        calibrations.append(calibration.calibrate())
        runs.append(run)
        again = f"run {number} of {repeat}: " if repeat > 1 else ""
        say(f"{again}{run['figures']['rate']:,.0f} {load.unit}/s, {run['checks'][0]['text']}")
    return result_of(
        profile=load.name,
        about=load.about,
        unit=load.unit,
        options=load.options(),
        runs=runs,
        verdict=calibration.verdict(calibrations, [run["figures"]["others_cores"] for run in runs]),
    )


def facts() -> dict[str, Any]:
    """The origin of a result, in every result document."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "heronpy": metadata.version("heronpy"),
        "python": platform.python_version(),
        "host": host_facts(),
    }


def result_of(
    profile: str, about: str, unit: str, options: dict[str, Any], runs: list[dict[str, Any]], verdict: dict[str, Any]
) -> dict[str, Any]:
    """The result document of a load test; `unit` is what it counts, `verdict` says how noisy the machine was."""
    return {
        "schema": SCHEMA,
        "kind": "load-test",
        "profile": profile,
        "about": about,
        "unit": unit,
        "options": options,
        **facts(),
        "calibration": verdict,
        "runs": runs,
        "summary": summary_of(runs, verdict["loop_s_per_million"]),
        "ok": all(check["ok"] for run in runs for check in run["checks"]),
    }


def run_once(where: Cluster, load: Load, number: int, count_calls: bool = False) -> dict[str, Any]:
    """One run: submit, release the spouts, watch until it has finished, measure, check.

    With `count_calls` the system calls of a second near the end are counted; other figures exclude the last TAIL_S.
    """
    out = where.scratch / f"{load.name}-{number}"
    name = f"load-{load.name}-{number}"
    began = time.monotonic()
    with submitted(where, program_of(load), load.spec(name, str(out)), "--deploy-deactivated") as topology:
        submit_s = time.monotonic() - began
        seen = watch(topology)
        seen.look_memory()
        counter = system_calls.Counter(list(seen.tree.seen), count_after(load), COUNT_S) if count_calls else None
        try:
            seen.look_cpu()
            topology.activate()
            seen.until_finished(deadline_of(load))
            counted = counter.result() if counter is not None else None
        finally:
            if counter is not None:
                counter.close()
        reports = measure.Reports(topology.reports())
        return document(load, reports, seen, submit_s, out, counted)


def count_after(load: Load) -> float:
    """When to count system calls: seconds from a moment shortly before the first emit."""
    return max(0.0, load.duration_s - TAIL_S + ACTIVATE_S)


def deadline_of(load: Load) -> float:
    """Time limit of a run."""
    emitting = load.tuples / (load.rate or SLOWEST_RATE) if load.tuples else load.duration_s
    return emitting + float(load.parameters.get("fast_s", 0.0)) + max(PATIENCE_S, 2.0 * load.message_timeout_s)


def document(
    load: Load,
    reports: measure.Reports,
    seen: Watch,
    submit_s: float,
    out: Path,
    counted: system_calls.Counted | None = None,
) -> dict[str, Any]:
    """The part of the result document about one run."""
    start, end = reports.start(), reports.end()
    if counted is not None:
        end = min(end, start + load.duration_s - TAIL_S)
    if load.topology == "slow_bolt":
        sink = reports.sinks[0]
        start, end = sink["first_at"], sink["fast_at"]
    window = measure.window_of(seen.cpu, start, end, load.warmup_s)
    growth = measure.growth_of(seen.memory, start, end, load.warmup_s)
    memory = measure.memory_by_role(seen.memory)
    figures = measure.figures(window, reports, seen.tree.data_path_roles())
    return {
        "checks": [check.as_json() for check in checks(load, reports, seen, growth, out)],
        "submit_s": submit_s,
        "tuples": reports.total,
        "sent": reports.sent,
        "replayed": reports.replayed,
        "figures": figures,
        "frames": measure.frames(seen.frames, reports),
        "system_calls": measure.calls(counted, figures["rate"]),
        "latency": measure.latency(reports),
        "memory": memory,
        "uss_bytes": sum(role["uss"] for role in memory.values()),
        "pss_bytes": sum(role["pss"] for role in memory.values()),
        "memory_growth_per_s": growth.bytes / growth.seconds if growth is not None else None,
        "clamped_s": seen.clamped_s,
        "series": measure.series(reports, seen.cpu, seen.statuses, seen.memory),
    }
