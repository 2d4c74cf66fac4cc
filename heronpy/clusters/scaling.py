"""Changes the parallelism or the containers of a running topology.

The new packing plan is computed here from the current one and sent with the version it came from,
so of two concurrent updates the later is refused instead of being half applied.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from heronpy.api.api_constants import TOPOLOGY_COMPONENT_PARALLELISM, TOPOLOGY_STMGRS
from heronpy.clusters import update_outcome
from heronpy.clusters.errors import RequestError
from heronpy.clusters.room import check_room
from heronpy.clusters.session import Session
from heronpy.clusters.update_outcome import moves
from heronpy.common.errors import TopologyError
from heronpy.common.nearest import suggestion
from heronpy.common.setting_types import CheckpointSettings, PackingSettings
from heronpy.common.settings import settings_for
from heronpy.packing import repack
from heronpy.plan.component_config import reliability_mode, runtime_key_problem, set_key, split_setting
from heronpy.plan.logical import LogicalPlan
from heronpy.plan.validation import key_group_problems, validate
from heronpy.proto import components_of, control_pb2, plan_pb2, topology_pb2


@dataclass(slots=True)
class Scaled:
    """What an update changes or has changed, by instance id."""

    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    #: As `old instance id -> new instance id`.
    moved: list[str] = field(default_factory=list)
    #: Tuples that were queued in removed tasks; None: unknown, because the topology master was replaced meanwhile.
    discarded: int | None = 0

    def __bool__(self) -> bool:
        """Whether anything changes."""
        return bool(self.added or self.removed or self.moved)


def differences(old: plan_pb2.PackingPlan, new: plan_pb2.PackingPlan) -> Scaled:
    """What differs between two plans."""
    before, after = moves(old), moves(new)
    return Scaled(
        [after[task] for task in sorted(after.keys() - before.keys())],
        [before[task] for task in sorted(before.keys() - after.keys())],
        moved_tasks(old, new),
    )


def scale(
    session: Session,
    name: str,
    old: plan_pb2.PackingPlan,
    topology: topology_pb2.Topology,
    new: plan_pb2.PackingPlan,
    drain_timeout_s: float,
    timeout_s: float,
    say: Callable[[str], None],
) -> Scaled:
    """Go from one plan to another, as `replan` has computed it.

    `say` is told of a master that ends meanwhile, and of containers that outgrow their room; see `check_room`.
    """
    if moves(old) == moves(new):
        return Scaled()
    session.check_changes(name)
    outgrown = check_room(session, name, topology, old, new)
    request = control_pb2.UpdateTopology(
        topology=topology, packing_plan=new, expected_version=old.version, drain_timeout_s=drain_timeout_s
    )
    reply = update_outcome.ask(session, name, request, old, timeout_s, say)
    for text in outgrown:
        say(text)
    if reply is None:
        found = differences(old, new)
        found.discarded = None
        return found
    places = {**moves(old), **moves(new)}
    added, removed = ([places.get(task, f"task {task}") for task in sorted(t)] for t in (reply.added, reply.removed))
    return Scaled(added, removed, moved_tasks(old, new), reply.discarded_tuples)


def check_runtime_config(topology: topology_pb2.Topology, texts: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """(component, key, value) of each `[component:]key:value`; RequestError when one cannot be set at run time."""
    components = list(components_of(topology))
    changes = [split_setting(text, components) for text in texts]
    for _, key, value in changes:
        problem = runtime_key_problem(key, value)
        if problem is not None:
            raise RequestError(problem)
    return changes


def moved_tasks(old: plan_pb2.PackingPlan, new: plan_pb2.PackingPlan) -> list[str]:
    """Tasks that change their container, as 'old instance id -> new instance id'."""
    before, after = moves(old), moves(new)
    return [
        f"{before[task]} -> {after[task]}" for task in sorted(after) if before.get(task, after[task]) != after[task]
    ]


def replan(
    session: Session, name: str, old: plan_pb2.PackingPlan, parallelism: tuple[str, ...], containers: int | None
) -> tuple[topology_pb2.Topology, plan_pb2.PackingPlan]:
    """The topology and packing plan that the user asked for; TopologyError when they are impossible."""
    topology = session.topology(name)
    parts = components_of(topology)
    for component, count in parse_parallelism(parallelism, list(parts)).items():
        set_key(parts[component].comp.config, TOPOLOGY_COMPONENT_PARALLELISM, str(count))
    if containers is not None:
        set_key(topology.topology_config, TOPOLOGY_STMGRS, str(containers))
    logical = LogicalPlan.from_topology(topology)
    validate(logical)
    launch = session.settings_of(session.find(name))
    if reliability_mode(topology) == "EFFECTIVELY_ONCE":
        found = key_group_problems(logical, settings_for(launch, CheckpointSettings).key_groups)
        if found:
            raise TopologyError("\n".join(found))
    return topology, repack(old, topology, settings_for(launch, PackingSettings), containers)


def parse_parallelism(texts: tuple[str, ...], components: list[str]) -> dict[str, int]:
    """Component to number of tasks, from `name:N` words."""
    wanted: dict[str, int] = {}
    for text in texts:
        component, _, count = text.rpartition(":")
        if not component or not re.fullmatch(r"[0-9]{1,9}", count) or int(count) < 1:
            raise RequestError(f"'{text}' is not NAME:N with N of 1 or more; for example 'count:4'")
        if component not in components:
            hint = suggestion(component, components, f"; it has {', '.join(components)}")
            raise RequestError(f"the topology has no component '{component}'{hint}")
        if wanted.setdefault(component, int(count)) != int(count):
            raise RequestError(f"component '{component}' is given two parallelisms; give one")
    return wanted
