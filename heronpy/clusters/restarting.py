"""Restarts containers, components and tasks of a topology."""

from __future__ import annotations

import re

from heronpy.clusters.errors import ClusterError, RequestError
from heronpy.clusters.session import Session
from heronpy.clusters.target import caller
from heronpy.clusters.update_outcome import moves
from heronpy.common.ids import is_called
from heronpy.common.nearest import suggestion
from heronpy.common.units import listed
from heronpy.proto import control_pb2

ALL_CONTAINERS = -1
#: Extra time for the answer: the scheduler enforces the time limit, and then answers with the reason for the delay.
ANSWER_S = 5.0


def restart(
    session: Session,
    topology: str,
    what: str | None,
    task: int | None,
    component: str | None,
    timeout_s: float,
    force: bool = False,
) -> str:
    """Restart processes through the topology master or, if none runs, the scheduler; return a sentence on the result.

    `what` is a container's number, the name of a task or component, or None for the whole topology. With `force`, the
    scheduler also replaces an engine's containers whose end is unconfirmed; use this only if they have ended.
    """
    session.find_begun(topology)
    container, task_id, component = target_of(session, topology, what, task, component)
    if force:
        if task_id or component:
            raise RequestError("--force replaces containers; give a container's number, or no name to replace all")
        if not session.engine_of(topology):
            raise RequestError(
                f"topology '{topology}' runs on one machine, where the end of a container is never in doubt;"
                " leave out --force"
            )
        request = control_pb2.RestartContainer(container=container, force=True, wait_s=timeout_s, by=caller())
        return _restarted(topology, session.ask_scheduler(topology, request, timeout_s + ANSWER_S))
    if session.tmaster_location(topology) is None and container >= 0:
        return _by_scheduler(session, topology, container, timeout_s)
    part = control_pb2.RestartTarget(container=container, task_id=task_id, component=component or "")
    return _restarted(topology, session.ask(topology, part, timeout_s))


def _restarted(topology: str, answer: control_pb2.Ok) -> str:
    what = f" ({answer.text.removeprefix('restarted ')})" if answer.text else ""
    return f"Successfully restarted topology '{topology}'{what}"


def target_of(
    session: Session, topology: str, what: str | None, task: int | None, component: str | None
) -> tuple[int, int, str | None]:
    """Container, task and component of the part to restart; raises RequestError for an unknown name."""
    if task is not None:
        _check_task(session, topology, task)
    session.check_component(topology, component)
    return (ALL_CONTAINERS, task or 0, component) if what is None else _named(session, topology, what)


def _by_scheduler(session: Session, topology: str, container: int, timeout_s: float) -> str:
    """Restart a container through the scheduler, for a topology without a topology master."""
    if session.scheduler_location(topology) is None and not session.engine_of(topology):
        raise session.under_way(topology) or ClusterError(
            f"no process of topology '{topology}' is running;"
            f" run 'heron kill {session.target} {topology}' and submit it again"
        )
    request = control_pb2.RestartContainer(container=container, wait_s=timeout_s, by=caller())
    session.ask_scheduler(topology, request, timeout_s + ANSWER_S)
    return f"The topology master was not running; the scheduler restarts container {container}"


def _check_task(session: Session, topology: str, task: int) -> None:
    if task not in moves(session.packing_plan(topology)):
        raise RequestError(
            f"topology '{topology}' has no task {task}; see 'heron plan {session.target} {topology} physical'"
        )


def _named(session: Session, topology: str, what: str) -> tuple[int, int, str | None]:
    """Container, task and component for a container's number, or for the name of a task or component."""
    plan = session.packing_plan(topology)
    if re.fullmatch(r"-1|\d{1,9}", what):
        number, known = int(what), [container.id for container in plan.containers]
        if number > 0 and number not in known:
            raise RequestError(f"topology '{topology}' has no container {number}; the last is {max(known, default=0)}")
        return number, 0, None
    names = {name: task for task, name in moves(plan).items()}
    components = {instance.component for container in plan.containers for instance in container.instances}
    meant = [name for name in names if is_called(name, what)]
    if len(meant) + (what in components) > 1:
        raise RequestError(
            f"topology '{topology}' has {'a component and ' if what in components else ''}{listed(meant)} with the name"
            f" '{what}'; select one with --task or --component"
        )
    if meant:
        return ALL_CONTAINERS, names[meant[0]], None
    if what not in components:
        hint = suggestion(what, {*names, *components}, f"; see 'heron plan {session.target} {topology} physical'")
        raise RequestError(f"topology '{topology}' has no container, component or instance '{what}'{hint}")
    return ALL_CONTAINERS, 0, what
