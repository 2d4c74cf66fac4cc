"""From a task's connection and registration to the first plan that it may join."""

from __future__ import annotations

import os
import select
import time
from functools import partial
from typing import TYPE_CHECKING

from heronpy.proto import control_pb2, plan_pb2

from .attempt import region_of
from .control import ControlThread
from .link import DataLink
from .reports import count_link, count_loop, report_of, status_of

if TYPE_CHECKING:
    from .task import Task

#: How often a waiting task reports that it is not hung.
_WAIT_S = 1.0
#: The longest pause between heartbeats of a task that does nothing.
SILENCE_MAX_S = 10.0
#: The same between its metrics, while nothing in them moves; a third at most of what its executor takes for a hang.
QUIET_MAX_S = 20.0


def connect(task: Task, metrics_s: float) -> None:
    """Start the control thread, which registers the task, and make its link to the stream manager.

    Metrics are reported every `metrics_s` seconds.
    """
    sockets, container = task.launch.sockets_dir, task.name.container
    silence_max_s = _silence_max_s(task)
    task.control = ControlThread(
        register=control_pb2.RegisterInstance(
            task_id=task.name.task_id,
            epoch=task.name.epoch,
            pid=os.getpid(),
            instance_id=task.name.instance_id,
            component=task.name.component,
        ),
        stmgr_endpoint=f"ipc://{sockets}/stmgr-{container}.control",
        metrics_endpoint=f"ipc://{sockets}/executor-{container}.metrics",
        status=lambda: status_of(task.name, task.standing, task.progress, task.link, task.checkpoints),
        report=partial(_report_of, task),
        heartbeat_s=min(task.settings.heartbeat_interval_s, silence_max_s),
        metrics_s=min(metrics_s, silence_max_s),
        silence_max_s=silence_max_s,
        on_plan=task.attempt.heard,
        look=task.look,
        quiet=lambda: not task.metrics.moved,
        quiet_max_s=min(QUIET_MAX_S, task.settings.hang_timeout_s / 3 or QUIET_MAX_S),
    )
    task.link = DataLink(
        task.name.task_id,
        f"t:{task.name.task_id}:{task.name.epoch}".encode(),
        f"ipc://{sockets}/stmgr-{container}.data",
        task.stmgr.frame_max_bytes,
        task.control.wake_fd,
    )
    task.control.start()


def _report_of(task: Task) -> control_pb2.MetricsReport:
    """All metrics of a task; called by the control thread."""
    metrics, now = task.metrics, time.monotonic()
    count_loop(metrics, task.progress, task.time_use, now)
    count_link(metrics, task.link, now)
    metrics.gauge("__gateway-in-stream-queue-expected-capacity", "", task.in_capacity.current)
    metrics.gauge("__gateway-out-stream-queue-expected-capacity", "", task.out_capacity.current)
    if task.plan is not None:
        for stream in list(task.emitter.streams.values()):
            metrics.counters["__emit-count", stream.name] = stream.emitted
    if task.checkpoints is not None:
        metrics.gauge("__stateful_gateway_size", "", task.checkpoints.held_bytes())
    report = report_of(task.name, task.standing, task.progress, metrics)
    if task.plan is not None:
        task.fill(report)
    return report


def _silence_max_s(task: Task) -> float:
    """Of a task that does nothing; it must not be taken for dead."""
    limits = [SILENCE_MAX_S, task.stmgr.instance_lost_s / 3]
    if task.settings.hang_timeout_s:
        limits.append(task.settings.hang_timeout_s / 3)
    return float(min(limits))


def wait_for_plan(task: Task) -> plan_pb2.PhysicalPlan | None:
    """Wait until registered and given a plan that holds this task; None when asked to stop."""
    while not task.stopping:
        select.select([task.control.wake_fd], [], [], _WAIT_S)
        task.progress.turned_at = time.monotonic()
        task.serve_inbox()
        plan = task.offered
        # The plan may come before the answer to the registration, and without a link nothing can be sent.
        if (
            not task.stopping
            and plan is not None
            and task.link.epoch
            and may_join(plan, task.name.task_id, task.name.component)
        ):
            return plan
    return None


def may_join(plan: plan_pb2.PhysicalPlan, task_id: int, component: str) -> bool:
    """Whether a plan holds this task; a region that has started without it will start again."""
    region = region_of(plan, component)
    started = region is not None and region.started
    return not started and any(record.task_id == task_id for record in plan.instances)
