"""What the executor tells about its processes, as messages (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from heronpy.common.ids import parse_instance_id
from heronpy.procs.supervision import ProcessState, ProcessView
from heronpy.procs.usage import Usage
from heronpy.proto import control_pb2 as control

STATES = {
    ProcessState.STARTING: control.PROC_STARTING,
    ProcessState.RUNNING: control.PROC_RUNNING,
    ProcessState.STOPPING: control.PROC_RUNNING,
    ProcessState.BACKOFF: control.PROC_BACKOFF,
    ProcessState.FAILED: control.PROC_FAILED,
    ProcessState.STOPPED: control.PROC_STOPPED,
}


def process_record(
    view: ProcessView, usage: Usage, started_at: float, epoch: int
) -> control.ProcessRecord:
    return control.ProcessRecord(
        name=view.spec.name,
        pid=view.pid,
        state=STATES[view.state],
        restarts=view.restarts,
        exit_reason=view.exit_reason,
        exit_detail=view.exit_detail,
        task_id=view.spec.task_id,
        started_at=started_at,
        cpu_s=usage.cpu_s,
        rss_bytes=usage.rss_bytes,
        uss_bytes=usage.uss_bytes,
        epoch=epoch,
    )


def own_report(record: control.ProcessRecord, container: int) -> control.MetricsReport:
    """What the executor itself measures about a process, in the form of a report."""
    report = control.MetricsReport(
        process=record.name,
        task_id=record.task_id,
        component=parse_instance_id(record.name)[1] if record.task_id else "",
        container=container,
        pid=record.pid,
    )
    gauge, counter = control.Sample.GAUGE, control.Sample.COUNTER
    up = 1.0 if record.state == control.PROC_RUNNING else 0.0
    for name, kind, value in (
        ("__process/__up", gauge, up),
        ("__process/__restarts", counter, float(record.restarts)),
        ("__process/__cpu_seconds", counter, record.cpu_s),
        ("__process/__resident_bytes", gauge, float(record.rss_bytes)),
        ("__process/__unshared_bytes", gauge, float(record.uss_bytes)),
    ):
        report.samples.add(name=name, type=kind, value=value)
    return report


def health(records: Iterable[control.ProcessRecord], registered: bool) -> dict[str, Any]:
    """The answer of /health: healthy when every process runs or has done its work."""
    processes = {}
    healthy = True
    for record in records:
        state = control.ProcessState.Name(record.state).removeprefix("PROC_").lower()
        processes[record.name] = {"state": state, "restarts": record.restarts}
        if record.exit_reason:
            processes[record.name]["last_exit"] = record.exit_reason
        healthy = healthy and record.state not in (control.PROC_FAILED, control.PROC_BACKOFF)
    return {"healthy": healthy, "tmaster": registered, "processes": processes}
