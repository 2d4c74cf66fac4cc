"""The life of one instance process, from its arguments to its exit code."""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import select
import signal
import sys
import threading
import time
from functools import partial
from typing import Any

import zmq

from heronpy.api.bolt.bolt import takes_batches
from heronpy.api.component.component_spec import check_coroutines
from heronpy.api.user_code import load_class, prepare
from heronpy.common import exit_codes
from heronpy.common.errors import FencedError, GaveUpError, HeronError, RetryableError
from heronpy.common.logs import setup
from heronpy.common.setting_types import (
    InstanceSettings,
    LoggingSettings,
    MetricsSettings,
    StmgrSettings,
    TraceSettings,
)
from heronpy.common.settings import settings_for
from heronpy.plan.launch import LaunchSpec
from heronpy.procs import sampler
from heronpy.procs.exit_reason import ExitReason
from heronpy.procs.handed_plans import handed, plan_file, topology_file
from heronpy.proto import components_of, control_pb2, frame_pb2, plan_pb2, topology_pb2
from heronpy.task.name import TaskName

from .async_loop import AsyncBoltTask
from .async_spout import AsyncSpoutTask
from .batch_loop import BatchBoltTask
from .bolt_loop import BoltTask
from .checkpoints import Checkpoints, RestoreError, region_of
from .control import ControlThread
from .link import DataLink
from .memory import limit_address_space, release_reserve
from .progress import ReadyTimeoutError
from .reports import count_link, count_loop, report_of, status_of
from .snapshots import watch_forks
from .spout_loop import SpoutTask
from .task import StopRequested, Task, UserError
from .time_use import IDLE

log = logging.getLogger("heron.instance")

#: The youngest generation is collected less often, because most tuples are short-lived and not tracked anyway.
GC_THRESHOLDS = (50_000, 20, 50)
#: Longest poll interval of a task that waits for its plan, the start of its region or a newer attempt. At each poll it
#: shows that it does not hang.
WAIT_S = 1.0
#: Seconds that the end of the process waits for ZeroMQ.
EXIT_LINGER_S = 1.0
#: The longest pause in seconds between heartbeats of a task that does nothing.
SILENCE_MAX_S = 10.0
#: The longest pause between its metrics while they do not change; at most a third of the executor's hang timeout.
QUIET_MAX_S = 20.0


