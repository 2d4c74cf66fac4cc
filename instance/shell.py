"""One instance process from its arguments to its exit code."""

from __future__ import annotations

import faulthandler
import gc
import logging
import resource
import signal
import sys
import threading
from typing import Any

import zmq

from heronpy.api.user_code import load_class, prepare
from heronpy.common import exit_codes
from heronpy.common.errors import HeronError
from heronpy.common.ids import instance_id
from heronpy.common.logs import setup
from heronpy.common.settings import settings_for
from heronpy.proto import control_pb2 as control
from heronpy.proto import topology_pb2
from heronpy.statemgr import open_state_of, paths

from .async_loop import AsyncBoltTask
from .bolt_loop import BoltTask
from .routing import components_of
from .spout_loop import SpoutTask
from .task import StopRequested, Task, UserError

log = logging.getLogger("heron.instance")

#: Collections of the youngest generation are rarer: tuples die young and are not tracked anyway.
GC_THRESHOLDS = (50_000, 20, 50)
#: How long the end of the process waits for ZeroMQ.
EXIT_LINGER_S = 1.0


def run(launch: Any, container: int, task_id: int, epoch: int) -> int:
    """Run one task until it is stopped; returns the exit code of the process."""
    topology, component = _own_component(launch, task_id)
    settings = settings_for(launch, "instance", component)
    if settings.memory_limit_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (settings.memory_limit_bytes,) * 2)
    metrics_s = settings_for(launch, "metrics").export_interval_s
    part = components_of(topology)[component]
    setup(instance_id(container, component, task_id), settings_for(launch, "logging").level)
    kind, problem = _task_class(part, launch)
    task = kind(launch, settings, metrics_s, container, task_id, epoch)
    task.connect(topology, component, settings_for(launch, "stmgr"))
    _install_signals(task)
    log.info("task %d of %s, epoch %d, starts", task_id, component, epoch)
    try:
        return _startup_failed(task, problem) if problem is not None else _run_task(task)
    finally:
        _let_zeromq_finish(EXIT_LINGER_S)


def _let_zeromq_finish(timeout_s: float) -> None:
    """Wait until ZeroMQ has handed over what was sent: the process may end without asking it.

    User code may hold sockets of the same context open, so the wait has an end.
    """
    context: zmq.Context[Any] = zmq.Context.instance()
    ending = threading.Thread(target=context.term, name="zmq-term", daemon=True)
    ending.start()
    ending.join(timeout_s)


def _run_task(task: Task) -> int:
    plan = task.wait_for_plan()
    if plan is None:
        log.info("stopped before the plan came%s", f": {task.error}" if task.error else "")
        task.control.stop(1.0)
        task.link.close()
        return exit_codes.FENCED if task.error else exit_codes.OK
    code = int(exit_codes.OK)
    try:
        try:
            task.build(plan)
            task.bind_emit()
        except UserError as error:
            return _startup_failed(task, error.__cause__ or error)
        except Exception as error:
            return _startup_failed(task, error)
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        task.run_loop()
    except StopRequested:
        pass
    except (UserError, HeronError) as error:
        task.report_exception(error.__cause__ or error, startup=False)
        code = exit_codes.USER_EXCEPTION
    if task.error:
        log.error("refused: %s", task.error)
        code = exit_codes.FENCED
    task.user.close()
    task.leave()
    log.info("task ends with %s", exit_codes.describe(code))
    return code


def _startup_failed(task: Task, error: BaseException) -> int:
    """User code cannot start: say so once, with the whole traceback; a restart would not help."""
    task.error = f"{type(error).__name__}: {error}"
    task.state = control.TASK_FAILED
    task.report_exception(error, startup=True)
    task.control.notify()
    task.control.stop(2.0)
    task.link.close()
    return exit_codes.STARTUP_FAILURE


def _own_component(launch: Any, task_id: int) -> tuple[topology_pb2.Topology, str]:
    """The topology, and the component that the packing plan gives to this task."""
    from heronpy.proto import plan_pb2

    state = open_state_of(launch)
    try:
        found = state.get(paths.topology(launch.topology))
        packed = state.get(paths.packing_plan(launch.topology))
    finally:
        state.close()
    if found is None or packed is None:
        raise HeronError(f"topology {launch.topology} has no plan in the state manager; it was killed")
    topology = topology_pb2.Topology.FromString(found[0])
    for container in plan_pb2.PackingPlan.FromString(packed[0]).containers:
        for instance in container.instances:
            if instance.task_id == task_id:
                return topology, instance.component
    raise HeronError(f"task {task_id} is not in the packing plan of topology {launch.topology}")


def _task_class(part: Any, launch: Any) -> tuple[type[Task], BaseException | None]:
    """The loop for a component; loads the user's class to see whether it is asynchronous."""
    spout = isinstance(part, topology_pb2.Spout)
    try:
        prepare(launch)
        cls = None if spout else load_class(part.comp.class_name, launch)
    except Exception as error:
        return (SpoutTask if spout else BoltTask), error
    if spout:
        return SpoutTask, None
    return (AsyncBoltTask if getattr(cls, "is_async", False) else BoltTask), None


def _install_signals(task: Task) -> None:
    """SIGTERM asks the loop to stop; SIGUSR1 dumps all stacks to the log."""

    def stop(signum: int, frame: Any) -> None:
        task.control.deliver("stop_task", control.StopTask(reason=signal.Signals(signum).name))

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    # Writes to the pipe directly, so it works while user code holds the interpreter.
    faulthandler.unregister(signal.SIGUSR1)
    faulthandler.register(signal.SIGUSR1, file=sys.__stderr__ or 2, all_threads=True)
    faulthandler.enable(file=sys.__stderr__ or 2)
