"""`POST /api/v1/.../actions/...`: the changes that the command line can make, made by the same code.

With `dry_run`, a request only reports its planned effect. With If-Match, a request is refused if the plan
has changed since the client read it. Only one change to a topology runs at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from heronpy.clusters.errors import RequestError
from heronpy.common.ids import parse_instance_id
from heronpy.common.setting_types import CheckpointSettings
from heronpy.common.settings import settings_for
from heronpy.common.units import counted, format_bytes, format_duration
from heronpy.plan.component_config import reliability_mode
from heronpy.proto import control_pb2, plan_pb2
from heronpy.tracker.calls import Call, Table
from heronpy.tracker.guard import Problem, Scope
from heronpy.tracker.reading import EFFECTIVELY_ONCE, TOPOLOGY
from heronpy.tracker.tracker import CHANGES_MAX
from heronpy.views.advice import ActionBody, ActionResult, Change

# The modules that make changes are imported by the first action: they are a fifth of the imports of a start.
if TYPE_CHECKING:
    from heronpy.clusters.scaling import Scaled
    from heronpy.clusters.session import Session

ACTIONS = TOPOLOGY + "/actions/"
TIMEOUT_S = 90.0
TIMEOUT_MAX_S = 3600.0
ANSWER_S = 10.0

table = Table()


@dataclass(frozen=True, slots=True)
class Order:
    """A requested change."""

    session: Session
    record: plan_pb2.ExecutionState
    body: ActionBody

    @property
    def name(self) -> str:
        return self.record.topology

    def timeout_s(self, default: float = TIMEOUT_S) -> float:
        """Return the request's time limit. Raises Problem if it is invalid."""
        wanted = self.body.timeout_s if self.body.timeout_s is not None else default
        if not 0.1 <= wanted <= TIMEOUT_MAX_S:
            raise Problem(400, "bad-request", f"timeout_s is {wanted:g}; it must be from 0.1 to {TIMEOUT_MAX_S:g}")
        return wanted


#: Actions that a job's manager would undo, and the verb of `heron job` to use instead.
INSTEAD = {
    "activate": "set {} run=running",
    "deactivate": "set {} run=paused",
    "update": "set {} KEY=VALUE",
    "kill": "stop {}",
}
#: One sentence about the performed or planned action, and its parts.
Done = tuple[str, list[str]]


async def _perform(call: Call, action: str, fields: frozenset[str], do: Callable[[Order], Done]) -> ActionResult:
    """Check the request, carry it out in a thread, and log the outcome."""
    body: ActionBody = call.body
    given = {
        name: value for name, value in msgspec.structs.asdict(body).items() if value is not None and value is not False
    }
    unused = sorted(given.keys() - fields - {"dry_run", "timeout_s"})
    if unused:
        raise Problem(400, "bad-request", f"{action} does not accept {unused[0]}", "leave the parameter out")
    watched, changing = call.watched, call.tracker.changing
    if not body.dry_run:
        if watched.record.topology_id in changing:
            text = f"topology '{watched.name}' is being changed by another request"
            raise Problem(409, "busy", text, "wait until that request has ended")
        if len(changing) >= CHANGES_MAX:
            raise Problem(503, "busy", f"{CHANGES_MAX} topologies are being changed now", "try again in a few seconds")
        changing.add(watched.record.topology_id)
    outcome = "was interrupted"
    try:
        version, text, changes = await asyncio.to_thread(_do, call, action, body, do)
        outcome = text
    except Exception as error:
        outcome = str(error) or type(error).__name__
        raise
    finally:
        if not body.dry_run:
            changing.discard(watched.record.topology_id)
            call.tracker.changed(call.asker, action, watched.place, outcome)
    return ActionResult(
        action=action, dry_run=body.dry_run, text=text, changes=[Change(text=one) for one in changes],
        plan_version=version if action != "kill" or body.dry_run else None,
    )  # fmt: skip


