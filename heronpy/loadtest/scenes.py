"""The scenes of `slow_bolt`: their figures, the limits of the figures, and their table. Has no side effects."""

from __future__ import annotations

from collections.abc import Sequence
from operator import truediv
from typing import Any

from heronpy.loadtest.checks import Check, resumed_s
from heronpy.loadtest.measure import Reports
from heronpy.loadtest.profiles import Load
from heronpy.loadtest.results import SCENE_FIGURES, shown
from heronpy.loadtest.watch import Watch

HEADS = (
    "rate",
    "share of\ncapacity",
    "longest\npause",
    "steady\npause",
    "p50",
    "p99",
    "max\nqueued",
    "spouts\nheld",
    "resumed\nafter",
)


def stop_of(reports: Reports, since: float, until: float) -> float:
    """Return a spout's longest pause that ended in this interval, minus the time for which a bolt woke up late.

    A busy machine, not flow control, causes late wake-ups.
    """
    late = [(at - seconds, at) for sink in reports.sinks for at, seconds in sink["late"]]
    stops = [stop for spout in reports.spouts for stop in spout["stops"] if since <= stop[0] <= until]

    def taken(at: float, seconds: float) -> float:
        return float(max([0.0, *(min(at, end) - max(at - seconds, begin) for begin, end in late)]))

    return max((seconds - taken(at, seconds) for at, seconds in stops), default=0.0)


def row_of(load: Load, reports: Reports, latency: dict[str, Any], seen: Watch) -> dict[str, float]:
    """Return the figures for the slow phase."""
    sinks = reports.sinks
    rates = [(sink["slow_count"] - 1) / max(sink["fast_at"] - sink["first_at"], 1e-9) for sink in sinks]
    can = [sink["capacity"] for sink in sinks]
    start, end = min(sink["first_at"] for sink in sinks), min(sink["fast_at"] for sink in sinks)
    steady = start + min(load.warmup_s, (end - start) / 3)
    found = {
        "rate": sum(rates),
        # The task with the hot key limits the other tasks, which have spare capacity.
        "share": max(map(truediv, rates, can)) if load.parameters["hot"] else sum(rates) / sum(can),
        "stop_s": stop_of(reports, 0.0, end),
        "steady_stop_s": stop_of(reports, steady, end),
        "latency_p50_ms": latency["p50"],
        "latency_p99_ms": latency["p99"],
        "queued_bytes": max((look.queued_bytes for look in seen.statuses if look.at <= end), default=0),
        "clamped_s": seen.clamped_s,
    }
    resumed = None if load.rate else resumed_s(reports, end, 5 * sum(can))
    return found if resumed is None else {**found, "resume_s": resumed}


def floors(load: Load, row: dict[str, float]) -> list[Check]:
    """Check each limit of a scene; the text of a check names the figure and the limit."""
    found = []
    for name, floor in load.floors.items():
        figure, value = SCENE_FIGURES[name], row.get(name)
        more = figure.better == "more"
        ok = value is not None and (value >= floor if more else value <= floor)
        said = "not reached" if value is None else shown(name, value)
        wanted = f"must be at {'least' if more else 'most'} {shown(name, floor)}"
        found.append(Check(figure.label, ok, f"{said}; {wanted}"))
    return found


def joined(loads: Sequence[Load], runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge the scenes into one run: the first scene's document, with the checks and figures of all scenes."""
    if not loads[0].parameters.get("scene"):
        return runs[0]
    names = [load.parameters["scene"] for load in loads]
    checks = [
        {**check, "name": f"{name}, {check['name']}"}
        for name, run in zip(names, runs, strict=True)
        for check in run["checks"]
    ]
    rows = {name: run["scene"] for name, run in zip(names, runs, strict=True)}
    return {**runs[0], "checks": checks, "scenes": rows}


def table_of(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return column heads and rows of the table: one row per scene, with medians over the runs."""
    summary = result["summary"]
    rows = []
    for scene in result["runs"][-1]["scenes"]:
        found = [(name, summary.get(f"{scene}/{name}")) for name in SCENE_FIGURES]
        rows.append([scene, *("-" if value is None else shown(name, value["median"]) for name, value in found)])
    return ["scene", *HEADS], rows
