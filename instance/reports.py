"""What a task tells of itself: heartbeats and metrics. Called by the control thread, which only reads."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from heronpy.proto import control_pb2 as control

if TYPE_CHECKING:
    from .task import Task


def loop_age_s(task: Task) -> float:
    """Seconds since the loop last made a turn; 0 while it waits."""
    p = task.progress
    return 0.0 if p.resting else max(0.0, time.monotonic() - p.turned_at)


def status_of(task: Task) -> control.TaskStatus:
    """The heartbeat; called by the control thread."""
    p = task.progress
    return control.TaskStatus(
        task_id=task.task_id,
        component=task.component,
        instance_id=task.instance_id,
        epoch=task.epoch,
        pid=os.getpid(),
        state=task.state,
        plan_version=task.plan_version,
        emitted=p.emitted,
        executed=p.executed,
        acked=p.acked,
        failed=p.failed,
        in_queue_tuples=p.in_tuples,
        in_queue_bytes=p.in_bytes,
        out_queue_tuples=p.out_tuples,
        out_queue_bytes=p.out_bytes,
        pending=p.pending,
        loop_age_s=loop_age_s(task),
        error=task.error,
    )


def report_of(task: Task) -> control.MetricsReport:
    """All metrics; called by the control thread."""
    p, link, metrics = task.progress, task.link, task.metrics
    gauge = metrics.gauge
    gauge("__gateway-in-stream-queue-size", "", p.in_tuples)
    gauge("__gateway-out-stream-queue-size", "", p.out_tuples)
    gauge("__gateway-in-stream-queue-expected-capacity", "", task.in_capacity.current)
    gauge("__gateway-out-stream-queue-expected-capacity", "", task.out_capacity.current)
    counters = metrics.counters
    counters["__gateway-received-packets-count", ""] = link.received_frames
    counters["__gateway-received-packets-size", ""] = link.received_frames_bytes + link.received_bytes
    counters["__gateway-sent-packets-count", ""] = link.sent_frames
    counters["__gateway-sent-packets-size", ""] = link.sent_bytes
    counters["__gateway-lost-tuples", ""] = link.lost_tuples
    counters["__gateway-link-gaps", ""] = link.gaps
    counters["__gateway-stale-frames", ""] = link.stale_frames
    if task.plan is not None:
        for stream in list(task.emitter.streams.values()):
            counters["__emit-count", stream.name] = stream.emitted
    metrics.sample_process()
    report = control.MetricsReport(
        process=task.instance_id,
        task_id=task.task_id,
        component=task.component,
        container=task.container,
        epoch=task.epoch,
        pid=os.getpid(),
        loop_age_s=loop_age_s(task),
        state=task.state,
    )
    metrics.fill(report)
    return report