def _action(
    name: str, *fields: str, with_version: bool = False
) -> Callable[[Callable[[Order], Done]], Callable[[Order], Done]]:
    """Declare a function as an action with these body fields; the function's docstring is the route's summary."""

    def declare(do: Callable[[Order], Done]) -> Callable[[Order], Done]:
        async def answer(call: Call) -> ActionResult:
            if with_version and call.headers.get("if-match") is None:
                fix = "set it to the version in GET .../plan"
                raise Problem(428, "no-version", f"an {name} needs the header If-Match", fix)
            return await _perform(call, name, frozenset(fields), do)

        answer.__name__, answer.__doc__ = name, do.__doc__
        table.route("POST", ACTIONS + name, Scope.ALL, takes=ActionBody, returns=ActionResult)(answer)
        return do

    return declare


def _do(call: Call, action: str, body: ActionBody, do: Callable[[Order], Done]) -> tuple[int, str, list[str]]:
    """Perform the action; return the plan's version, the outcome as a sentence, and its details. Blocking."""
    with call.source.own_session() as session:
        order = Order(session, call.watched.record, body)
        if action in INSTEAD:
            session.refuse_job(order.name, INSTEAD[action].format(f"{session.target} {order.name}"))
        version = session.packing_plan(order.name).version
        wanted = call.headers.get("if-match", "*").strip().strip('"')
        if wanted not in ("*", str(version)):  # the client has read another plan
            raise Problem(
                412, "stale-plan", f"the plan of '{order.name}' has version {version} now, not {wanted[:40]}",
                "check what has changed, and repeat the request",
            )  # fmt: skip
        return version, *do(order)


def _set_state(order: Order, active: bool) -> Done:
    names = [spout.comp.name for spout in order.session.topology(order.name).spouts]
    plan = order.session.packing_plan(order.name)
    count = sum(task.component in names for container in plan.containers for task in container.instances)
    tasks = f"{counted(count, 'spout task')} of {', '.join(names)}"
    if order.body.dry_run:
        return f"would {'let' if active else 'pause'} {tasks}{' emit' if active else ''}", names
    order.session.ask(order.name, control_pb2.SetState(active=active), order.timeout_s())
    return f"{'activated' if active else 'deactivated'} topology '{order.name}': {tasks}", names


@_action("activate")
def _activate(order: Order) -> Done:
    """Activate the topology, so that its spouts emit."""
    return _set_state(order, True)


@_action("deactivate")
def _deactivate(order: Order) -> Done:
    """Deactivate the topology, so that its spouts pause."""
    return _set_state(order, False)


@_action("restart", "container", "task", "component")
def _restart(order: Order) -> Done:
    """Restart a `container`, a `task`, a `component`, or the whole topology."""
    from heronpy.clusters import restarting
    from heronpy.clusters.update_outcome import moves

    body = order.body
    if sum(one is not None for one in (body.container, body.task, body.component)) > 1:
        raise RequestError("name only one of container, task and component")
    what = str(body.container) if body.container is not None else None
    container, task, component = restarting.target_of(order.session, order.name, what, body.task, body.component)
    if order.body.dry_run:
        places = moves(order.session.packing_plan(order.name))
        if task:
            names = [places[task]]
        elif component:
            names = [name for name in places.values() if parse_instance_id(name)[1] == component]
        elif container >= 0:
            names = [name for name in places.values() if name.startswith(f"container_{container}_")]
        else:
            names = list(places.values())
        return f"would restart {counted(len(names), 'task')}", names
    return restarting.restart(order.session, order.name, what, body.task, body.component, order.timeout_s()), []


