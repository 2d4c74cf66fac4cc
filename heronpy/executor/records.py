"""The executor's messages about its processes. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from heronpy.common.ids import parse_instance_id
from heronpy.common.states import UP_STATES, process_state_name
from heronpy.executor.desired import INSTANCE, STMGR
from heronpy.procs.exit_reason import ExitReason
from heronpy.procs.supervision import Ended, ProcessView
from heronpy.procs.usage import Usage
from heronpy.proto import control_pb2

#: Processes that carry tuples, by their role.
_KINDS = {INSTANCE: control_pb2.PROCESS_TASK, STMGR: control_pb2.PROCESS_STMGR}


def process_record(
    view: ProcessView,
    usage: Usage,
    started_at: float,
    epoch: int,
    now: float,
    footprint: control_pb2.Footprint | None = None,
) -> control_pb2.ProcessRecord:
    """The record of a process; `now` is monotonic, like the supervisor's deadlines."""
    outlook = view.outlook
    record = view.record(started_at, epoch)
    record.task_id = view.spec.task_id
    record.cpu_s, record.rss_bytes, record.uss_bytes = usage.cpu_s, usage.rss_bytes, usage.uss_bytes
    record.pss_bytes, record.peak_rss_bytes = usage.pss_bytes, view.peak_bytes
    record.restarts_charged, record.restart_budget = outlook.charged, outlook.budget
    record.failing_s = max(0.0, now - outlook.failing_since) if outlook.failing_max_s else 0.0
    record.failing_max_s = outlook.failing_max_s
    if footprint is not None:
        record.footprint.CopyFrom(footprint)
    record.kind = _KINDS.get(view.spec.role, control_pb2.PROCESS_OTHER)
    record.next_restart_s = max(0.0, view.restart_at - now) if view.restart_at is not None else 0.0
    return record


def progress(report: control_pb2.MetricsReport) -> tuple[float, bool]:
    """Seconds since a process last made progress, and whether the process is a task that is ready."""
    # Initialising may take long, for example to load a model; the topology master's start timeout limits it.
    age_s = 0.0 if report.state == control_pb2.TASK_STARTING else report.loop_age_s
    return age_s, report.task_id > 0 and report.state in UP_STATES and not report.not_ready


def own_report(record: control_pb2.ProcessRecord, container: int, out_of_memory: int = 0) -> control_pb2.MetricsReport:
    """A report with the executor's own measurements of a process."""
    report = control_pb2.MetricsReport(
        process=record.name,
        task_id=record.task_id,
        component=parse_instance_id(record.name)[1] if record.task_id else "",
        container=container,
        pid=record.pid,
    )
    gauge, counter = control_pb2.Sample.GAUGE, control_pb2.Sample.COUNTER
    up = 1.0 if record.state == control_pb2.PROC_RUNNING else 0.0
    for name, kind, value in (
        ("__process/__up", gauge, up),
        ("__process/__restarts", counter, float(record.restarts)),
        ("__process/__out_of_memory", counter, float(out_of_memory)),
        ("__process/__peak_resident_bytes", gauge, float(record.peak_rss_bytes)),
        ("__process/__cpu_seconds", counter, record.cpu_s),
        ("__process/__resident_bytes", gauge, float(record.rss_bytes)),
        ("__process/__unshared_bytes", gauge, float(record.uss_bytes)),
    ):
        report.samples.add(name=name, type=kind, value=value)
    return report


#: Exit reasons that are reported as an exception of the process, with the name of that exception.
_TOLD = {
    ExitReason.OOM: "OutOfMemory",
    ExitReason.CRASHED: "Crashed",
    ExitReason.HUNG: "Hung",
    ExitReason.OK: "Exited",
    ExitReason.USER_EXCEPTION: "Exited",
    ExitReason.OWN_BUG: "Exited",
    ExitReason.SPAWN_FAILED: "NotStarted",
}


def end_report(event: Ended, container: int, now: float, explained: bool) -> control_pb2.ExceptionReport | None:
    """An exception report, made by the executor, that explains why a task's process ended.

    None if the process ended properly, or has itself reported an exception that explains its end. A MemoryError
    explains an end, because its traceback shows the line; all other cases of running out of memory are reported. The
    report has no traceback, so it counts as a repetition of the last exception of the same kind.
    """
    crashed = event.reason is ExitReason.CRASHED
    kind = "Exited" if crashed and event.left else _TOLD.get(event.reason)
    # The report of the exception that ended a task may still be in transit.
    if kind is None or event.raised or (explained and event.reason is not ExitReason.OOM):
        return None
    spec, what = event.spec, "ran out of memory" if event.reason is ExitReason.OOM else "ended"
    if event.reason is ExitReason.SPAWN_FAILED:
        what = "could not be started"
    return control_pb2.ExceptionReport(
        process=spec.name,
        task_id=spec.task_id,
        component=spec.component,
        instance_id=spec.name,
        container=container,
        type=kind,
        message=f"{spec.name} {what}: {event.detail}",
        first_at=now,
        last_at=now,
        count=1,
    )


def health(records: Iterable[control_pb2.ProcessRecord], registered: bool) -> dict[str, Any]:
    """The answer to /health: healthy if every process is running or has finished its work."""
    processes = {}
    healthy = True
    for record in records:
        state = process_state_name(record.state).lower()
        processes[record.name] = {"state": state, "restarts": record.restarts}
        if record.exit_reason:
            processes[record.name]["last_exit"] = record.exit_reason
        healthy = healthy and record.state not in (control_pb2.PROC_FAILED, control_pb2.PROC_BACKOFF)
    return {"healthy": healthy, "tmaster": registered, "processes": processes}
