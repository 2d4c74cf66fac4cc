"""Containers while they are being filled. Pure.

`Bins` holds the invariants that every algorithm relies on: an item is in one bin only, and a bin
never holds more than the demand allows. It turns a packing plan into bins and bins into a packing
plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from heronpy.common.errors import TopologyError
from heronpy.packing.demand import DIMENSIONS, ZERO, Demand, Size, shown
from heronpy.plan import packing_plan
from heronpy.proto import plan_pb2

_SLACK = 1 + 1e-9


class Item:
    """An instance, placed or to be placed; always the same task."""

    __slots__ = ("component", "index", "size", "task_id")

    def __init__(self, component: str, index: int, task_id: int, size: Size) -> None:
        self.component = component
        self.index = index
        self.task_id = task_id
        self.size = size

    def __str__(self) -> str:
        return f"instance {self.index} of component '{self.component}'"


class Bin:
    """A container being filled; changed only through `Bins`."""

    __slots__ = ("id", "items", "types", "used")

    def __init__(self, number: int) -> None:
        self.id = number
        self.items: list[Item] = []
        #: Instances of each component here; never zero.
        self.types: dict[str, int] = {}
        self.used: Size = ZERO

    def __len__(self) -> int:
        return len(self.items)

    def copy(self) -> Bin:
        result = Bin(self.id)
        result.items, result.types, result.used = self.items.copy(), self.types.copy(), self.used
        return result

    def of(self, component: str) -> list[Item]:
        """Items of a component, lowest index first."""
        found = [item for item in self.items if item.component == component]
        return sorted(found, key=lambda item: item.index)


class Bins:
    """The containers of a plan being made."""

    def __init__(self, demand: Demand, count: int = 0) -> None:
        self.demand = demand
        self.bins: list[Bin] = []
        self._numbers: set[int] = set()
        self._free_from = 1
        cpu, ram, disk = demand.usable
        infinite = float("inf")
        self._room = (
            infinite if cpu is None else cpu * _SLACK,
            infinite if ram is None else ram,
            infinite if disk is None else disk,
        )
        self._count_max = demand.instances_max or infinite
        for _ in range(count):
            self.open()

    @classmethod
    def from_plan(cls, demand: Demand, plan: plan_pb2.PackingPlan) -> Bins:
        """The bins of a plan, with the sizes of the new demand; they may overflow until repacked."""
        sizes = {component.name: component.size for component in demand.components}
        result = cls(demand)
        for container in sorted(plan.containers, key=lambda container: container.id):
            target = Bin(container.id)
            result.bins.append(target)
            result._numbers.add(container.id)
            for task in container.instances:
                size = sizes.get(task.component, ZERO)
                result.add(target, Item(task.component, task.component_index, task.task_id, size))
        return result

    def copy(self) -> Bins:
        """The same items in bins of their own."""
        result = Bins(self.demand)
        result.take(self)
        return result

    def take(self, other: Bins) -> None:
        """Have what the other has instead."""
        self.bins = [one.copy() for one in other.bins]
        self._numbers, self._free_from = set(other._numbers), other._free_from

    def __iter__(self) -> Iterator[Bin]:
        return iter(self.bins)

    def __len__(self) -> int:
        return len(self.bins)

    @property
    def task_count(self) -> int:
        return sum(len(one.items) for one in self.bins)

    def open(self) -> Bin:
        """A new empty bin with the lowest free number."""
        number = self._free_from
        while number in self._numbers:
            number += 1
        self._numbers.add(number)
        self._free_from = number + 1
        result = Bin(number)
        self.bins.append(result)
        return result

    def drop(self, one: Bin) -> list[Item]:
        """Remove a bin; returns its items, which now need a place."""
        self.bins.remove(one)
        return one.items

    def drop_empty(self) -> None:
        self.bins = [one for one in self.bins if one.items]

    def fits(self, one: Bin, size: Size) -> bool:
        used, room = one.used, self._room
        return (
            len(one.items) < self._count_max
            and used[1] + size[1] <= room[1]
            and used[0] + size[0] <= room[0]
            and used[2] + size[2] <= room[2]
        )

    def overflows(self, one: Bin) -> bool:
        used, room = one.used, self._room
        return len(one.items) > self._count_max or any(used[i] > room[i] for i in range(3))

    def add(self, one: Bin, item: Item) -> None:
        one.items.append(item)
        one.types[item.component] = one.types.get(item.component, 0) + 1
        one.used = _plus(one.used, item.size, 1)

    def remove(self, one: Bin, item: Item) -> None:
        one.items.remove(item)
        left = one.types[item.component] - 1
        if left:
            one.types[item.component] = left
        else:
            del one.types[item.component]
        # An emptied bin must not keep rounding errors.
        one.used = _plus(one.used, item.size, -1) if one.items else ZERO

    def no_room(self, item: Item, fix: str) -> TopologyError:
        """The error for an item that no bin can take."""
        needs = [
            f"{shown(name, item.size[i])} {name}"
            for i, name in enumerate(DIMENSIONS)
            if self.demand.usable[i] is not None and item.size[i]
        ]
        what = f" ({', '.join(needs)})" if needs else ""
        return TopologyError(
            f"{item}{what} fits in none of the {len(self.bins)} containers of topology '{self.demand.topology}'; {fix}"
        )

    def to_plan(self, version: int, next_task_id: int) -> Any:
        """The packing plan of the placed items."""
        demand = self.demand
        plan = plan_pb2.PackingPlan(id=demand.topology_id, version=version, next_task_id=next_task_id)
        for one in sorted(self.bins, key=lambda one: one.id):
            sizes = _shared_out(demand, one)
            container = plan.containers.add(id=one.id)
            total = ZERO
            for item in sorted(one.items, key=lambda item: item.task_id):
                size = sizes.get(item.component, item.size)
                total = _plus(total, size, 1)
                container.instances.add(
                    component=item.component,
                    task_id=item.task_id,
                    component_index=item.index,
                    resource=_resource(size),
                )
            container.required.CopyFrom(_resource(demand.required(total)))
        return plan


def new_items(demand: Demand, next_task_id: int = 1) -> list[list[Item]]:
    """Fresh items of every component with consecutive task ids in component order."""
    result = []
    for component in demand.components:
        result.append(
            [
                Item(component.name, index, next_task_id + index, component.size)
                for index in range(component.parallelism)
            ]
        )
        next_task_id += component.parallelism
    return result


def same_plan(one: Any, other: Any) -> bool:
    """Whether two plans place and size everything alike."""
    if len(one.containers) != len(other.containers):
        return False
    ours = {container.id: container for container in one.containers}
    for container in other.containers:
        mine = ours.get(container.id)
        if mine is None or mine.required != container.required:
            return False
        if _by_task(mine.instances) != _by_task(container.instances):
            return False
    return packing_plan.next_task_id(one) == packing_plan.next_task_id(other)


def _by_task(instances: Iterable[Any]) -> list[Any]:
    return sorted(instances, key=lambda item: int(item.task_id))


def _plus(used: Size, size: Size, sign: int) -> Size:
    return (used[0] + sign * size[0], used[1] + sign * size[1], used[2] + sign * size[2])


def _resource(size: Size) -> Any:
    return plan_pb2.Resource(cpu=size[0], ram_bytes=size[1], disk_bytes=size[2])


def _shared_out(demand: Demand, one: Bin) -> dict[str, Size]:
    """Sizes of the components in this bin, with the requested amounts divided evenly."""
    if not any(demand.shared):
        return {}
    sizes = {item.component: list(item.size) for item in one.items}
    for i in range(3):
        usable = demand.usable[i]
        without = [name for name in sizes if name not in demand.explicit[i]]
        if not demand.shared[i] or usable is None or not without:
            continue
        left = max(0.0, usable - one.used[i])
        share = left / sum(one.types[name] for name in without)
        for name in without:
            sizes[name][i] = share
    return {name: (size[0], int(size[1]), int(size[2])) for name, size in sizes.items()}
