"""Changes the parallelism, the containers or the sizes of a running topology.

The new packing plan is computed here from the current one and sent with the current version, so the later of two
concurrent updates is refused.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from heronpy.clusters import update_outcome
from heronpy.clusters.errors import ClusterError, RequestError
from heronpy.clusters.room import check_room
from heronpy.clusters.session import Session
from heronpy.clusters.target import caller
from heronpy.clusters.update_outcome import moves
from heronpy.common.errors import ConfigError, HeronError, TopologyError
from heronpy.common.nearest import suggestion
from heronpy.common.setting_types import CheckpointSettings, PackingSettings
from heronpy.common.settings import settings_for
from heronpy.common.topology_keys import (
    TOPOLOGY_COMPONENT_CPU,
    TOPOLOGY_COMPONENT_PARALLELISM,
    TOPOLOGY_COMPONENT_RAM,
    TOPOLOGY_STMGRS,
)
from heronpy.common.units import MB, parse_bytes
from heronpy.packing import repack, resize
from heronpy.plan.component_config import reliability_mode, runtime_problem, set_key, split_setting
from heronpy.plan.logical import LogicalPlan
from heronpy.plan.validation import key_group_problems, validate
from heronpy.proto import components_of, control_pb2, plan_pb2, topology_pb2

#: Extra time for the answer: the scheduler enforces the timeout, and then answers with the unfinished steps.
ANSWER_S = 5.0


@dataclass(slots=True)
class Scaled:
    """The changes that an update makes, as instance ids."""

    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    #: Tasks that move to another container, as `old instance id -> new instance id`.
    moved: list[str] = field(default_factory=list)
    #: Components whose tasks stay in their containers and get new sizes.
    resized: list[str] = field(default_factory=list)
    #: Tuples that were queued in removed tasks; None if unknown, because the topology master was replaced.
    discarded: int | None = 0

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.moved or self.resized)


def differences(old: plan_pb2.PackingPlan, new: plan_pb2.PackingPlan) -> Scaled:
    """The changes from one plan to another."""
    before, after = moves(old), moves(new)
    return Scaled(
        [after[task] for task in sorted(after.keys() - before.keys())],
        [before[task] for task in sorted(before.keys() - after.keys())],
        moved_tasks(old, new),
        _resized(old, new),
    )


def _resized(old: plan_pb2.PackingPlan, new: plan_pb2.PackingPlan) -> list[str]:
    """Components whose sizes differ between two plans; empty if tasks move, because sizes depend on the container."""
    if moves(old) != moves(new):
        return []
    before, after = (
        {
            (task.task_id, task.component): (task.memory_limit_bytes, task.resource.ram_bytes, task.resource.cpu)
            for container in plan.containers
            for task in container.instances
        }
        for plan in (old, new)
    )
    return sorted({component for (task, component), size in after.items() if size != before[task, component]})


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
    """Change from one plan to another, as computed by `replan`.

    `say` gets messages about a lost topology master, and about containers that outgrow their resources (see
    `check_room`). If only sizes change, such containers are replaced one by one, each when its successor is ready.
    """
    resized = _resized(old, new)
    if moves(old) == moves(new) and not resized:
        return Scaled()
    session.check_changes(name)
    told = check_room(session, name, topology, old, new)
    deadline = time.monotonic() + timeout_s
    request = control_pb2.UpdateTopology(
        topology=topology, packing_plan=new, expected_version=old.version, drain_timeout_s=drain_timeout_s
    )
    reply = update_outcome.ask(session, name, request, old, timeout_s, say)
    for number, text in told.items():
        if resized and number:
            _renew(session, name, number, old.version + 2, deadline)
        else:
            say(text)
    if reply is None:
        found = differences(old, new)
        found.discarded = None
        return found
    places = {**moves(old), **moves(new)}
    added, removed = ([places.get(task, f"task {task}") for task in sorted(t)] for t in (reply.added, reply.removed))
    return Scaled(added, removed, moved_tasks(old, new), resized, reply.discarded_tuples)


def renew(
    session: Session,
    name: str,
    topology: topology_pb2.Topology,
    old: plan_pb2.PackingPlan,
    new: plan_pb2.PackingPlan,
    timeout_s: float,
) -> None:
    """Replace the containers that outgrew their resources, after an update that changed only sizes."""
    deadline = time.monotonic() + timeout_s
    for number in check_room(session, name, topology, old, new):
        if number:
            _renew(session, name, number, new.version, deadline)


def _renew(session: Session, name: str, number: int, version: int, deadline: float) -> None:
    """Replace a container with one of the new size; a ClusterError names the command that retries this step."""
    left_s = max(deadline - time.monotonic(), 1.0)
    try:
        request = control_pb2.RestartContainer(
            container=number, standing_by=True, plan_version=version, wait_s=left_s, by=caller()
        )
        session.ask_scheduler(name, request, left_s + ANSWER_S)
    except HeronError as error:
        raise ClusterError(
            f"the tasks have their new sizes, but container {number} keeps the resources that the engine gave it:"
            f" {error}; to replace the container: heron restart {session.target} {name} {number} --force"
        ) from error


def check_runtime_config(topology: topology_pb2.Topology, texts: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """Component, key and value of each `[component:]key:value`; RequestError if one cannot be set at run time."""
    components = list(components_of(topology))
    changes = [split_setting(text, components) for text in texts]
    for component, key, value in changes:
        problem = runtime_problem(topology, component, key, value)
        if problem is not None:
            raise RequestError(problem)
    return changes


def moved_tasks(old: plan_pb2.PackingPlan, new: plan_pb2.PackingPlan) -> list[str]:
    """Tasks that move to another container, as 'old instance id -> new instance id'."""
    before, after = moves(old), moves(new)
    return [
        f"{before[task]} -> {after[task]}" for task in sorted(after) if before.get(task, after[task]) != after[task]
    ]


def replan(
    session: Session,
    name: str,
    old: plan_pb2.PackingPlan,
    parallelism: tuple[str, ...],
    containers: int | None,
    ram: tuple[str, ...] = (),
    cpu: tuple[str, ...] = (),
) -> tuple[topology_pb2.Topology, plan_pb2.PackingPlan]:
    """The requested topology and packing plan; raises TopologyError if they are impossible.

    If only sizes change, all tasks stay in their containers.
    """
    topology = session.topology(name)
    parts = components_of(topology)
    for component, count in parse_parallelism(parallelism, list(parts)).items():
        set_key(parts[component].comp.config, TOPOLOGY_COMPONENT_PARALLELISM, str(count))
    for key, texts in ((TOPOLOGY_COMPONENT_RAM, ram), (TOPOLOGY_COMPONENT_CPU, cpu)):
        for component, size in parse_sizes(texts, list(parts), key).items():
            set_key(parts[component].comp.config, key, size)
    if containers is not None:
        set_key(topology.topology_config, TOPOLOGY_STMGRS, str(containers))
    logical = LogicalPlan.from_topology(topology)
    validate(logical)
    launch = session.settings_of(session.find(name))
    if reliability_mode(topology) == "EFFECTIVELY_ONCE":
        found = key_group_problems(logical, settings_for(launch, CheckpointSettings).key_groups)
        if found:
            raise TopologyError("\n".join(found))
    packing = settings_for(launch, PackingSettings)
    if not parallelism and containers is None:
        return topology, resize(old, topology, packing)
    return topology, repack(old, topology, packing, containers)


def parse_parallelism(texts: tuple[str, ...], components: list[str]) -> dict[str, int]:
    """Parse `name:N` arguments; return a map from component to number of tasks."""
    form = "NAME:N with N of 1 or more; for example 'count:4'"
    found = _by_component(texts, components, lambda text: bool(re.fullmatch("0*[1-9][0-9]{0,8}", text)), form)
    return {component: int(count) for component, count in found.items()}


def parse_sizes(texts: tuple[str, ...], components: list[str], key: str) -> dict[str, str]:
    """Parse `name:256MB` or `name:0.5` arguments; return a map from component to size (0: as submitted)."""
    read: Callable[[str], float] = float
    least, most, form = 0.001, 4096.0, "NAME:CORES with 0.001 to 4096 cores; for example 'count:0.5'"
    if key == TOPOLOGY_COMPONENT_RAM:
        read, least, most, form = parse_bytes, MB, 1 << 50, "NAME:SIZE with 1MB or more; for example 'count:256MB'"

    def fits(text: str) -> bool:
        try:
            return read(text) == 0 or least <= read(text) <= most
        except (ConfigError, ValueError):
            return False

    return _by_component(texts, components, fits, form)


def _by_component(
    texts: tuple[str, ...], components: list[str], fits: Callable[[str], bool], form: str
) -> dict[str, str]:
    wanted: dict[str, str] = {}
    for text in texts:
        component, _, value = text.rpartition(":")
        if not component or not fits(value):
            raise RequestError(f"'{text}' is not {form}")
        if component not in components:
            hint = suggestion(component, components, f"; it has {', '.join(components)}")
            raise RequestError(f"the topology has no component '{component}'{hint}")
        if wanted.setdefault(component, value) != value:
            raise RequestError(f"component '{component}' is given both {wanted[component]} and {value}; give one value")
    return wanted
