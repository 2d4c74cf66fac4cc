"""`heron activate`, `deactivate` and `restart`: each waits for its effect and says what it did."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from heronpy.cli import complete, exits
from heronpy.cli.metrics import check_component
from heronpy.cli.output import say
from heronpy.cli.target import Common, Target, common_flags, target_argument, topology_argument

if TYPE_CHECKING:
    from heronpy.cli.session import Session
    from heronpy.proto import plan_pb2 as plans

ALL_CONTAINERS = -1
_timeout = click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    default=90.0,
    show_default=True,
    metavar="S",
    help="Seconds to wait until it is done.",
)


@click.command("activate")
@target_argument
@topology_argument
@_timeout
@common_flags
def activate_command(target: Target, topology: str, timeout_s: float, common: Common) -> None:
    """Let the spouts of a topology emit; returns when every spout does."""
    _set_state(target, topology, True, timeout_s, common)


@click.command("deactivate")
@target_argument
@topology_argument
@_timeout
@common_flags
def deactivate_command(target: Target, topology: str, timeout_s: float, common: Common) -> None:
    """Pause the spouts of a topology; what they have emitted is still processed."""
    _set_state(target, topology, False, timeout_s, common)


def _set_state(target: Target, topology: str, active: bool, timeout_s: float, common: Common) -> None:
    from heronpy.cli.session import Session
    from heronpy.proto import control_pb2 as control

    Session(target, common).ask(topology, control.SetState(active=active), timeout_s)
    say(f"Successfully {'activated' if active else 'deactivated'} topology '{topology}'")


@click.command("restart", context_settings={"ignore_unknown_options": True})
@target_argument
@topology_argument
@click.argument("what", required=False, metavar="[CONTAINER|COMPONENT|INSTANCE]",
                shell_complete=complete.restartable)  # fmt: skip
@click.option("--task", type=click.IntRange(min=1), metavar="ID", help="Restart the task with this id only.",
              shell_complete=complete.tasks)  # fmt: skip
@click.option("--component", metavar="NAME", help="Restart all tasks of this component only.",
              shell_complete=complete.components)  # fmt: skip
@_timeout
@common_flags
def restart_command(
    target: Target,
    topology: str,
    what: str | None,
    task: int | None,
    component: str | None,
    timeout_s: float,
    common: Common,
) -> None:
    """Restart a topology, one container (its number), all tasks of a component (its name) or one task (its id).

    -1 stands for all containers, as no argument does; container 0 holds the topology master. The tasks of a
    component restart at once, and their stream managers keep what was on its way to them.
    """
    if sum(one is not None for one in (what, task, component)) > 1:
        raise click.UsageError("name a container, component or instance, or give --task or --component, not two")
    from heronpy.cli.session import Session
    from heronpy.proto import control_pb2 as control

    session = Session(target, common)
    record = session.find(topology)
    if task is not None:
        _check_task(session, topology, task)
    if component is not None:
        check_component(session, topology, component)
    container, task_id = ALL_CONTAINERS, task or 0
    if what is not None:
        container, task_id, component = _target_of(session, topology, what)
    if session.tmaster_location(topology) is None and container >= 0:
        say(_by_scheduler(session, record, container, timeout_s))
        return
    request = control.RestartTarget(container=container, task_id=task_id, component=component or "")
    with session.tmaster(topology) as client:
        answer = client.call(request, timeout_s)
    what = f" ({answer.text.removeprefix('restarted ')})" if answer is not None and answer.text else ""
    say(f"Successfully restarted topology '{topology}'{what}")


def _by_scheduler(session: Session, record: plans.ExecutionState, container: int, timeout_s: float) -> str:
    """Without a topology master a container is restarted by the scheduler."""
    from heronpy.net.rpc import RpcClient
    from heronpy.proto import control_pb2 as control

    location = session.scheduler_location(record.topology)
    if location is None:
        raise exits.Failure(
            f"nothing of topology '{record.topology}' runs any more;"
            f" run 'heron kill {session.target} {record.topology}' and submit it again"
        )
    with RpcClient(location.endpoint, peer=f"the scheduler of '{record.topology}'") as client:
        client.call(control.RestartContainer(container=container), timeout_s)
    return f"The topology master was not running; its scheduler restarts container {container}"


def _check_task(session: Session, topology: str, task: int) -> None:
    tasks = {item.task_id for container in session.packing_plan(topology).containers for item in container.instances}
    if task not in tasks:
        raise exits.Failure(
            f"topology '{topology}' has no task {task}; see 'heron plan {session.target} {topology} physical'",
            exits.USAGE,
        )


def _target_of(session: Session, topology: str, what: str) -> tuple[int, int, str | None]:
    """(container, task, component) of a container's number, an instance's id or a component's name."""
    from heronpy.common.ids import instance_id

    if re.fullmatch(r"-1|\d{1,9}", what):
        number = int(what)
        known = [container.id for container in session.packing_plan(topology).containers]
        if number > 0 and number not in known:
            raise exits.Failure(
                f"topology '{topology}' has no container {number}; it has 0 to {max(known, default=0)}", exits.USAGE
            )
        return number, 0, None
    placed = [
        (container.id, instance)
        for container in session.packing_plan(topology).containers
        for instance in container.instances
    ]
    names = {instance_id(place, one.component, one.task_id): one.task_id for place, one in placed}
    if what in names:
        return ALL_CONTAINERS, names[what], None
    components = {one.component for _, one in placed}
    if what not in components:
        hint = exits.nearest(what, {*names, *components}, f"; see 'heron plan {session.target} {topology} physical'")
        raise exits.Failure(
            f"topology '{topology}' has no container, component or instance '{what}'{hint}", exits.USAGE
        )
    return ALL_CONTAINERS, 0, what
