"""What a task tells of itself: heartbeats and metrics, which the control thread only reads; exceptions."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from heronpy.proto import control_pb2 as control

from .memory import explain

if TYPE_CHECKING:
    from .task import Task


def loop_age_s(task: Task) -> float:
    """Seconds since the loop last made a turn; 0 while it waits."""
    p = task.progress
    return 0.0 if p.resting else max(0.0, time.monotonic() - p.turned_at)


def status_of(task: Task) -> control.TaskStatus:
    """The heartbeat; called by the control thread."""
    p, checkpoints, readiness = task.progress, task.checkpoints, task.readiness
    counted_at, emitted, executed, acked, failed = counts_of(task)
    return control.TaskStatus(
        task_id=task.task_id,
        component=task.component,
        instance_id=task.instance_id,
        epoch=task.epoch,
        pid=os.getpid(),
        state=task.state,
        plan_version=task.plan_version,
        emitted=emitted,
        executed=executed,
        acked=acked,
        failed=failed,
        in_queue_tuples=p.in_tuples,
        in_queue_bytes=p.in_bytes,
        out_queue_tuples=p.out_tuples,
        out_queue_bytes=p.out_bytes,
        pending=p.pending,
        loop_age_s=loop_age_s(task),
        error=task.error,
        attempt=checkpoints.attempt if checkpoints is not None and checkpoints.restored else 0,
        committed=checkpoints.committed if checkpoints is not None else 0,
        dead_letters=p.dead_letters,
        lost_tuples=lost_tuples(task),
        waiting_for=readiness.waiting_for if readiness is not None else "",
        waiting_s=time.monotonic() - readiness.since if readiness is not None else 0.0,
        counted_at=counted_at,
    )


def counts_of(task: Task) -> tuple[float, int, int, int, int]:
    """The counters of one moment, with that moment: now where the task rests, else when it last counted."""
    p, now = task.progress, time.time()
    counted = p.counted
    # It counts before it rests, and again before it rests the next time: the same tuple means one rest.
    rests = p.resting and counted[0] <= now
    return (now, *counted[1:]) if rests and p.counted is counted else counted


def lost_tuples(task: Task) -> int:
    """Tuples given up for good; where they are acked, or gone back for, the link's losses are sent again."""
    sent_again = task.acking or task.checkpoints is not None
    return task.progress.lost + (0 if sent_again else max(0, task.link.lost_tuples))


def report_of(task: Task) -> control.MetricsReport:
    """All metrics; called by the control thread."""
    p, link, metrics = task.progress, task.link, task.metrics
    gauge = metrics.gauge
    gauge("__gateway-in-stream-queue-size", "", p.in_tuples)
    gauge("__gateway-out-stream-queue-size", "", p.out_tuples)
    gauge("__gateway-in-stream-queue-expected-capacity", "", task.in_capacity.current)
    gauge("__gateway-out-stream-queue-expected-capacity", "", task.out_capacity.current)
    gauge("__pending-acked-count", "", p.pending)
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
    if task.checkpoints is not None:
        gauge("__stateful_gateway_size", "", task.checkpoints.held_bytes())
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
        not_ready=task.readiness is not None,
    )
    metrics.fill(report)
    return report


def exception_report(task: Task, error: BaseException, traceback: str, startup: bool) -> control.ExceptionReport:
    """What the executor is told of an exception; called by the task's thread."""
    now = time.time()
    return control.ExceptionReport(
        process=task.instance_id,
        task_id=task.task_id,
        component=task.component,
        instance_id=task.instance_id,
        container=task.container,
        type=type(error).__name__,
        message=explain(error)[:4096],
        traceback=traceback[-65536:],
        first_at=now,
        last_at=now,
        count=1,
        startup=startup,
    )
