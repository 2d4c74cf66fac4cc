"""Packing plans: the assignment of tasks to containers, checks of a plan, and the difference between two plans. Pure.

The plan itself is the protobuf message. Container 0 runs the topology master and never appears in the plan.
Task ids are unique for the life of a topology: `next_task_id` also accounts for removed tasks, so an id is
never reused.

An update first uses the `union` (old placement plus added tasks), then the new plan. A moved task keeps its
id and changes its container; in the union, the task is still in the old container.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from heronpy.plan.component_config import component_config, parallelism_of
from heronpy.proto import components_of, plan_pb2, topology_pb2


class PlacedTask(Struct, frozen=True):
    """One task of a packing plan, with its container."""

    task_id: int
    component: str
    component_index: int
    container: int


def tasks(plan: plan_pb2.PackingPlan) -> Iterator[PlacedTask]:
    """Yield every task of a plan, container by container."""
    for container in plan.containers:
        for item in container.instances:
            yield PlacedTask(item.task_id, item.component, item.component_index, container.id)


def tasks_by_id(plan: plan_pb2.PackingPlan) -> dict[int, PlacedTask]:
    """Map each task id of a plan to its task."""
    return {task.task_id: task for task in tasks(plan)}


def tasks_by_component(plan: plan_pb2.PackingPlan) -> dict[str, list[int]]:
    """Return the sorted task ids of every component."""
    result: dict[str, list[int]] = {}
    for task in sorted(tasks(plan), key=lambda task: task.task_id):
        result.setdefault(task.component, []).append(task.task_id)
    return result


def container_ids(plan: plan_pb2.PackingPlan) -> list[int]:
    """Return the sorted ids of the containers, without container 0."""
    return sorted(container.id for container in plan.containers)


def next_task_id(plan: plan_pb2.PackingPlan) -> int:
    """Return the lowest task id that has never been used."""
    highest = max((task.task_id for task in tasks(plan)), default=0)
    return max(int(plan.next_task_id), highest + 1)


def problems(plan: plan_pb2.PackingPlan, topology: topology_pb2.Topology) -> list[str]:
    """Return one sentence for each problem within a plan, or between a plan and its topology."""
    found = []
    seen: dict[int, str] = {}
    containers: set[int] = set()
    for container in plan.containers:
        if container.id < 1 or container.id in containers:
            found.append(f"container id {container.id} is 0 or repeated; ids start at 1")
        containers.add(container.id)
        for item in container.instances:
            if item.task_id < 1 or item.task_id in seen:
                found.append(f"task id {item.task_id} of '{item.component}' is 0 or repeated")
            seen[item.task_id] = item.component
    have = {name: len(ids) for name, ids in tasks_by_component(plan).items()}
    for name in components_of(topology):
        want = parallelism_of(component_config(topology, name), name)
        if have.pop(name, 0) != want:
            found.append(f"component '{name}' needs {want} tasks, but the plan has a different number")
    found += [f"the plan has tasks of '{name}', which the topology does not contain" for name in have]
    return found


def copy_of(plan: plan_pb2.PackingPlan) -> plan_pb2.PackingPlan:
    """Return a copy that may be modified."""
    result = plan_pb2.PackingPlan()
    result.CopyFrom(plan)
    return result


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
    """Return the changes from packing plan `old` to `new`."""
    before = tasks_by_id(old)
    after = tasks_by_id(new)
    # The same id with another component is another task, but valid plans never reuse an id.
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
        removed_containers=tuple(sorted({*container_ids(old)}.difference(container_ids(new)))),
    )


def union(old: plan_pb2.PackingPlan, new: plan_pb2.PackingPlan) -> plan_pb2.PackingPlan:
    """Return a packing plan with all tasks of `old` in their containers, and the tasks that `new` adds."""
    result = copy_of(old)
    result.id = new.id
    result.version = new.version
    result.next_task_id = max(next_task_id(old), next_task_id(new))
    present = tasks_by_id(old).keys()
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


def _larger(one: plan_pb2.Resource, other: plan_pb2.Resource) -> plan_pb2.Resource:
    return plan_pb2.Resource(
        cpu=max(one.cpu, other.cpu),
        ram_bytes=max(one.ram_bytes, other.ram_bytes),
        disk_bytes=max(one.disk_bytes, other.disk_bytes),
    )
