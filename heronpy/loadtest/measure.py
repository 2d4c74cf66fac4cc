"""Computes figures from observations: the steady window, rates, CPU per million tuples, latencies. No side effects.

The steady window lies between the end of the warm-up and the last emit. Counts at its ends are interpolated on the
tasks' own timelines; CPU is taken from two samples inside the window, and tuples are counted between these samples. A
run that is too short for a steady window is measured as a whole, and marked.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from heronpy.loadtest.histogram import Histogram
from heronpy.loadtest.processes import SPARK, Counted, Memory, is_data_path
from heronpy.loadtest.watch import CpuLook, Frames, StatusLook

#: Minimum seconds of a steady window.
STEADY_MIN_S = 1.0
MS = 1e6

#: Samples of memory by role, each with its time.
Looks = Sequence[tuple[float, dict[str, Memory]]]


@dataclass(frozen=True, slots=True)
class Window:
    """The time between two CPU samples."""

    first: CpuLook
    last: CpuLook
    steady: bool

    @property
    def seconds(self) -> float:
        return self.last.at - self.first.at


class Reports:
    def __init__(self, reports: Iterable[dict[str, Any]]) -> None:
        self.all = list(reports)
        self.spouts = [report for report in self.all if report["role"] == "spout"]
        # If a topology has no load sinks, the counts of the spouts are used.
        self.sinks = [report for report in self.all if report["role"] == "sink"] or self.spouts

    @property
    def total(self) -> int:
        return sum(report["tuples"] for report in self.sinks)

    @property
    def sent(self) -> int:
        return sum(report["tuples"] for report in self.spouts)

    @property
    def replayed(self) -> int:
        return sum(report.get("replayed", 0) for report in self.spouts)

    def start(self) -> float:
        return min((report["timeline"][0][0] for report in self.spouts), default=0.0)

    def end(self) -> float:
        """Return the time at which all spouts had emitted their last tuples."""
        return max((report["ended_at"] for report in self.spouts), default=0.0)

    def last_arrival(self) -> float:
        """Return the time at which the last tuple had been counted, to the precision of a tick."""
        times = []
        for report in self.sinks:
            final = report["timeline"][-1][1]
            times.append(next(at for at, count in report["timeline"] if count == final))
        return max(times, default=0.0)

    def counted_at(self, at: Any) -> Any:
        """Return how many tuples the sinks had counted at a time, or at each time in an array."""
        return sum(
            np.interp(at, [t for t, _ in report["timeline"]], [n for _, n in report["timeline"]], left=0)
            for report in self.sinks
        )


def window_of(looks: Sequence[CpuLook], start: float, end: float, warmup_s: float) -> Window:
    """Return the steady window, or the whole observation if it is too short."""
    low = start + min(warmup_s, (end - start) / 3)
    inside = [look for look in looks if low <= look.at <= end]
    if len(inside) >= 2 and inside[-1].at - inside[0].at >= STEADY_MIN_S:
        return Window(inside[0], inside[-1], True)
    return Window(looks[0], looks[-1], False)


def cpu_by_role(window: Window) -> dict[str, float]:
    """Return the CPU seconds by role within the window."""
    first, last = window.first.by_role, window.last.by_role
    return {role: max(0.0, last[role] - first.get(role, 0.0)) for role in sorted(last)}


def figures(window: Window, reports: Reports) -> dict[str, Any]:
    """Return the rates and the CPU figures for the window."""
    if window.steady:
        tuples = float(reports.counted_at(window.last.at) - reports.counted_at(window.first.at))
        seconds = window.seconds
    else:
        tuples, seconds = float(reports.total), max(reports.last_arrival() - reports.start(), 1e-9)
    roles = cpu_by_role(window)
    total, path = sum(roles.values()), sum(cpu for role, cpu in roles.items() if is_data_path(role))
    millions = max(tuples, 1.0) / 1e6
    busy = window.last.machine_s - window.first.machine_s
    driver = window.last.driver_s - window.first.driver_s
    whole_s = max(reports.last_arrival() - reports.start(), 1e-9)
    return {
        "steady": window.steady,
        "seconds": seconds,
        "tuples": tuples,
        "rate": tuples / seconds,
        "whole_rate": reports.total / whole_s,
        "cpu_s_per_million": total / millions,
        "cpu_s_per_million_data_path": path / millions,
        "cpu_cores": total / max(window.seconds, 1e-9),
        "others_cores": max(0.0, (busy - driver - total) / max(window.seconds, 1e-9)),
        "driver_cores": driver / max(window.seconds, 1e-9),
        "switches_per_tuple": switches_per_tuple(window, tuples),
        "cpu": {role: {"seconds": cpu, "per_million": cpu / millions} for role, cpu in roles.items()},
    }


def switches_per_tuple(window: Window, tuples: float) -> float | None:
    """Return the voluntary context switches of all processes per tuple; None if they were not counted."""
    first, last = window.first.switches, window.last.switches
    return None if first is None or last is None else max(0, last - first) / max(tuples, 1.0)


def frames(seen: Frames | None, reports: Reports) -> dict[str, float] | None:
    """Return tuples per frame, and frames of every kind per tuple that reached a sink; None without metrics."""
    if seen is None or not seen.sent or not reports.total:
        return None
    return {"tuples_per_frame": seen.tuples_per_frame(), "frames_per_tuple": seen.every_kind / reports.total}


def calls(counted: Counted | None, rate: float) -> dict[str, Any] | None:
    """Return the system calls of all processes per tuple at this rate, or the reason why they were not counted."""
    if counted is None:
        return None
    per_s = counted.per_s
    return {"per_tuple": None if per_s is None else per_s / max(rate, 1e-9), "reason": counted.reason}


def latency(reports: Reports) -> dict[str, Any]:
    """Return end-to-end and ack latencies in milliseconds, if tasks measured them."""
    found: dict[str, Any] = {}
    for key, name in (("latency", "end_to_end"), ("ack_latency", "until_acked")):
        parts = [report[key]["histogram"] for report in reports.all if key in report]
        histogram = Histogram.merged(parts)
        if histogram.count:
            counts = {"count": histogram.count, "histogram_ns": histogram.as_json()}
            found[name] = {**histogram.summary(MS), **counts}
    return found


def memory_by_role(memory: Looks) -> dict[str, dict[str, int]]:
    """Return memory by role, from the last full sample."""
    for _, roles in reversed(memory):
        if any(role["uss"] for role in roles.values()):
            return {name: dict(role) for name, role in sorted(roles.items())}
    return {}


@dataclass(frozen=True, slots=True)
class Growth:
    """The change in memory during the steady part of the run."""

    bytes: float
    seconds: float
    first: float
    role: str
    """The role with the largest growth."""


def growth_of(memory: Looks, start: float, end: float, warmup_s: float) -> Growth | None:
    """Return the growth from the first third of the samples to the last third; None if there are too few samples."""
    low = start + min(warmup_s, (end - start) / 3)
    looks = [(at, roles) for at, roles in memory if low <= at <= end]
    part = len(looks) // 3
    if not part:
        return None

    def mean(some: Looks, role: str) -> float:
        return sum(_size(roles.get(role)) for _, roles in some) / len(some)

    # A JVM fills its whole heap before it collects garbage, so its growth does not count.
    roles = sorted({role for _, found in looks for role in found} - {SPARK})
    before = {role: mean(looks[:part], role) for role in roles}
    after = {role: mean(looks[-part:], role) for role in roles}
    seconds = (sum(at for at, _ in looks[-part:]) - sum(at for at, _ in looks[:part])) / part
    worst = max(roles, key=lambda role: after[role] - before[role])
    return Growth(sum(after.values()) - sum(before.values()), seconds, sum(before.values()), worst)


def episodes(statuses: Sequence[StatusLook]) -> list[dict[str, Any]]:
    """Return the episodes of backpressure by culprit; each lasts until the first sample without its culprit."""
    found: list[dict[str, Any]] = []
    running: dict[str, dict[str, Any]] = {}
    for look in statuses:
        for name in look.culprits:
            if name not in running:
                running[name] = {"culprit": name, "from": look.at, "to": look.at}
                found.append(running[name])
        for name in [name for name in running if name not in look.culprits]:
            running.pop(name)["to"] = look.at
    for episode in running.values():
        episode["to"] = statuses[-1].at
    return found


def series(reports: Reports, cpu: Sequence[CpuLook], statuses: Sequence[StatusLook], memory: Looks) -> dict[str, Any]:
    """Return all time series for the HTML page; times are in seconds since the first emit."""
    zero = reports.start()
    times = np.array([look.at for look in cpu])
    rate = np.diff(reports.counted_at(times)) / np.maximum(np.diff(times), 1e-9) if len(times) > 1 else np.array([])
    return {
        "rate": {"t": _since(times[1:], zero), "values": [round(float(value), 1) for value in rate]},
        "cpu": {
            "t": _since(times[1:], zero),
            "values": _cores([(look.at, look.by_role) for look in cpu]),
            "processes": _cores([(look.at, look.by_process) for look in cpu]),
        },
        "memory": {
            "t": _since([at for at, _ in memory], zero),
            "values": {
                role: [_size(looked.get(role)) for _, looked in memory]
                for role in sorted({role for _, looked in memory for role in looked})
            },
        },
        "queues": {
            "t": _since([look.at for look in statuses], zero),
            "values": {
                name: [look.in_queue.get(name, 0) for look in statuses]
                for name in sorted({name for look in statuses for name in look.in_queue})
            },
            "queued_bytes": [look.queued_bytes for look in statuses],
            "pending": [look.pending for look in statuses],
        },
        "latency": _latency_series(reports, zero),
        "backpressure": [
            {**episode, "from": round(episode["from"] - zero, 3), "to": round(episode["to"] - zero, 3)}
            for episode in episodes(statuses)
        ],
    }


def _cores(looks: Sequence[tuple[float, dict[str, float]]]) -> dict[str, list[float]]:
    """Return the cores used between consecutive samples, by name."""
    steps = list(itertools.pairwise(looks))
    return {
        name: [
            round(max(0.0, after.get(name, 0.0) - before.get(name, 0.0)) / max(then - at, 1e-9), 4)
            for (at, before), (then, after) in steps
        ]
        for name in sorted({name for _, found in looks for name in found})
    }


def _latency_series(reports: Reports, zero: float) -> dict[str, Any]:
    rows = sorted(tuple(row) for report in reports.sinks for row in report.get("latency", {}).get("timeline", ()))
    return {
        "t": _since([row[0] for row in rows], zero),
        "values": {
            name: [round(row[place] / MS, 4) for row in rows] for name, place in (("p50", 2), ("p99", 3), ("max", 4))
        },
    }


def _size(memory: Memory | None) -> int:
    return (memory["uss"] or memory["rss"]) if memory is not None else 0


def _since(times: Any, zero: float) -> list[float]:
    return [round(float(at) - zero, 3) for at in times]
