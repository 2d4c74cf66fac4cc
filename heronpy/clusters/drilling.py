"""Finds the processes of a topology on this machine for a drill, and signals them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import psutil

from heronpy.clusters.errors import ClusterError, RequestError
from heronpy.clusters.live_evidence import find_process
from heronpy.clusters.session import Session
from heronpy.clusters.takedown import leftovers
from heronpy.common.ids import executor_id
from heronpy.proto import control_pb2, plan_pb2

SCHEDULER, MASTER, STMGR = "scheduler", "master", "stmgr"


def find(session: Session, topology: str, what: str) -> dict[str, psutil.Process]:
    """Return live processes by name. `what` names a process or task, or a component or container (all its processes).

    Raises RequestError for an unknown name, or if the topology also runs on other machines, and ClusterError if one of
    the processes is not running.
    """
    record = session.find_begun(topology)
    engine = session.engine_of(topology)
    if engine:
        raise RequestError(
            f"topology '{topology}' runs on {engine}, and a drill signals only processes on this machine; end a"
            f" container there, or restart a container: heron restart {session.target} {topology} CONTAINER"
        )
    session.check_here(record, "its processes are")
    named = _named(session, record, what)
    living = {process.pid: process for process in leftovers(record.launch_file)}
    gone = [name for name, pid in named.items() if pid not in living]
    if gone or not named:
        raise ClusterError(f"{', '.join(gone) or what} is not running; see 'heron status {session.target} {topology}'")
    return {name: living[pid] for name, pid in named.items()}


def _named(session: Session, record: plan_pb2.ExecutionState, what: str) -> dict[str, int]:
    topology = record.topology
    if what == SCHEDULER:
        location = session.scheduler_location(topology)
        return {SCHEDULER: location.pid} if location is not None else {}
    status = session.status(topology)
    tasks = {task.instance_id for task in status.tasks if task.component == what}
    if tasks:
        return _running(status, lambda container, name: name in tasks)
    if what == STMGR:
        return _running(status, lambda container, name: name.startswith(f"{STMGR}-"))
    if what.isdecimal():
        found = _running(status, lambda container, name: container == int(what))
        if not found:
            known = ", ".join(str(one.container) for one in status.executors)
            raise RequestError(f"topology '{topology}' has no container {what}; it has {known}")
        return found
    process = find_process(topology, status, "tmaster" if what == MASTER else what)
    return {process.name: process.pid}


def _running(status: control_pb2.StatusReply, wanted: Callable[[int, str], bool]) -> dict[str, int]:
    """The requested processes by container and name, executors before their children."""
    found = {}
    for executor in status.executors:
        processes = [(executor_id(executor.container), executor.pid)]
        processes += [(one.name, one.pid) for one in executor.processes if one.state == control_pb2.PROC_RUNNING]
        found.update({name: pid for name, pid in processes if wanted(executor.container, name)})
    return found


def kill(processes: dict[str, psutil.Process]) -> None:
    """Send SIGKILL to all processes."""
    for process in processes.values():
        with suppress(psutil.NoSuchProcess):  # a child of a process that was killed just before
            process.kill()


def stop(processes: dict[str, psutil.Process], seconds: float) -> None:
    """Send SIGSTOP to each process, and SIGCONT after the given time or when this command is interrupted."""
    try:
        for process in processes.values():
            with suppress(psutil.NoSuchProcess):
                process.suspend()
        time.sleep(seconds)
    finally:
        for process in processes.values():
            with suppress(psutil.NoSuchProcess):  # its successor may have killed it
                process.resume()
