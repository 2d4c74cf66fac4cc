"""`heron activate`, `deactivate` and `restart`: each waits for its effect and says what it did."""

from __future__ import annotations

import re

from heronpy.cli import exits
from heronpy.cli.change.update_outcome import moves
from heronpy.cli.cluster.session import Session
from heronpy.cli.cluster.target import Common, Target
from heronpy.cli.output import say
from heronpy.common.nearest import suggestion
from heronpy.proto import control_pb2, plan_pb2

ALL_CONTAINERS = -1


def set_state(target: Target, topology: str, active: bool, timeout_s: float, common: Common) -> None:
    """Let the spouts emit, or pause them; returns when all have done so."""
    Session(target, common).ask(topology, control_pb2.SetState(active=active), timeout_s)
    say(f"Successfully {'activated' if active else 'deactivated'} topology '{topology}'")


def restart(
    target: Target,
    topology: str,
    what: str | None,
    task: int | None,
    component: str | None,
    timeout_s: float,
    common: Common,
) -> None:
    """Restart what is named, through the topology master or, if there is none, the scheduler."""
    session = Session(target, common)
    record = session.find_begun(topology)
    if task is not None:
        _check_task(session, topology, task)
    session.check_component(topology, component)
    container, task_id = ALL_CONTAINERS, task or 0
    if what is not None:
        container, task_id, component = _target_of(session, topology, what)
    if session.tmaster_location(topology) is None and container >= 0:
        say(_by_scheduler(session, record, container, timeout_s))
        return
    request = control_pb2.RestartTarget(container=container, task_id=task_id, component=component or "")
    with session.tmaster(topology) as client:
        answer = client.call(request, timeout_s)
    what = f" ({answer.text.removeprefix('restarted ')})" if answer is not None and answer.text else ""
    say(f"Successfully restarted topology '{topology}'{what}")


def _by_scheduler(session: Session, record: plan_pb2.ExecutionState, container: int, timeout_s: float) -> str:
    """Without a topology master a container is restarted by the scheduler."""
    scheduler = session.scheduler(record.topology)
    if scheduler is None:
        raise session.under_way(record.topology) or exits.Failure(
            f"no process of topology '{record.topology}' is running;"
            f" run 'heron kill {session.target} {record.topology}' and submit it again"
        )
    with scheduler:
        scheduler.call(control_pb2.RestartContainer(container=container), timeout_s)
    return f"The topology master was not running; its scheduler restarts container {container}"


def _check_task(session: Session, topology: str, task: int) -> None:
    if task not in moves(session.packing_plan(topology)):
        raise exits.Failure(
            f"topology '{topology}' has no task {task}; see 'heron plan {session.target} {topology} physical'",
            exits.USAGE,
        )


def _target_of(session: Session, topology: str, what: str) -> tuple[int, int, str | None]:
    """(container, task, component) of a container's number, an instance's id or a component's name."""
    plan = session.packing_plan(topology)
    if re.fullmatch(r"-1|\d{1,9}", what):
        number, known = int(what), [container.id for container in plan.containers]
        if number > 0 and number not in known:
            raise exits.Failure(
                f"topology '{topology}' has no container {number}; it has 0 to {max(known, default=0)}", exits.USAGE
            )
        return number, 0, None
    names = {name: task for task, name in moves(plan).items()}
    if what in names:
        return ALL_CONTAINERS, names[what], None
    components = {instance.component for container in plan.containers for instance in container.instances}
    if what not in components:
        hint = suggestion(what, {*names, *components}, f"; see 'heron plan {session.target} {topology} physical'")
        raise exits.Failure(
            f"topology '{topology}' has no container, component or instance '{what}'{hint}", exits.USAGE
        )
    return ALL_CONTAINERS, 0, what