def connect(task: Task, metrics_s: float) -> None:
    """Start the control thread, which registers the task, and create its link to the stream manager.

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
    """Return all metrics of a task; called by the control thread."""
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
        if (keys := task.checkpoints.state.keys()) is not None:
            metrics.gauge("__state-keys", "", keys)
    report = report_of(task.name, task.standing, task.progress, metrics)
    if task.plan is not None:
        task.fill(report)
    return report


def _silence_max_s(task: Task) -> float:
    """Return for how many seconds an idle task may be silent without counting as dead."""
    limits = [SILENCE_MAX_S, task.stmgr.instance_lost_s / 3]
    if task.settings.hang_timeout_s:
        limits.append(task.settings.hang_timeout_s / 3)
    return float(min(limits))


def wait_for_plan(task: Task) -> plan_pb2.PhysicalPlan | None:
    """Wait until the task is registered and has a plan that contains it. Returns None if a stop is requested."""
    while not task.stopping:
        select.select([task.control.wake_fd], [], [], WAIT_S)
        task.progress.turned_at = time.monotonic()
        task.serve_inbox()
        plan = task.offered
        # The plan may arrive before the answer to the registration, and without a link nothing can be sent.
        if (
            not task.stopping
            and plan is not None
            and task.link.epoch
            and may_join(plan, task.name.task_id, task.name.component)
        ):
            return plan
    return None


def may_join(plan: plan_pb2.PhysicalPlan, task_id: int, component: str) -> bool:
    """Return whether a plan contains this task and its region has not started; a started region will start again."""
    region = region_of(plan, component)
    started = region is not None and region.started
    return not started and any(record.task_id == task_id for record in plan.instances)


def own_component(launch: LaunchSpec, container: int, task_id: int) -> tuple[topology_pb2.Topology, str]:
    """Return the topology, and the component that the packing plan assigns to this task.

    The executor has read both from the state manager and passes them on. Tasks do not connect to the state manager, so
    its load does not grow with the number of tasks, and its outages do not affect them.
    """
    try:
        topology = topology_pb2.Topology.FromString(handed(topology_file(launch.sockets_dir, container)))
        packing = plan_pb2.PackingPlan.FromString(handed(plan_file(launch.sockets_dir, container)))
    except OSError as error:
        raise RetryableError(
            f"the executor of container {container} has not delivered the topology:"
            f" {error.filename}: {error.strerror or error}"
        ) from None
    for one in packing.containers:
        for instance in one.instances:
            if instance.task_id == task_id:
                return topology, instance.component
    # The executor is behind the plan, or only an old plan could be read: both are temporary.
    raise RetryableError(f"task {task_id} is not in the packing plan of topology {launch.topology}")


def run(launch: LaunchSpec, container: int, task_id: int, epoch: int, after: ExitReason | None = None) -> int:
    """Run one task until it is stopped; return the exit code of the process."""
    topology, component = own_component(launch, container, task_id)
    name = TaskName(task_id, epoch, component, container)
    settings = settings_for(launch, InstanceSettings, component)
    limit_address_space(settings.memory_limit_bytes)
    setup(name.instance_id, settings_for(launch, LoggingSettings).level)
    kind, problem = _task_class(topology, components_of(topology)[component], launch)
    task = kind(launch, settings, settings_for(launch, StmgrSettings), name, settings_for(launch, TraceSettings).per_s)
    task.after = after
    connect(task, settings_for(launch, MetricsSettings).export_interval_s)
    signalled = _install_signals(task)
    watch_forks(task)
    log.info("task %d of %s, epoch %d, starts", task_id, component, epoch)
    try:
        code = _startup_failed(task, problem) if problem is not None else run_task(task)
        return exit_codes.TERMINATED if signalled and code == exit_codes.OK else code
    finally:
        _let_zeromq_finish(EXIT_LINGER_S)


def _let_zeromq_finish(timeout_s: float) -> None:
    """Wait until ZeroMQ has sent its messages, because the process may exit without closing ZeroMQ.

    User code may hold sockets of the same context open, so the wait is bounded.
    """
    context: zmq.Context[Any] = zmq.Context.instance()
    ending = threading.Thread(target=context.term, name="zmq-term", daemon=True)
    ending.start()
    ending.join(timeout_s)


def run_task(task: Task) -> int:
    plan = wait_for_plan(task)
    if plan is None:
        log.info("stopped before the plan arrived%s", f": {task.standing.error}" if task.standing.error else "")
        task.control.stop(1.0)
        task.link.close()
        return task.refused.exit_code if task.refused is not None else exit_codes.OK
    code = int(exit_codes.OK)
    try:
        try:
            task.build(plan)
            task.bind_emit()
        except RestoreError as error:
            return await_rewind(task, error.region, error.__cause__ or error)
        except UserError as error:
            return _startup_failed(task, error.__cause__ or error)
        except Exception as error:
            return _startup_failed(task, error)
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        if task.checkpoints is not None:
            _await_start(task, task.checkpoints)
        if not task.stopping:
            task.run_loop()
    except StopRequested:
        pass
    except (UserError, HeronError) as error:
        if isinstance(error.__cause__, ReadyTimeoutError):
            return _startup_failed(task, error.__cause__)
        if isinstance(error.__cause__, MemoryError):
            release_reserve()
        cause = error.__cause__ or error
        task.report_exception(cause, startup=isinstance(cause, GaveUpError))
        code = exit_code_of(cause)
    if task.refused is not None:
        log.error("refused: %s", task.refused.why)
        code = task.refused.exit_code
    task.user.close()
    task.leave()
    log.info("task ends with %s", exit_codes.describe(code))
    return code


def exit_code_of(error: BaseException) -> int:
    """Return the exit code of a task in which user code raised this exception."""
    if isinstance(error, GaveUpError):
        return int(exit_codes.GAVE_UP)
    # The target of a sink has reported that the sink was replaced; this is not an error of user code.
    return int(exit_codes.FENCED if isinstance(error, FencedError) else exit_codes.USER_EXCEPTION)


def _await_start(task: Task, checkpoints: Checkpoints) -> None:
    """Wait until every task of the region has restored its state."""
    checkpoints.restored = True
    task.set_state(control_pb2.TASK_RESTORED)
    while not checkpoints.started and not task.stopping:
        if task.control.inbox:
            task.serve_inbox()
            continue
        task.link.receive(task.take_frame)
        task.turn(time.monotonic())
        task.sleep(WAIT_S)
    checkpoints.release_early()


def await_rewind(task: Task, region: plan_pb2.RegionRecord, error: BaseException) -> int:
    """Report that the state cannot be restored, and wait: a plan with a newer attempt ends the process.

    Returns the exit code if the task is stopped instead.
    """
    text = str(error) if isinstance(error, HeronError) else f"{type(error).__name__}: {error}"
    log.error("checkpoint %d cannot be restored: %s", region.checkpoint, text)
    task.control.tell(
        control_pb2.RestoreFailed(
            task_id=task.name.task_id,
            epoch=task.name.epoch,
            attempt=region.attempt,
            checkpoint=region.checkpoint,
            error=text,
        )
    )
    task.standing.error = text
    task.standing.state = control_pb2.TASK_FAILED
    task.control.notify()
    # `Task.sleep` cannot be used here, because there is no emitter to count yet.
    task.progress.resting = True
    task.time_use.turn(IDLE, time.monotonic_ns())
    while not task.stopping:
        # Unread frames would end each wait immediately.
        task.link.receive(_ignore)
        if not task.control.inbox:
            task.link.wait(WAIT_S)
        task.serve_inbox()
    task.control.stop(1.0)
    task.link.close()
    return task.refused.exit_code if task.refused is not None else exit_codes.OK


def _ignore(frame: frame_pb2.Frame, size: int) -> None:
    """Ignore a frame: no task will process it, because the next process begins with another attempt."""


def _startup_failed(task: Task, error: BaseException) -> int:
    """Report once, with the full traceback, that user code cannot start; a restart would not help."""
    task.standing.error = f"{type(error).__name__}: {error}"
    task.standing.state = control_pb2.TASK_FAILED
    task.report_exception(error, startup=True)
    task.control.notify()
    task.control.stop(2.0)
    task.link.close()
    return exit_codes.STARTUP_FAILURE


def _task_class(
    topology: topology_pb2.Topology, part: topology_pb2.Spout | topology_pb2.Bolt, launch: LaunchSpec
) -> tuple[type[Task], BaseException | None]:
    """Return the task class for a component; load the user's class to check whether it is asynchronous."""
    plain: type[Task] = BoltTask
    concurrent: type[Task] = AsyncBoltTask
    if isinstance(part, topology_pb2.Spout):
        plain, concurrent = SpoutTask, AsyncSpoutTask
    try:
        prepare(launch)
        cls = load_class(part.comp.class_name, launch)
        check_coroutines(cls, isinstance(part, topology_pb2.Spout))
        if isinstance(part, topology_pb2.Bolt) and takes_batches(cls):
            return BatchBoltTask, None
    except Exception as error:
        return plain, error
    return (concurrent if getattr(cls, "is_async", False) else plain), None


def _install_signals(task: Task) -> list[int]:
    """Make SIGTERM ask the loop to stop, SIGUSR1 dump all stacks to the log, and SIGUSR2 sample them.

    Returns a list to which the signal that requests the stop will be added.
    """
    signalled: list[int] = []

    def stop(signum: int, frame: Any) -> None:
        signalled.append(signum)
        task.control.deliver(control_pb2.StopTask(reason=signal.Signals(signum).name))

    task.control.wake_at_signals()
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    # Both handlers write to the pipe directly, so they work while user code holds the interpreter.
    faulthandler.enable(file=sys.__stderr__ or 2)
    sampler.install(task.launch.sockets_dir, (task,))
    return signalled
