"""A task's reports: heartbeats, metrics and exceptions. The control thread only reads the task's data."""

from __future__ import annotations

import os
import time

from msgspec import Struct

from heronpy.proto import control_pb2
from heronpy.task.name import TaskName

from .checkpoints import Checkpoints
from .link import DataLink
from .metrics import TaskMetrics, Traffic
from .progress import Progress, Readiness
from .time_use import TimeUse


class Standing(Struct):
    """The condition of a task. Its thread writes it; the control thread may read it at any time."""

    state: control_pb2.TaskState = control_pb2.TASK_STARTING
    #: Why the task cannot work, for display.
    error: str = ""
    #: Version of the plan that the task uses; 0 before it joins a plan.
    plan_version: int = 0
    #: Why user code waits, such as a full disk; empty if it does not wait.
    outage: str = ""
    #: The readiness of a bolt while it is polled; else None.
    readiness: Readiness | None = None


def status_of(
    name: TaskName, standing: Standing, p: Progress, link: DataLink, checkpoints: Checkpoints | None
) -> control_pb2.TaskStatus:
    """Return the heartbeat; called by the control thread."""
    readiness = standing.readiness
    counted_at, emitted, executed, acked, failed = p.counts()
    return control_pb2.TaskStatus(
        task_id=name.task_id,
        component=name.component,
        instance_id=name.instance_id,
        epoch=name.epoch,
        pid=os.getpid(),
        state=standing.state,
        plan_version=standing.plan_version,
        emitted=emitted,
        executed=executed,
        acked=acked,
        failed=failed,
        # Never negative: the fields are unsigned, and a wrong count must not end this thread.
        in_queue_tuples=max(0, p.in_tuples),
        in_queue_bytes=max(0, p.in_bytes),
        out_queue_tuples=max(0, p.out_tuples),
        out_queue_bytes=max(0, p.out_bytes),
        pending=max(0, p.pending),
        loop_age_s=p.loop_age_s(),
        error=standing.error,
        attempt=checkpoints.attempt if checkpoints is not None and checkpoints.restored else 0,
        committed=checkpoints.committed if checkpoints is not None else 0,
        dead_letters=p.dead_letters,
        letters_before=p.letters_before,
        lost_tuples=p.lost + (0 if p.sends_again else max(0, link.lost_tuples)),
        waiting_for=readiness.waiting_for if readiness is not None else "",
        waiting_s=time.monotonic() - readiness.since if readiness is not None else 0.0,
        counted_at=counted_at,
        sent_frames=link.sent_frames,
        sent_tuples=link.total_sent_tuples,
        consumed_frames=link.total_consumed_frames,
        consumed_tuples=link.total_consumed_tuples,
        forgets_failed=p.forgets_failed,
        rewinds=p.rewinds,
        untracked=p.untracked,
        saves_nothing=checkpoints is not None and checkpoints.saves_nothing,
    )


def traffic_of(link: DataLink, now: float) -> Traffic:
    """Return the frames and tuples that have passed over a task's link so far."""
    return Traffic(
        now, link.sent_frames, link.total_sent_tuples, link.total_consumed_frames, link.total_consumed_tuples
    )


def count_link(metrics: TaskMetrics, link: DataLink, now: float) -> None:
    """Set the metrics of a task's link; `now` is in monotonic seconds."""
    counters = metrics.counters
    counters["__gateway-received-packets-count", ""] = link.received_frames
    counters["__gateway-received-packets-size", ""] = link.received_frames_bytes + link.received_bytes
    counters["__gateway-sent-packets-count", ""] = link.sent_frames
    counters["__gateway-sent-packets-size", ""] = link.sent_bytes
    counters["__gateway-sent-tuples-count", ""] = link.total_sent_tuples
    counters["__gateway-consumed-packets-count", ""] = link.total_consumed_frames
    counters["__gateway-consumed-tuples-count", ""] = link.total_consumed_tuples
    counters["__gateway-sent-messages-count", ""] = link.all_frames_sent
    counters["__gateway-received-messages-count", ""] = link.all_frames_received
    counters["__gateway-lost-tuples", ""] = link.lost_tuples
    counters["__gateway-link-gaps", ""] = link.gaps
    counters["__gateway-stale-frames", ""] = link.stale_frames
    metrics.gauge_traffic(traffic_of(link, now))


def count_loop(metrics: TaskMetrics, progress: Progress, time_use: TimeUse, now: float) -> None:
    """Set a task's loop metrics: waiting tuples, slowest calls, use of time; `now` is in monotonic seconds."""
    gauge = metrics.gauge
    gauge("__gateway-in-stream-queue-size", "", progress.in_tuples)
    gauge("__gateway-out-stream-queue-size", "", progress.out_tuples)
    gauge("__pending-acked-count", "", progress.pending)
    for source, slowest in list(metrics.slowest.items()):
        gauge("__execute-max-ns", source, slowest.at(now))
    use = time_use.totals(time.monotonic_ns())
    metrics.count_to("__busy-time-ns", "", use.busy)
    metrics.count_to("__blocked-time-ns", "", use.blocked + use.at_limit)
    metrics.count_to("__idle-time-ns", "", use.idle)
    if use.at_limit:
        metrics.count_to("__pending-full-time-ns", "", use.at_limit)


def report_of(
    name: TaskName, standing: Standing, progress: Progress, metrics: TaskMetrics
) -> control_pb2.MetricsReport:
    """Return all metrics with a value, and the metrics of the process; called by the control thread."""
    metrics.sample_process()
    report = control_pb2.MetricsReport(
        process=name.instance_id,
        task_id=name.task_id,
        component=name.component,
        container=name.container,
        epoch=name.epoch,
        pid=os.getpid(),
        loop_age_s=progress.loop_age_s(),
        state=standing.state,
        not_ready=standing.readiness is not None,
        waits_for=standing.outage,
    )
    metrics.fill(report)
    return report


def exception_report(
    name: TaskName, kind: str, message: str, traceback: str, startup: bool = False, out_of_memory: bool = False
) -> control_pb2.ExceptionReport:
    """Return the report of an exception for the executor; `kind` is the exception's type."""
    now = time.time()
    return control_pb2.ExceptionReport(
        process=name.instance_id,
        task_id=name.task_id,
        component=name.component,
        instance_id=name.instance_id,
        container=name.container,
        type=kind,
        message=message[:4096],
        traceback=traceback[-65536:],
        first_at=now,
        last_at=now,
        count=1,
        startup=startup,
        out_of_memory=out_of_memory,
    )
