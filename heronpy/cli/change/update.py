"""`heron update`: change the parallelism, containers, task sizes or configuration of a running topology."""

from __future__ import annotations

from dataclasses import dataclass

from heronpy.cli.output import print_json, say, warn
from heronpy.cli.render.plans import show_packing
from heronpy.clusters import update_outcome
from heronpy.clusters.room import check_room
from heronpy.clusters.scaling import Scaled, check_runtime_config, differences, replan, scale
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common.units import counted
from heronpy.proto import control_pb2, plan_pb2
from heronpy.views.heron_plans import packing_plan


@dataclass(frozen=True, slots=True)
class UpdateOptions:
    """The flags of `heron update`, under the same names."""

    parallelism: tuple[str, ...]
    container_number: int | None
    ram: tuple[str, ...]
    cpu: tuple[str, ...]
    runtime_config: tuple[str, ...]
    drain_timeout_s: float | None
    timeout_s: float
    dry_run: bool
    dry_run_format: str
    as_json: bool


def update(target: Target, common: Common, topology: str, options: UpdateOptions) -> None:
    """Change the configuration, or the parallelism, containers and task sizes."""
    session = Session(target, common)
    session.find(topology)
    session.refuse_job(topology, f"set {target} {topology} KEY=VALUE")
    if options.runtime_config:
        _configure(session, topology, options)
    else:
        _scale(session, topology, options)


def _configure(session: Session, name: str, options: UpdateOptions) -> None:
    topology = session.topology(name)
    changes = check_runtime_config(topology, options.runtime_config)
    if not options.dry_run:
        request = control_pb2.RuntimeConfig(settings=list(options.runtime_config))
        update_outcome.configure(session, name, request, options.timeout_s, warn)
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
    topology, new = replan(session, name, old, options.parallelism, options.container_number, options.ram, options.cpu)
    if options.dry_run:
        for text in check_room(session, name, topology, old, new).values():
            warn(text)
        _show_dry_run(name, old, new, "json" if options.as_json else options.dry_run_format)
        return
    drain_s = options.drain_timeout_s or 0.0
    _report(name, scale(session, name, old, topology, new, drain_s, options.timeout_s, warn), options.as_json)


def _report(name: str, done: Scaled, as_json: bool) -> None:
    if as_json:
        changes = {"added": done.added, "removed": done.removed, "moved": done.moved, "resized": done.resized}
        print_json({"topology": name, **changes, "discarded_tuples": done.discarded})
        return
    if not done:
        say(f"Topology '{name}' is already as requested; nothing changed")
        return
    _list_changes(done)
    if done.discarded is None and done.removed:
        say("  the topology master was replaced; its log lists the tuples that were discarded with the removed tasks")
    if done.discarded:
        say(f"  discarded {counted(done.discarded, 'tuple')} that were queued in removed tasks")
    counts = f"{counted(len(done.added), 'task')} added, {len(done.removed)} removed, {len(done.moved)} moved"
    resized = f", the tasks of {counted(len(done.resized), 'component')} resized" if done.resized else ""
    say(f"Successfully updated topology '{name}': {counts}{resized}")


def _list_changes(done: Scaled) -> None:
    for sign, names in (("+", done.added), ("-", done.removed), (">", done.moved), ("=", done.resized)):
        for instance in names:
            say(f"  {sign} {instance}")


def _show_dry_run(name: str, old: plan_pb2.PackingPlan, new: plan_pb2.PackingPlan, form: str) -> None:
    changes = differences(old, new)
    if form == "json":
        print_json(
            {
                "topology": name,
                "added": changes.added,
                "removed": changes.removed,
                "moved": changes.moved,
                "resized": changes.resized,
                "current_packing_plan": packing_plan(old),
                "packing_plan": packing_plan(new),
            }
        )
        return
    if form == "raw":
        say(str(new).rstrip())
        return
    say(f"Topology '{name}' would be changed as follows; nothing was changed.\n")
    _list_changes(changes)
    if not changes:
        say("  no task is added, removed, moved or resized")
    say()
    show_packing(new, coloured=form == "colored_table")
