"""From the registration of a task to the first plan that it may join."""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING

from heronpy.proto import plan_pb2

from .attempt import region_of

if TYPE_CHECKING:
    from .task import Task

#: How often a waiting task reports that it is not hung.
_WAIT_S = 1.0


def wait_for_plan(task: Task) -> plan_pb2.PhysicalPlan | None:
    """Wait until registered and given a plan that holds this task; None when asked to stop."""
    while not task.stopping:
        select.select([task.control.wake_fd], [], [], _WAIT_S)
        task.progress.turned_at = time.monotonic()
        task.serve_inbox()
        plan = task.offered
        # The plan may come before the answer to the registration, and without a link nothing can be sent.
        if not task.stopping and plan is not None and task.link.epoch and may_join(plan, task.task_id, task.component):
            return plan
    return None


def may_join(plan: plan_pb2.PhysicalPlan, task_id: int, component: str) -> bool:
    """Whether a plan holds this task; a region that has started without it will start again."""
    region = region_of(plan, component)
    started = region is not None and region.started
    return not started and any(record.task_id == task_id for record in plan.instances)
