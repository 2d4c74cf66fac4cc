"""Derives the topology's lifecycle state, and its cause as a sentence. Pure.

The module is stateless: it derives everything from the plan and the registry, so a restarted topology master reaches
the same result after all processes have reported. The order of the checks in `decide_lifecycle` is the order of
precedence.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

from heronpy.common.units import listed
from heronpy.health.signals import HotSpots
from heronpy.plan.component_config import is_batch
from heronpy.proto import control_pb2
from heronpy.tmaster.exceptions import last_line
from heronpy.tmaster.input import Finisher
from heronpy.tmaster.registry import Registry
from heronpy.tmaster.shared_state import Operation, SharedState
from heronpy.tmaster.task_reports import raised_by
from heronpy.tmaster.update import Update

#: Maximum number of characters that a cause quotes from the last message of a process.
DETAIL_MAX = 200
_ENDED: Final = (control_pb2.TASK_EXHAUSTED, control_pb2.TASK_FINISHED)


def decide_lifecycle(shared: SharedState, operation: Operation | None, finisher: Finisher) -> control_pb2.Lifecycle:
    """Derive the lifecycle state of the topology."""
    if shared.registry.failed_processes or _failed_tasks(shared) or shared.failure is not None:
        return control_pb2.LIFE_FAILED
    if finisher.done:
        return control_pb2.LIFE_FINISHED
    if finisher.active:
        return control_pb2.LIFE_FINISHING
    if isinstance(operation, Update):
        return control_pb2.LIFE_UPDATING
    if not shared.has_run:
        return control_pb2.LIFE_STARTING
    if shared.book.spouts_held:
        return control_pb2.LIFE_WAITING
    if not shared.book.active:
        return control_pb2.LIFE_PAUSED
    is_degraded = shared.restoring or shared.outages or shared.registry.degraded
    return control_pb2.LIFE_DEGRADED if is_degraded and not _batch_is_over(shared) else control_pb2.LIFE_RUNNING


def _batch_is_over(shared: SharedState) -> bool:
    """Whether a batch run has ended, so that a worker that is down does no harm.

    Tasks of a batch run report the end of their input only after the run has ended.
    """
    ended = any(task.state in _ENDED for task in shared.registry.tasks.values())
    return ended and is_batch(shared.book.topology)


def _failed_tasks(shared: SharedState) -> list[int]:
    """Return the tasks that have reported that they cannot start, and that will not be restarted.

    Once all tasks have run, the executor restarts such a task, and only the executor decides when to stop retrying.
    """
    return [] if shared.has_run else sorted(t for t in shared.registry.failed_tasks if not shared.registry.rests(t))


def derive_cause(
    shared: SharedState, operation: Operation | None, lifecycle: control_pb2.Lifecycle, age_s: float, now: float
) -> str:
    """Explain the state by a failure, an awaited condition or lost processes; empty if there is no problem."""
    if lifecycle == control_pb2.LIFE_FAILED:
        return derive_failure(shared)
    if lifecycle == control_pb2.LIFE_STARTING:
        return _starting(shared, age_s)
    if lifecycle == control_pb2.LIFE_UPDATING and isinstance(operation, Update):
        return operation.phase.value
    if lifecycle == control_pb2.LIFE_FINISHED:
        return _lost(shared)
    if lifecycle == control_pb2.LIFE_RUNNING and _batch_is_over(shared):
        return ""
    return _restoring_or_down(shared, now)


def derive_failure(shared: SharedState) -> str:
    """Describe the permanent failure with its reason; empty if there is none."""
    registry = shared.registry
    failures: dict[str, str] = {}
    for task in _failed_tasks(shared):
        error = registry.tasks[task].error.strip().splitlines()
        failures[registry.name_of(task)] = _startup_error(shared, task) or (error[-1] if error else "")
    for name, process in sorted(registry.failed_processes.items()):
        why = _startup_error(shared, process.task_id) if process.task_id else ""
        failures[name] = why or failures.get(name) or _exit(process)
    alike: dict[str, list[str]] = {}
    for name, why in failures.items():
        alike.setdefault(why or "see its log", []).append(name)
    sentences = [shared.failure] if shared.failure is not None else []
    sentences += [f"{listed(names)} failed: {why}" for why, names in alike.items()]
    return "; ".join(sentences[:5]) + (f"; and {len(sentences) - 5} more" if len(sentences) > 5 else "")


def startup_exceptions(shared: SharedState) -> list[control_pb2.ExceptionReport]:
    """Return the exceptions that currently keep tasks from starting."""
    found, registry = [], shared.registry
    for task in shared.exceptions.startup_tasks():
        report = shared.exceptions.startup_of(task)
        stopped = not task or (task in registry.places and not registry.is_up(task, 0))
        if task and shared.has_run:  # the executor may still be retrying
            stopped = stopped and registry.name_of(task) in registry.failed_processes
        if report is not None and stopped:
            found.append(report)
    return found


def _startup_error(shared: SharedState, task: int) -> str:
    report = shared.exceptions.startup_of(task)
    return last_line(report) if report is not None else ""


def _exit(process: control_pb2.ProcessRecord) -> str:
    reason = process.exit_reason.replace("_", " ") or "it ended"
    detail = process.exit_detail.strip().splitlines()
    if detail:  # it also contains the number of restarts
        return f"{reason}: {detail[0]}"
    return reason + (f" after {process.restarts} restarts" if process.restarts else "")


def _starting(shared: SharedState, age_s: float) -> str:
    registry = shared.registry
    missing = shared.book.missing(registry.stmgrs)
    lost = sorted(name for name, stmgr in registry.stmgrs.items() if stmgr.lost)
    parts = []
    if missing:
        parts.append(f"stream managers that did not register: {listed(missing)}")
    if lost:
        parts.append(f"silent stream managers: {listed(lost)}")
    if shared.book.plan is not None and registry.lagging:
        names = [registry.name_of(task) for task in sorted(registry.lagging)]
        what = "have not reported to this topology master" if shared.resumed else "did not start"
        parts.append(f"tasks that {what}: {listed(names)}")
    if not parts:
        return "waiting for the first plan"
    limit = shared.settings.start_timeout_s
    prefix = f"still starting after {limit:g} s; " if age_s >= limit else "waiting for "
    return prefix + "; ".join([*parts, *outages(shared)])


def _restoring_or_down(shared: SharedState, now: float) -> str:
    return "; ".join(text for text in (shared.restoring, *outages(shared), *_down(shared, now), _lost(shared)) if text)


def outages(shared: SharedState) -> list[str]:
    """Return sentences about the external conditions for which processes are waiting."""
    return [f"{process} waits: {why[:DETAIL_MAX]}" for process, why in sorted(shared.outages.items())]


def _lost(shared: SharedState) -> str:
    names = sorted(shared.registry.silent, key=lambda name: (name not in shared.registry.stmgrs, name))
    return f"no heartbeat from {listed(names)}" if names else ""


def _down(shared: SharedState, now: float) -> list[str]:
    """Return a sentence for each component with tasks that are down, and for each other process that is down."""
    registry = shared.registry
    tasks: dict[str, list[int]] = {}
    #: Tasks that have reported to this topology master's predecessor, perhaps not to this one.
    news: dict[str, list[int]] = {}
    names = {name for found in registry.resting.values() for name in found}
    for task, place in registry.places.items():
        if task in registry.down or place.name in names:
            unheard = shared.resumed and task not in registry.tasks and place.name not in names
            (news if unheard else tasks).setdefault(place.component, []).append(task)
    sizes = Counter(place.component for place in registry.places.values()) if tasks or news else Counter()
    sentences = []
    for component, down in tasks.items():
        resting = {registry.name_of(task) for task in down} & names
        why = _restart(shared, resting, now) if resting else _state_of(registry, down)
        sentences.append(f"{_tasks(len(down), sizes[component], component)} down{why}")
        names -= resting
    for component, silent in news.items():
        which = _tasks(len(silent), sizes[component], component, "has", "have")
        sentences.append(f"{which} not reported to this topology master")
    return sentences + [f"{name} is down{_restart(shared, {name}, now)}" for name in sorted(names)]


def _tasks(some: int, all_of_it: int, component: str, one: str = "is", several: str = "are") -> str:
    if all_of_it == 1:
        return f"the only task of {component} {one}"
    return f"{some} of {all_of_it} tasks of {component} {one if some == 1 else several}"


def _restart(shared: SharedState, names: set[str], now: float) -> str:
    """Describe the restarts of the process that is closest to its limit, and when a process restarts next."""
    registry = shared.registry
    found: list[tuple[control_pb2.ProcessRecord, float]] = []
    left = []
    for container, processes in registry.resting.items():
        # Adjust the times in the executor's report to the current time.
        age = max(0.0, now - registry.executors[container].last_seen) if container in registry.executors else 0.0
        for name in names & processes.keys():
            found.append((processes[name], processes[name].failing_s + age))
            left.append(max(0.0, processes[name].next_restart_s - age))
    worst, failing_s = max(found, key=lambda one: (one[0].restarts_charged, one[1], one[0].restarts))
    soon, why = f"next in {_span(min(left))}", _exit_line(shared, worst)
    if worst.restart_budget:
        return f", restart {worst.restarts_charged} of {worst.restart_budget}, {soon}{why}"
    if worst.failing_max_s:
        lasts = f"failing for {_span(failing_s)}, restarts stop after {_span(worst.failing_max_s)}"
        return f", restart {worst.restarts_charged}, {soon}, {lasts}{why}"
    return f", restart {worst.restarts}, {soon}{why}"


def _exit_line(shared: SharedState, process: control_pb2.ProcessRecord) -> str:
    """Return why the process last ended, or the common part of several such reasons, as the end of a sentence."""
    lines = process.exit_detail.strip().splitlines() or [process.exit_reason.replace("_", " ")]
    # The first line contains the exception's name; its message may span several lines.
    words, times = lines[0], ""
    mine = [one for one in shared.exceptions.select(task_id=process.task_id) if one.process == process.name]
    hot = raised_by(mine, HotSpots())
    if common := hot.in_common(words):
        # Use the words of `heron doctor`.
        words, times = common, f" ({hot.alike_times} of {hot.raised_times} times)"
    return f": {words[:DETAIL_MAX]}{times}" if words else ""


def _state_of(registry: Registry, tasks: list[int]) -> str:
    """Describe the state of tasks whose processes have not ended."""
    errors = [registry.tasks[task].error for task in tasks if task in registry.tasks and registry.tasks[task].error]
    return f": {errors[0].strip().splitlines()[-1]}" if errors else " and starting"


def _span(seconds: float) -> str:
    """Format a duration in whole seconds, or in minutes if it is long."""
    whole = math.ceil(seconds)
    return f"{whole} s" if whole < 120 else f"{round(whole / 60)} min"
