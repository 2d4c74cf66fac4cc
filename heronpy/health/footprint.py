"""Tasks with too many child processes, threads, descriptors or log lines, and disks without room. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from heronpy.health.findings import Finding, Verdict
from heronpy.health.signals import Signals, TaskSignals

#: Processes below a task, the share of the machine's memory that they have, and its threads: more is a leak.
PROCESSES_MANY, MEMORY_MUCH, THREADS_MANY = 200, 0.5, 1000
#: Of the descriptors that a task may open.
DESCRIPTORS_NEAR = 0.8
#: Bytes of log per second: 30 MB a minute.
LOG_MUCH = 500_000.0
#: A disk is nearly full when both less than this part of its size and less than this number of bytes are left.
DISK_PART, DISK_BYTES = 0.05, 5 << 30


def full_disks(signals: Signals) -> Iterator[Finding]:
    """Machines whose disk is nearly full."""
    for host, (size, free) in signals.disks.items():
        if size and free < min(DISK_PART * size, DISK_BYTES):
            yield Finding(Verdict.DISK, figures={"size": float(size), "free": float(free)}, names=(host,))


def footprints(signals: Signals) -> Iterator[Finding]:
    """Of each component the task that takes most, if that is too much."""
    for component in signals.components:
        tasks = signals.of(component)
        yield from _worst(tasks, Verdict.PROCESSES, lambda task: _processes(task, signals))
        yield from _worst(tasks, Verdict.DESCRIPTORS, _descriptors)
        yield from _worst(tasks, Verdict.LOGGING, _logging)


def _worst(
    tasks: list[TaskSignals], verdict: Verdict, of: Callable[[TaskSignals], dict[str, float]]
) -> Iterator[Finding]:
    """`of` gives the figures of a task that takes too much, the one to compare first; else none."""
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
