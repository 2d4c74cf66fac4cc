"""Where a task's checkpointed state comes from."""

from __future__ import annotations

from typing import Any

from heronpy.proto import plan_pb2, topology_pb2

from .routing import components_of


class RestoreError(Exception):
    """The state of a region's attempt cannot be loaded; `__cause__` says why."""

    def __init__(self, region: plan_pb2.RegionRecord) -> None:
        super().__init__(f"checkpoint {region.checkpoint} cannot be restored")
        self.region = region


def open_state(
    launch: Any, plan: plan_pb2.PhysicalPlan, component: str, task_id: int, settings: Any, allow_pickle: bool
) -> Any:
    """The empty state of a task, on the store that it is saved to."""
    # Only here: most topologies take no checkpoints.
    from heronpy.ckpt.snapshot import TaskState
    from heronpy.storage.stores import StoreChoice

    tasks = sorted(record.task_id for record in plan.instances if record.component == component)
    return TaskState(
        component,
        tasks.index(task_id),
        len(tasks),
        settings,
        StoreChoice(launch, settings),
        task_id=task_id,
        allow_pickle=allow_pickle,
        grouping_width=grouping_width(plan.topology, component),
    )


def grouping_width(topology: topology_pb2.Topology, component: str) -> int:
    """Number of fields that the input of a component is grouped by; 1 without a fields grouping."""
    part = components_of(topology)[component]
    widths = [
        len(source.grouping_fields.keys)
        for source in getattr(part, "inputs", ())
        if source.gtype == topology_pb2.FIELDS
    ]
    return max(widths, default=1)
