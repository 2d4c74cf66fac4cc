"""The difference between two packing plans, and the plan that contains both. Pure.

An update runs in the order: union (old placement plus added tasks), then the new plan. A moved task
keeps its id and changes its container; the union leaves it where it was.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from heronpy.plan import packing_plan
from heronpy.plan.packing_plan import PlacedTask
from heronpy.proto import plan_pb2


class MovedTask(Struct, frozen=True):
    """A task that keeps its id but changes its container."""

    task_id: int
    component: str
    source: int
    target: int


class PlanDiff(Struct, frozen=True):
    """The changes from one packing plan to another; all sorted by id."""

    added: tuple[PlacedTask, ...]
    removed: tuple[PlacedTask, ...]
    moved: tuple[MovedTask, ...]
    removed_containers: tuple[int, ...]

    @property
    def added_ids(self) -> list[int]:
        return [task.task_id for task in self.added]

    @property
    def removed_ids(self) -> list[int]:
        return [task.task_id for task in self.removed]

    @property
    def moved_ids(self) -> list[int]:
        return [task.task_id for task in self.moved]


def diff(old: plan_pb2.PackingPlan, new: plan_pb2.PackingPlan) -> PlanDiff:
    """What changes from packing plan `old` to `new`."""
    before = packing_plan.tasks_by_id(old)
    after = packing_plan.tasks_by_id(new)
    # The same id with another component is another task, although plans never do that on purpose.
    same = {
        task_id for task_id in before.keys() & after.keys() if before[task_id].component == after[task_id].component
    }
    return PlanDiff(
        added=tuple(after[task_id] for task_id in sorted(after.keys() - same)),
        removed=tuple(before[task_id] for task_id in sorted(before.keys() - same)),
        moved=tuple(
            MovedTask(
                task_id,
                after[task_id].component,
                before[task_id].container,
                after[task_id].container,
            )
            for task_id in sorted(same)
            if before[task_id].container != after[task_id].container
        ),
        removed_containers=tuple(
            sorted({*packing_plan.container_ids(old)}.difference(packing_plan.container_ids(new)))
        ),
    )


def union(old: plan_pb2.PackingPlan, new: plan_pb2.PackingPlan) -> plan_pb2.PackingPlan:
    """The packing plan with all tasks of `old` in their place, and those that `new` adds."""
    result = packing_plan.copy_of(old)
    result.id = new.id
    result.version = new.version
    result.next_task_id = max(packing_plan.next_task_id(old), packing_plan.next_task_id(new))
    present = packing_plan.tasks_by_id(old).keys()
    containers = {container.id: container for container in result.containers}
    for source in new.containers:
        target = containers.get(source.id)
        if target is None:
            target = result.containers.add(id=source.id)
            target.required.CopyFrom(source.required)
        missing = [item for item in source.instances if item.task_id not in present]
        target.instances.extend(missing)
        target.required.CopyFrom(_larger(target.required, source.required))
    return result


def without(plan: plan_pb2.PackingPlan, task_ids: Iterable[int]) -> plan_pb2.PackingPlan:
    """A packing plan without these tasks, and without containers that this leaves empty."""
    gone = set(task_ids)
    result = packing_plan.copy_of(plan)
    result.next_task_id = packing_plan.next_task_id(plan)
    del result.containers[:]
    for container in plan.containers:
        kept = [item for item in container.instances if item.task_id not in gone]
        if kept:
            result.containers.add(id=container.id, instances=kept, required=container.required)
    return result


def _larger(one: plan_pb2.Resource, other: plan_pb2.Resource) -> plan_pb2.Resource:
    return plan_pb2.Resource(
        cpu=max(one.cpu, other.cpu),
        ram_bytes=max(one.ram_bytes, other.ram_bytes),
        disk_bytes=max(one.disk_bytes, other.disk_bytes),
    )
