"""Where a task's checkpointed state comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heronpy.common.setting_types import CheckpointSettings
from heronpy.common.settings import settings_for
from heronpy.plan.grouping import grouping_width
from heronpy.plan.launch import LaunchSpec
from heronpy.proto import components_of, plan_pb2

if TYPE_CHECKING:
    from heronpy.ckpt.snapshot import TaskState


class RestoreError(Exception):
    """The state of a region's attempt cannot be loaded; `__cause__` says why."""

    def __init__(self, region: plan_pb2.RegionRecord) -> None:
        super().__init__(f"checkpoint {region.checkpoint} cannot be restored")
        self.region = region


def open_state(
    launch: LaunchSpec, plan: plan_pb2.PhysicalPlan, component: str, task_id: int, allow_pickle: bool
) -> TaskState:
    """The empty state of a task, on the store that it is saved to."""
    # Only here: most topologies take no checkpoints.
    from heronpy.ckpt.snapshot import TaskState
    from heronpy.storage.stores import open_stores

    settings = settings_for(launch, CheckpointSettings)
    part = components_of(plan.topology)[component]
    tasks = sorted(record.task_id for record in plan.instances if record.component == component)
    return TaskState(
        component,
        tasks.index(task_id),
        len(tasks),
        settings,
        open_stores(launch, settings, task_id),
        task_id=task_id,
        allow_pickle=allow_pickle,
        grouping_width=grouping_width(getattr(part, "inputs", ())),
    )
