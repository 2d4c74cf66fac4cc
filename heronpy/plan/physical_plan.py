"""Builds physical plans: the location of each task. A plan never changes; a new plan has a higher version. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from heronpy.common.errors import TopologyError
from heronpy.common.ids import instance_id
from heronpy.plan import packing_plan
from heronpy.proto import plan_pb2, topology_pb2


def build_physical_plan(topology: Any, packing: Any, stmgr_records: Iterable[Any], version: int, epoch: int) -> Any:
    """Build the PhysicalPlan for a packing plan whose stream managers have all registered.

    Raises TopologyError with the names of containers that have no stream manager. Records of containers
    outside the packing plan are ignored.
    """
    by_container = {record.container: record for record in stmgr_records}
    containers = packing_plan.container_ids(packing)
    missing = [container for container in containers if container not in by_container]
    if missing:
        raise TopologyError(
            f"topology '{topology.name}' has no stream manager yet in container(s) "
            f"{', '.join(map(str, missing[:20]))}; wait until all have registered"
        )
    plan = plan_pb2.PhysicalPlan(version=version, tmaster_epoch=epoch)
    plan.topology.CopyFrom(topology)
    plan.stmgrs.extend(by_container[container] for container in containers)
    for task in sorted(packing_plan.tasks(packing), key=lambda task: task.task_id):
        plan.instances.add(
            instance_id=instance_id(task.container, task.component, task.task_id),
            task_id=task.task_id,
            component=task.component,
            component_index=task.component_index,
            container=task.container,
        )
    return plan


def emitters(plan: plan_pb2.PhysicalPlan) -> dict[int, int]:
    """Return the spout tasks that may emit in this plan, with the epoch of their container's stream manager."""
    if plan.spouts_held or plan.topology.state != topology_pb2.RUNNING:
        return {}
    restoring = {name for region in plan.regions if not region.started for name in region.components}
    spouts = {spout.comp.name for spout in plan.topology.spouts} - restoring
    epochs = {record.container: record.epoch for record in plan.stmgrs}
    return {i.task_id: epochs.get(i.container, 0) for i in plan.instances if i.component in spouts}
