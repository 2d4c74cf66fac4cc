"""Finds tasks with too much memory, child processes, threads, descriptors or log lines, and full disks. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median

from heronpy.health import trends
from heronpy.health.signals import Signals, TaskSignals
from heronpy.views.findings import Finding, Verdict

#: Limits: descendant processes of a task, their share of the machine's memory, and threads of a task.
PROCESSES_MANY, MEMORY_MUCH, THREADS_MANY = 200, 0.5, 1000
#: Share of the descriptors that a task may open.
DESCRIPTORS_NEAR = 0.8
#: Bytes of log per second: 30 MB a minute.
LOG_MUCH = 500_000.0
#: A disk is nearly full when less than this share of its size and less than this number of bytes are free.
DISK_PART, DISK_BYTES = 0.05, 5 << 30
#: Share of its memory limit at which a task counts as close to the limit.
NEAR_LIMIT = 0.9


def memory(signals: Signals) -> Iterator[Finding]:
    """Yield a finding for each task that ran out of memory, or soon will."""
    for name, (times, text) in signals.out_of_memory.items():
        figures: dict[str, float] = {"times": times}
        lasts_s, component = (
            signals.memory_lasts_s.get(name),
            next((t.component for t in signals.tasks if t.name == name), ""),
        )
        others = [float(t.memory_bytes) for t in signals.of(component) if t.name != name and t.memory_bytes]
        if lasts_s and others and (grown := signals.memory_limits.get(component, 0) - median(others)) > 0:
            figures |= {"lasts_s": lasts_s, "grows_per_h": 3600 * grown / lasts_s}
        elif (growth := _of_ended(signals, name)) is not None:
            figures["grows_per_h"] = 3600 * growth.per_s
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


def _of_ended(signals: Signals, name: str) -> trends.Growth | None:
    """Return the memory growth of a task's previous process, or of its current one if the previous one did not
    grow."""
    hot = signals.hot_spots.get(name)
    if hot is None:
        return None
    return trends.steady_growth(hot.memory_before) or trends.steady_growth(hot.memory)


def _growth(signals: Signals, component: str) -> tuple[TaskSignals, dict[str, float]] | None:
    """Return the task whose memory is growing towards a limit, with its figures."""
    tasks = [task for task in signals.of(component) if task.memory_bytes is not None]
    return _soon_full(signals, tasks) or _full_within_the_hour(signals, component, tasks)


def _soon_full(signals: Signals, tasks: list[TaskSignals]) -> tuple[TaskSignals, dict[str, float]] | None:
    """Return the task that would reach its memory limit first, if it kept growing as in the last seconds.

    The task must reach the limit within the time for which its growth has been steady. Growth that slows
    down but still counts as steady can also reach the limit. Example: memory approaches a final size exponentially, and
    grows in the last third of a time t by at least 0.75 of its growth in the first third. Such memory will still grow
    by at least 2.3 t times its current rate.
    """
    found: list[tuple[float, TaskSignals, dict[str, float]]] = []
    for task in tasks:
        hot = signals.hot_spots.get(task.name)
        growth = trends.steady_growth(hot.memory) if hot is not None else None
        limit = signals.memory_limits.get(task.component) or signals.machine_memory.get(task.host)
        if growth is None or not limit or hot is None:
            continue
        used = max(float(task.memory_bytes or 0), hot.memory[-1][1])
        left_s = max(0.0, limit - used) / growth.per_s
        if left_s <= growth.seen_s:
            found.append((left_s, task, _figures(task, tasks, used, float(limit), growth)))
    if not found:
        return None
    _, task, figures = min(found, key=lambda one: one[0])
    return task, figures


def _full_within_the_hour(
    signals: Signals, component: str, tasks: list[TaskSignals]
) -> tuple[TaskSignals, dict[str, float]] | None:
    """Return the largest task, if it would soon reach its memory limit at the rate of the last minutes."""
    growth = trends.memory_growth(signals, component)
    if not tasks or growth is None:
        return None
    largest = max(tasks, key=lambda task: task.memory_bytes or 0)
    used = float(largest.memory_bytes or 0)
    own = signals.memory_limits.get(component)
    times = signals.times
    limit, within_s = (own, times.full_s) if own else (signals.machine_memory.get(largest.host), times.machine_full_s)
    if not limit or used + min(growth.per_s * within_s, growth.most) < limit:
        return None
    return largest, _figures(largest, tasks, used, float(limit), growth)


def _figures(
    task: TaskSignals, tasks: list[TaskSignals], used: float, limit: float, growth: trends.Growth
) -> dict[str, float]:
    per_s = growth.per_s
    figures = {
        "used": used, "limit": limit, "per_h": per_s * 3600, "left_s": max(0.0, limit - used) / per_s,
        "grew_s": growth.seen_s,
    }  # fmt: skip
    if len(tasks) > 1:
        figures["median"] = median(float(one.memory_bytes or 0) for one in tasks if one is not task)
    return figures


def _grows(signals: Signals, component: str) -> Iterator[Finding]:
    found = _growth(signals, component)
    if found is not None and found[0].name not in signals.out_of_memory:
        yield Finding(Verdict.MEMORY, component, found[0].name, found[1])


def full_disks(signals: Signals) -> Iterator[Finding]:
    """Yield a finding for each machine whose disk is nearly full."""
    for host, (size, free) in signals.disks.items():
        if size and free < min(DISK_PART * size, DISK_BYTES):
            yield Finding(Verdict.DISK, figures={"size": float(size), "free": float(free)}, names=(host,))


def footprints(signals: Signals) -> Iterator[Finding]:
    """Yield findings about components whose tasks use too much; each finding names the task that uses the most."""
    for component in signals.components:
        tasks = signals.of(component)
        yield from _worst(tasks, Verdict.PROCESSES, lambda task: _processes(task, signals))
        yield from _worst(tasks, Verdict.DESCRIPTORS, _descriptors)
        yield from _worst(tasks, Verdict.LOGGING, _logging)


def _worst(
    tasks: list[TaskSignals], verdict: Verdict, of: Callable[[TaskSignals], dict[str, float]]
) -> Iterator[Finding]:
    """Yield a finding about the task with the largest first figure; `of` returns the figures of a bad task, else {}."""
    found = [(figures, task) for task in tasks if (figures := of(task))]
    if found:
        figures, worst = max(found, key=lambda one: next(iter(one[0].values())))
        yield Finding(verdict, worst.component, worst.name, figures)


def _processes(task: TaskSignals, signals: Signals) -> dict[str, float]:
    much = MEMORY_MUCH * signals.machine_memory.get(task.host, 0)
    if task.descendants >= PROCESSES_MANY or 0 < much <= task.descendant_bytes:
        return {"processes": float(task.descendants), "bytes": float(task.descendant_bytes)}
    return {"threads": float(task.threads)} if task.threads >= THREADS_MANY else {}


def _descriptors(task: TaskSignals) -> dict[str, float]:
    near = 0 < DESCRIPTORS_NEAR * task.descriptors_max <= task.descriptors
    return {"descriptors": float(task.descriptors), "limit": float(task.descriptors_max)} if near else {}


def _logging(task: TaskSignals) -> dict[str, float]:
    return {"log_per_s": task.log_per_s} if task.log_per_s >= LOG_MUCH else {}
