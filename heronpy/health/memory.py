"""Tasks that run out of memory: those that did, those that grow towards their limit, those that are near it (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from heronpy.health import trends
from heronpy.health.findings import Finding, Verdict
from heronpy.health.signals import Signals, TaskSignals

#: A task this close to its limit of memory.
NEAR_LIMIT = 0.9
#: Memory that grows as it does reaches its limit within this time, seconds; or, without a limit, all of its machine's,
#: where only what grows by gigabytes an hour is so near.
FULL_S, MACHINE_FULL_S = 3600.0, 6 * 3600.0


def memory(signals: Signals) -> Iterator[Finding]:
    """Tasks that ran out of memory, or will."""
    for name, (times, text) in signals.out_of_memory.items():
        figures: dict[str, float] = {"times": times}
        lasts_s, component = (
            signals.memory_lasts_s.get(name),
            next((t.component for t in signals.tasks if t.name == name), ""),
        )
        others = [float(t.memory_bytes) for t in signals.of(component) if t.name != name and t.memory_bytes]
        if lasts_s and others and (grown := signals.memory_limits.get(component, 0) - median(others)) > 0:
            figures |= {"lasts_s": lasts_s, "grows_per_h": 3600 * grown / lasts_s}
        yield Finding(Verdict.MEMORY, task=name, figures=figures, quote=text)
    for component in signals.components:
        yield from _grows(signals, component)
    for component, limit in signals.memory_limits.items():
        used = trends.memory_p95(signals, component)
        tasks = [task for task in signals.of(component) if task.memory_bytes is not None]
        if used is None or used < NEAR_LIMIT * limit or not tasks:
            continue
        largest = max(tasks, key=lambda task: task.memory_bytes or 0)
        if largest.name not in signals.out_of_memory and _growth(signals, component) is None:
            yield Finding(Verdict.MEMORY, component, largest.name, {"used": used, "limit": limit})


def _growth(signals: Signals, component: str) -> tuple[TaskSignals, dict[str, float]] | None:
    """The task whose memory grows towards a limit, and its figures."""
    tasks = [task for task in signals.of(component) if task.memory_bytes is not None]
    per_s = trends.memory_grows_per_s(signals, component)
    if not tasks or per_s is None:
        return None
    largest = max(tasks, key=lambda task: task.memory_bytes or 0)
    used = float(largest.memory_bytes or 0)
    own = signals.memory_limits.get(component)
    limit, within_s = (own, FULL_S) if own else (signals.machine_memory.get(largest.host), MACHINE_FULL_S)
    if not limit or used + per_s * within_s < limit:
        return None
    figures = {"used": used, "limit": float(limit), "per_h": per_s * 3600, "left_s": max(0.0, limit - used) / per_s}
    if len(tasks) > 1:
        figures["median"] = median(float(task.memory_bytes or 0) for task in tasks if task is not largest)
    return largest, figures


def _grows(signals: Signals, component: str) -> Iterator[Finding]:
    found = _growth(signals, component)
    if found is not None and found[0].name not in signals.out_of_memory:
        yield Finding(Verdict.MEMORY, component, found[0].name, found[1])
