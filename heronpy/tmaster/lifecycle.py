"""How the topology is, and why: its lifecycle and one sentence of cause.

Pure and without memory: everything is derived from the books, so a restarted topology master comes
to the same result as soon as it has heard from everybody. The order of the questions in
`decide_lifecycle` is the order of precedence.
"""

from __future__ import annotations

from heronpy.common.ids import executor_id
from heronpy.proto import control_pb2 as control
from heronpy.tmaster.desk import Desk, Operation, listed
from heronpy.tmaster.exceptions import last_line
from heronpy.tmaster.finish import Finisher
from heronpy.tmaster.update import Update


def decide_lifecycle(desk: Desk, operation: Operation | None, finisher: Finisher) -> control.Lifecycle:
    """The one word for how the topology is."""
    if desk.registry.failed_processes or desk.registry.failed_tasks or desk.failure:
        return control.LIFE_FAILED
    if finisher.done:
        return control.LIFE_FINISHED
    if finisher.active:
        return control.LIFE_FINISHING
    if isinstance(operation, Update):
        return control.LIFE_UPDATING
    if not desk.started:
        return control.LIFE_STARTING
    return control.LIFE_RUNNING if desk.book.active else control.LIFE_PAUSED


def derive_cause(desk: Desk, operation: Operation | None, lifecycle: control.Lifecycle, age_s: float) -> str:
    """What failed, what is waited for, or who is lost; empty when all is well."""
    if lifecycle == control.LIFE_FAILED:
        return derive_failure(desk)
    if lifecycle == control.LIFE_STARTING:
        return _starting(desk, age_s)
    if lifecycle == control.LIFE_UPDATING and isinstance(operation, Update):
        return operation.phase.value
    return "; ".join(text for text in (desk.restoring, _lost(desk)) if text)


def derive_failure(desk: Desk) -> str:
    """Who failed for good and why; empty when nobody did."""
    registry = desk.registry
    failures: dict[str, str] = {}
    for task in sorted(registry.failed_tasks):
        error = registry.tasks[task].error.strip().splitlines()
        failures[registry.name_of(task)] = _startup_error(desk, task) or (error[-1] if error else "")
    for name, process in sorted(registry.failed_processes.items()):
        why = _startup_error(desk, process.task_id) if process.task_id else ""
        failures[name] = why or failures.get(name) or _exit(process)
    alike: dict[str, list[str]] = {}
    for name, why in failures.items():
        alike.setdefault(why or "see its log", []).append(name)
    sentences = [desk.failure] if desk.failure else []
    sentences += [f"{listed(names)} failed: {why}" for why, names in alike.items()]
    return "; ".join(sentences[:5]) + (f"; and {len(sentences) - 5} more" if len(sentences) > 5 else "")


def startup_exceptions(desk: Desk) -> list[control.ExceptionReport]:
    """The exceptions that keep tasks from starting now."""
    found = []
    for task in desk.exceptions.startup_tasks():
        report = desk.exceptions.startup_of(task)
        stopped = not task or (task in desk.registry.places and not desk.registry.is_up(task, 0))
        if report is not None and stopped:
            found.append(report)
    return found


def _startup_error(desk: Desk, task: int) -> str:
    report = desk.exceptions.startup_of(task)
    return last_line(report) if report is not None else ""


def _exit(process: control.ProcessRecord) -> str:
    reason = process.exit_reason.replace("_", " ") or "it ended"
    detail = process.exit_detail.strip().splitlines()
    if detail:  # it also says how often
        return f"{reason}: {detail[-1]}"
    return reason + (f" after {process.restarts} restarts" if process.restarts else "")


def _starting(desk: Desk, age_s: float) -> str:
    registry = desk.registry
    missing = desk.book.missing(registry.stmgrs)
    lost = sorted(name for name, stmgr in registry.stmgrs.items() if stmgr.lost)
    parts = []
    if missing:
        parts.append(f"stream managers that did not register: {listed(missing)}")
    if lost:
        parts.append(f"silent stream managers: {listed(lost)}")
    if desk.book.plan is not None and registry.lagging:
        names = [registry.name_of(task) for task in sorted(registry.lagging)]
        parts.append(f"tasks that did not start: {listed(names)}")
    if not parts:
        return "waiting for the first plan"
    limit = desk.settings.start_timeout_s
    prefix = f"still starting after {limit:g} s; " if age_s >= limit else "waiting for "
    return prefix + "; ".join(parts)


def _lost(desk: Desk) -> str:
    names = sorted(name for name, stmgr in desk.registry.stmgrs.items() if stmgr.lost)
    names += sorted(executor_id(n) for n, executor in desk.registry.executors.items() if executor.lost)
    return f"no sign of life from {listed(names)}" if names else ""
