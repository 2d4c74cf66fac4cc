"""A task's reports: heartbeats and metrics, which the control thread only reads; exceptions."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Protocol

from heronpy.proto import control_pb2, plan_pb2

from .checkpoints import Checkpoints
from .dead_letters import Streams
from .link import DataLink
from .metrics import TaskMetrics
from .queues import TunedCapacity
from .readiness import Readiness
from .time_use import TimeUse
from .traffic import Traffic


@dataclass(slots=True)
class Progress:
    """Counters that the control thread may read at any time."""

    emitted: int = 0
    executed: int = 0
    acked: int = 0
    failed: int = 0
    #: Wall time, emitted, executed, acked, failed: of one moment, replaced as a whole.
    counted: tuple[float, int, int, int, int] = (0.0, 0, 0, 0, 0)
    in_tuples: int = 0
    in_bytes: int = 0
    out_tuples: int = 0
    out_bytes: int = 0
    pending: int = 0
    #: Tuples given up: kept as dead letters, or not processed, not kept and not sent again.
    dead_letters: int = 0
    lost: int = 0
    turned_at: float = 0.0
    resting: bool = False
    #: A spout whose class does not override fail().
    forgets_failed: bool = False
    #: A spout whose state goes back to a checkpoint with the others.
    rewinds: bool = False

    def count(self, emitted: int) -> None:
        """Take the counters at one moment; for the task's thread, between two calls of user code or within one."""
        self.emitted = emitted
        self.counted = (time.time(), emitted, self.executed, self.acked, self.failed)

    def counts(self) -> tuple[float, int, int, int, int]:
        """The counters of one moment, with that moment: now while the task rests, else when it last counted."""
        now, counted = time.time(), self.counted
        # The task replaces `counted` before each rest: the same tuple means that it is still the same rest.
        rests = self.resting and counted[0] <= now
        return (now, *counted[1:]) if rests and self.counted is counted else counted

    def loop_age_s(self) -> float:
        """Seconds since the loop last made a turn; 0 while it waits."""
        return 0.0 if self.resting else max(0.0, time.monotonic() - self.turned_at)


class Reported(Protocol):
    """The reports of a task."""

    task_id: int
    epoch: int
    component: str
    instance_id: str
    container: int
    state: control_pb2.TaskState
    error: str
    plan: plan_pb2.PhysicalPlan | None
    plan_version: int
    acking: bool
    progress: Progress
    metrics: TaskMetrics
    link: DataLink
    in_capacity: TunedCapacity
    out_capacity: TunedCapacity
    readiness: Readiness | None
    time_use: TimeUse

    @property
    def emitter(self) -> Streams: ...

    @property
    def checkpoints(self) -> Checkpoints | None: ...


def status_of(task: Reported) -> control_pb2.TaskStatus:
    """The heartbeat; called by the control thread."""
    p, checkpoints, readiness = task.progress, task.checkpoints, task.readiness
    counted_at, emitted, executed, acked, failed = p.counts()
    return control_pb2.TaskStatus(
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
        # Never negative: unsigned on the wire, and frames that are wrong must not end this thread.
        in_queue_tuples=max(0, p.in_tuples),
        in_queue_bytes=max(0, p.in_bytes),
        out_queue_tuples=max(0, p.out_tuples),
        out_queue_bytes=max(0, p.out_bytes),
        pending=max(0, p.pending),
        loop_age_s=p.loop_age_s(),
        error=task.error,
        attempt=checkpoints.attempt if checkpoints is not None and checkpoints.restored else 0,
        committed=checkpoints.committed if checkpoints is not None else 0,
        dead_letters=p.dead_letters,
        lost_tuples=lost_tuples(task),
        waiting_for=readiness.waiting_for if readiness is not None else "",
        waiting_s=time.monotonic() - readiness.since if readiness is not None else 0.0,
        counted_at=counted_at,
        sent_frames=task.link.sent_frames,
        sent_tuples=task.link.total_sent_tuples,
        consumed_frames=task.link.total_consumed_frames,
        consumed_tuples=task.link.total_consumed_tuples,
        forgets_failed=p.forgets_failed,
        rewinds=p.rewinds,
    )


def lost_tuples(task: Reported) -> int:
    """Tuples that are lost. With acks or checkpoints, spouts send the link's losses again, so these do not count."""
    sent_again = task.acking or task.checkpoints is not None
    return task.progress.lost + (0 if sent_again else max(0, task.link.lost_tuples))


def traffic_of(link: DataLink, now: float) -> Traffic:
    """What has passed over a task's link so far."""
    return Traffic(
        now, link.sent_frames, link.total_sent_tuples, link.total_consumed_frames, link.total_consumed_tuples
    )


def report_of(task: Reported) -> control_pb2.MetricsReport:
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
    counters["__gateway-sent-tuples-count", ""] = link.total_sent_tuples
    counters["__gateway-consumed-packets-count", ""] = link.total_consumed_frames
    counters["__gateway-consumed-tuples-count", ""] = link.total_consumed_tuples
    counters["__gateway-sent-messages-count", ""] = link.all_frames_sent
    counters["__gateway-received-messages-count", ""] = link.all_frames_received
    now = time.monotonic()
    metrics.gauge_traffic(traffic_of(link, now))
    for source, slowest in list(metrics.slowest.items()):
        gauge("__execute-max-ns", source, slowest.at(now))
    busy, blocked, idle = task.time_use.totals(time.monotonic_ns())
    metrics.count_to("__busy-time-ns", "", busy)
    metrics.count_to("__blocked-time-ns", "", blocked)
    metrics.count_to("__idle-time-ns", "", idle)
    counters["__gateway-lost-tuples", ""] = link.lost_tuples
    counters["__gateway-link-gaps", ""] = link.gaps
    counters["__gateway-stale-frames", ""] = link.stale_frames
    if task.plan is not None:
        for stream in list(task.emitter.streams.values()):
            counters["__emit-count", stream.name] = stream.emitted
    if task.checkpoints is not None:
        gauge("__stateful_gateway_size", "", task.checkpoints.held_bytes())
    metrics.sample_process()
    report = control_pb2.MetricsReport(
        process=task.instance_id,
        task_id=task.task_id,
        component=task.component,
        container=task.container,
        epoch=task.epoch,
        pid=os.getpid(),
        loop_age_s=p.loop_age_s(),
        state=task.state,
        not_ready=task.readiness is not None,
    )
    metrics.fill(report)
    return report


def exception_report(
    task: Reported, kind: str, message: str, traceback: str, startup: bool = False, out_of_memory: bool = False
) -> control_pb2.ExceptionReport:
    """The report of an exception to the executor; `kind` is its type."""
    now = time.time()
    return control_pb2.ExceptionReport(
        process=task.instance_id,
        task_id=task.task_id,
        component=task.component,
        instance_id=task.instance_id,
        container=task.container,
        type=kind,
        message=message[:4096],
        traceback=traceback[-65536:],
        first_at=now,
        last_at=now,
        count=1,
        startup=startup,
        out_of_memory=out_of_memory,
    )
