"""`heron update`: change the parallelism, the containers or the configuration of a running topology.

The new packing plan is computed here from the current one and sent with the version it came from,
so of two concurrent updates the later is refused instead of being half applied.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from heronpy.api.api_constants import TOPOLOGY_COMPONENT_PARALLELISM, TOPOLOGY_STMGRS
from heronpy.cli import exits
from heronpy.cli.change import update_outcome
from heronpy.cli.change.update_outcome import moves
from heronpy.cli.cluster.session import Session
from heronpy.cli.cluster.target import Common, Target
from heronpy.cli.output import print_json, say
from heronpy.cli.render import packing as render_packing
from heronpy.common.errors import TopologyError
from heronpy.common.nearest import suggestion
from heronpy.common.setting_types import CheckpointSettings, PackingSettings
from heronpy.common.settings import settings_for
from heronpy.common.units import counted
from heronpy.packing import repack
from heronpy.plan.component_config import reliability_mode, runtime_key_problem, set_key, split_setting
from heronpy.plan.logical import LogicalPlan
from heronpy.plan.validation import key_group_problems, validate
from heronpy.proto import components_of, control_pb2, plan_pb2, topology_pb2


@dataclass(frozen=True, slots=True)
class UpdateOptions:
    """The flags of `heron update`, under the same names."""

    parallelism: tuple[str, ...]
    container_number: int | None
    runtime_config: tuple[str, ...]
    drain_timeout_s: float | None
    timeout_s: float
    dry_run: bool
    dry_run_format: str
    as_json: bool


def update(target: Target, common: Common, topology: str, options: UpdateOptions) -> None:
    """Change the configuration, or parallelism and containers."""
    session = Session(target, common)
    session.find(topology)
    if options.runtime_config:
        _configure(session, topology, options)
    else:
        _scale(session, topology, options)


def _configure(session: Session, name: str, options: UpdateOptions) -> None:
    topology = session.topology(name)
    components = list(components_of(topology))
    changes = [split_setting(text, components) for text in options.runtime_config]
    for _, key, value in changes:
        problem = runtime_key_problem(key, value)
        if problem is not None:
            raise exits.Failure(problem, exits.USAGE)
    if not options.dry_run:
        session.ask(name, control_pb2.RuntimeConfig(settings=list(options.runtime_config)), options.timeout_s)
    if options.as_json:
        listed = [{"component": component, "key": key, "value": value} for component, key, value in changes]
        print_json({"topology": name, "applied": not options.dry_run, "runtime_config": listed})
        return
    for component, key, value in changes:
        where = f"component '{component}'" if component else "the topology"
        say(f"{'would set' if options.dry_run else 'set'} {key} of {where} to {value}")
    if not options.dry_run:
        say(f"Successfully updated topology '{name}'")


def _scale(session: Session, name: str, options: UpdateOptions) -> None:
    old = session.packing_plan(name)
    topology, new = replan(session, name, old, options.parallelism, options.container_number)
    if options.dry_run:
        _show_dry_run(name, old, new, "json" if options.as_json else options.dry_run_format)
        return
    if moves(old) == moves(new):
        _report(name, [], [], [], 0, options.as_json)
        return
    request = control_pb2.UpdateTopology(
        topology=topology,
        packing_plan=new,
        expected_version=old.version,
        drain_timeout_s=options.drain_timeout_s or 0.0,
    )
    reply = update_outcome.ask(session, name, request, old, options.timeout_s)
    before, after = moves(old), moves(new)
    places = {**before, **after}
    if reply is not None:
        changed: tuple[Iterable[int], Iterable[int]] = reply.added, reply.removed
    else:
        changed = after.keys() - before.keys(), before.keys() - after.keys()
    added, removed = ([places.get(task, f"task {task}") for task in sorted(tasks)] for tasks in changed)
    discarded = reply.discarded_tuples if reply is not None else None
    _report(name, added, removed, moved_tasks(old, new), discarded, options.as_json)


def _report(
    name: str, added: list[str], removed: list[str], moved: list[str], discarded: int | None, as_json: bool
) -> None:
    if as_json:
        changes = {"added": added, "removed": removed, "moved": moved}
        print_json({"topology": name, **changes, "discarded_tuples": discarded})
        return
    if not added and not removed and not moved:
        say(f"Topology '{name}' is already as requested; nothing changed")
        return
    _list_changes(added, removed, moved)
    if discarded is None and removed:
        say("  the topology master was replaced: its log says what was discarded with removed tasks")
    if discarded:
        say(f"  discarded {counted(discarded, 'tuple')} that were queued in removed tasks")
    counts = f"{counted(len(added), 'task')} added, {len(removed)} removed, {len(moved)} moved"
    say(f"Successfully updated topology '{name}': {counts}")


def _list_changes(added: list[str], removed: list[str], moved: list[str]) -> None:
    for sign, names in (("+", added), ("-", removed), (">", moved)):
        for instance in names:
            say(f"  {sign} {instance}")


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
    launch = session.launch_of(session.find(name))
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
            raise exits.Failure(f"'{text}' is not NAME:N with N of 1 or more; for example 'count:4'", exits.USAGE)
        if component not in components:
            hint = suggestion(component, components, f"; it has {', '.join(components)}")
            raise exits.Failure(f"the topology has no component '{component}'{hint}", exits.USAGE)
        if wanted.setdefault(component, int(count)) != int(count):
            raise exits.Failure(f"component '{component}' is given two parallelisms; give one", exits.USAGE)
    return wanted


def _show_dry_run(name: str, old: plan_pb2.PackingPlan, new: plan_pb2.PackingPlan, form: str) -> None:
    before, after = moves(old), moves(new)
    added = [after[task] for task in sorted(after.keys() - before.keys())]
    removed = [before[task] for task in sorted(before.keys() - after.keys())]
    moved = moved_tasks(old, new)
    if form == "json":
        print_json(
            {
                "topology": name,
                "added": added,
                "removed": removed,
                "moved": moved,
                "current_packing_plan": render_packing.as_json(old),
                "packing_plan": render_packing.as_json(new),
            }
        )
        return
    if form == "raw":
        say(str(new).rstrip())
        return
    say(f"Topology '{name}' would be changed as follows; nothing was changed.\n")
    _list_changes(added, removed, moved)
    if not added and not removed and not moved:
        say("  no task is added, removed or moved")
    say()
    render_packing.show(new, coloured=form == "colored_table")