@_action("update", "parallelism", "settings", with_version=True)
def _update(order: Order) -> Done:
    """Change the `parallelism` of components, or `settings` that can change at run time; needs If-Match."""
    from heronpy.clusters import scaling
    from heronpy.clusters.room import check_room

    body, session = order.body, order.session
    if bool(body.parallelism) == bool(body.settings):
        raise RequestError("an update changes either parallelism or settings; give only one of the two")
    if body.settings:
        texts = tuple(f"{key}:{value}" for key, value in body.settings.items())
        changes = scaling.check_runtime_config(session.topology(order.name), texts)
        shown = [f"{component + ': ' if component else ''}{key} = {value}" for component, key, value in changes]
        if body.dry_run:
            return f"would set {counted(len(shown), 'setting')}", shown
        session.ask(order.name, control_pb2.RuntimeConfig(settings=list(texts)), order.timeout_s())
        return f"set {counted(len(shown), 'setting')} of topology '{order.name}'", shown
    old = session.packing_plan(order.name)
    wanted = tuple(f"{component}:{count}" for component, count in (body.parallelism or {}).items())
    topology, new = scaling.replan(session, order.name, old, wanted, None)
    if body.dry_run:
        text, changes_made = _scaled(("would add", "remove", "move"), scaling.differences(old, new))
        return text, [*changes_made, *check_room(session, order.name, topology, old, new).values()]
    said: list[str] = []
    done = scaling.scale(session, order.name, old, topology, new, 0.0, order.timeout_s(), said.append)
    text, changes_made = _scaled(("added", "removed", "moved"), done)
    return text, [*changes_made, *said]


def _scaled(verbs: tuple[str, str, str], done: Scaled) -> Done:
    if not done:
        return "nothing changes: the topology is as requested", []
    add, remove_, move = verbs
    counts = f"{add} {counted(len(done.added), 'task')}, {remove_} {len(done.removed)}, {move} {len(done.moved)}"
    lost = f"; {counted(done.discarded, 'tuple')} of removed tasks were discarded" if done.discarded else ""
    signs = (("+", done.added), ("-", done.removed), (">", done.moved))
    return counts + lost, [f"{sign} {name}" for sign, names in signs for name in names]


def _check_stateful(order: Order) -> None:
    mode = reliability_mode(order.session.topology(order.name))
    if mode != EFFECTIVELY_ONCE:
        raise RequestError(f"topology '{order.name}' is {mode} and has no checkpoints")


@_action("savepoint")
def _savepoint(order: Order) -> Done:
    """Take a savepoint and wait until it is complete."""
    _check_stateful(order)
    if order.body.dry_run:
        return f"would take a savepoint of topology '{order.name}'", []
    settings = settings_for(order.session.settings_of(order.record), CheckpointSettings)
    limit_s = settings.timeout_s + settings.savepoint_timeout_s + ANSWER_S
    request = control_pb2.TakeCheckpoint(savepoint=True)
    record = order.session.ask(order.name, request, order.timeout_s(min(limit_s, TIMEOUT_MAX_S))).record
    text = f"{format_bytes(record.total_bytes)} in {format_duration(record.duration_s)}, at {record.location}"
    return f"savepoint {record.checkpoint} is complete: {text}", []


@_action("restore", "checkpoint")
def _restore(order: Order) -> Done:
    """Go back to a `checkpoint`, by default the newest intact one."""
    from heronpy.clusters.rewinding import preview, rewind

    _check_stateful(order)
    number = order.body.checkpoint or 0
    if order.body.dry_run:
        start, follows = preview(order.session, order.name, number)
        return f"would go back to {f'checkpoint {start}' if start else 'empty state'}", follows
    return rewind(order.session, order.name, number, order.timeout_s()), []


@_action("kill")
def _kill(order: Order) -> Done:
    """Stop the topology and remove it; its logs and checkpoints are kept."""
    from heronpy.clusters.killing import remove
    from heronpy.clusters.takedown import limit_s
    from heronpy.clusters.takedown_outcome import unseen

    if order.body.dry_run:
        plan = order.session.packing_plan(order.name)
        tasks = sum(len(container.instances) for container in plan.containers)
        return (
            f"would stop {counted(tasks, 'task')} and remove topology '{order.name}'; logs and checkpoints are kept",
            [],
        )
    limit = min(limit_s(order.session, order.name), TIMEOUT_MAX_S)
    record, outcome, newest = remove(order.session, order.name, order.timeout_s(limit), order.record.topology_id)
    kept = [f"logs are kept in {record.working_dir}/log-files"]
    if newest:
        kept.append(f"the newest checkpoint is {newest}")
    if outcome.unseen_host:
        kept.append(unseen(order.name, outcome.unseen_host))
    elif not outcome.by_scheduler:
        kept.append(f"its scheduler was not running; {outcome.processes_killed} remaining processes were stopped")
    return f"killed topology '{order.name}'", kept
