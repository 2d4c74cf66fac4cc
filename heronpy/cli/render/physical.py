"""The physical plan as a table or as JSON (the shape of Heron's tracker)."""

from __future__ import annotations

from typing import Any

from heronpy.cli.output import clean, console, table
from heronpy.cli.render.logical import config_as_json
from heronpy.common.ids import stmgr_id
from heronpy.proto import components_of, plan_pb2


def as_json(plan: plan_pb2.PhysicalPlan) -> dict[str, Any]:
    """Instances, stream managers, and the instances of each component."""
    groups: dict[str, list[str]] = {}
    of_component: dict[str, list[str]] = {}
    for instance in plan.instances:
        groups.setdefault(f"container_{instance.container}", []).append(instance.instance_id)
        of_component.setdefault(instance.component, []).append(instance.instance_id)
    topology = plan.topology
    parts = [part.comp for part in components_of(topology).values()]
    return {
        "name": topology.name,
        "version": plan.version,
        "tmaster_epoch": plan.tmaster_epoch,
        "instances": {
            instance.instance_id: {
                "id": instance.instance_id,
                "name": instance.component,
                "task_id": instance.task_id,
                "component_index": instance.component_index,
                "container": instance.container,
                "stmgrId": stmgr_id(instance.container),
            }
            for instance in plan.instances
        },
        "instance_groups": groups,
        "stmgrs": {
            stmgr.id: {
                "id": stmgr.id,
                "host": stmgr.host,
                "pid": stmgr.pid,
                "epoch": stmgr.epoch,
                "endpoint": stmgr.data_endpoint,
                "instance_ids": groups.get(f"container_{stmgr.container}", []),
            }
            for stmgr in plan.stmgrs
        },
        "spouts": {spout.comp.name: of_component.get(spout.comp.name, []) for spout in topology.spouts},
        "bolts": {bolt.comp.name: of_component.get(bolt.comp.name, []) for bolt in topology.bolts},
        "components": {comp.name: {"config": config_as_json(comp.config)} for comp in parts},
        "config": config_as_json(topology.topology_config),
    }


def show(plan: plan_pb2.PhysicalPlan, coloured: bool = False) -> None:
    """Print the plan: stream managers, then instances."""
    stmgrs = [[stmgr.id, stmgr.host, str(stmgr.pid), str(stmgr.epoch), stmgr.data_endpoint] for stmgr in plan.stmgrs]
    title = f"Physical plan of '{clean(plan.topology.name)}', version {plan.version}"
    screen = console(coloured)
    columns = ("stream manager", "host", "pid", "epoch", "endpoint")
    screen.print(table(columns, stmgrs, title, right=("pid", "epoch")))
    instances = [
        [instance.instance_id, instance.component, instance.task_id, instance.container]
        for instance in sorted(plan.instances, key=lambda instance: (instance.container, instance.task_id))
    ]
    screen.print(table(("instance", "component", "task", "container"), instances, right=("task", "container")))
