"""Containers while they are being filled, and the interface of the algorithms that fill them. Pure.

`Bins` holds the invariants that every algorithm relies on: an item is in one bin only, and a bin never holds more than
the demand allows. `Bins` also converts a packing plan to bins, and bins to a packing plan.

An algorithm only fills bins; task ids, resources and messages are handled elsewhere. `reshape` is the part of a
repacking that all algorithms share: it removes surplus tasks, closes surplus containers, and returns the instances that
the algorithm must place.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Protocol

from msgspec import Struct, field

from heronpy.common.errors import TopologyError
from heronpy.packing.demand import DIMENSIONS, ZERO, Demand, Size, shown
from heronpy.plan import packing_plan
from heronpy.proto import plan_pb2

_SLACK = 1 + 1e-9


class Item:
    """An instance of a component, placed or to be placed; an item never changes its task."""

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
        #: Number of instances of each component in this bin; never zero.
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
    """The containers of a plan that is being built."""

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
        """Create the bins of a plan, with the sizes of the new demand; they may overflow until repacked."""
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
        """Return a copy with the same items in new bins."""
        result = Bins(self.demand)
        result.take(self)
        return result

    def take(self, other: Bins) -> None:
        """Replace the content of this object with the content of another one."""
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
        """Add an empty bin with the lowest free number."""
        number = self._free_from
        while number in self._numbers:
            number += 1
        self._numbers.add(number)
        self._free_from = number + 1
        result = Bin(number)
        self.bins.append(result)
        return result

    def drop(self, one: Bin) -> list[Item]:
        """Remove a bin; returns its items, which now need another bin."""
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
        # Reset the size of an empty bin, because rounding errors may have accumulated.
        one.used = _plus(one.used, item.size, -1) if one.items else ZERO

    def no_room(self, item: Item, fix: str) -> TopologyError:
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
        """Return the packing plan of the placed items."""
        demand = self.demand
        limits = {part.name: part.memory_limit_bytes for part in demand.components}
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
                    memory_limit_bytes=limits.get(item.component, 0),
                )
            container.required.CopyFrom(_resource(demand.required(total)))
        return plan


def new_items(demand: Demand) -> list[list[Item]]:
    """Create the items of a first plan, with task ids from 1 in component order."""
    ids = itertools.count(1)
    return [
        [Item(component.name, index, next(ids), component.size) for index in range(component.parallelism)]
        for component in demand.components
    ]


def same_plan(one: Any, other: Any) -> bool:
    """Whether two plans place all tasks in the same containers, with equal sizes."""
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
    """Return the sizes of the components in this bin, with the requested amounts divided evenly."""
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


class Change(Struct):
    """The instances that a repacking has to place."""

    #: Running tasks that need a new container; they keep their ids.
    homeless: list[Item] = field(default_factory=list)
    #: New tasks, component by component.
    added: list[list[Item]] = field(default_factory=list)
    next_task_id: int = 1

    def groups(self) -> list[list[Item]]:
        """Return all items to place, in groups of equal size, running tasks first."""
        by_component: dict[str, list[Item]] = {}
        for item in self.homeless:
            by_component.setdefault(item.component, []).append(item)
        return [*by_component.values(), *self.added]


class Packing(Protocol):
    """An algorithm that assigns instances to containers."""

    #: Name of the algorithm as a value of the setting `packing.algorithm`.
    name: ClassVar[str]
    #: Whether the number of containers is fixed, so that requested resources are divided among the instances.
    fixed_containers: ClassVar[bool]

    def pack(self, demand: Demand, items: list[list[Item]]) -> Bins:
        """Place new items, given component by component, into new containers."""
        ...

    def repack(self, bins: Bins, demand: Demand, next_task_id: int) -> Change:
        """Adapt running containers to a new demand; returns the instances that had to be placed."""
        ...


def container_count(demand: Demand) -> int:
    """Return the number of containers in a first plan."""
    count = demand.containers or demand.stmgrs
    check_count(demand, count)
    return count


def check_count(demand: Demand, count: int) -> None:
    """Raise TopologyError if this number of containers would leave a container empty."""
    if count > demand.task_count:
        raise TopologyError(
            f"topology '{demand.topology}' requests {count} containers but has only "
            f"{demand.task_count} instances; lower topology.stmgrs or raise a parallelism"
        )


def remove_surplus(bins: Bins, demand: Demand) -> None:
    """Remove surplus tasks from the fullest containers, highest index first."""
    wanted = {component.name: component.parallelism for component in demand.components}
    have = count_by_component(bins)
    for component, count in have.items():
        surplus = count - wanted.get(component, 0)
        if surplus > 0:
            _remove_some(bins, component, surplus)


def _remove_some(bins: Bins, component: str, surplus: int) -> None:
    holders = [one for one in bins if component in one.types]
    heap = [(-len(one), -one.id, i) for i, one in enumerate(holders)]
    heapq.heapify(heap)
    stacks = [one.of(component) for one in holders]
    for _ in range(surplus):
        _, _, i = heapq.heappop(heap)
        one = holders[i]
        bins.remove(one, stacks[i].pop())
        if stacks[i]:
            heapq.heappush(heap, (-len(one), -one.id, i))


def count_by_component(bins: Iterable[Bin]) -> dict[str, int]:
    result: dict[str, int] = {}
    for one in bins:
        for component, count in one.types.items():
            result[component] = result.get(component, 0) + count
    return result


def added_items(bins: Bins, demand: Demand, next_task_id: int) -> tuple[list[list[Item]], int]:
    """Create items for missing tasks, with new ids and the lowest free indexes; also returns the next id."""
    taken: dict[str, set[int]] = {}
    for one in bins:
        for item in one.items:
            taken.setdefault(item.component, set()).add(item.index)
    result = []
    for component in demand.components:
        used = taken.get(component.name, set())
        missing = component.parallelism - len(used)
        free = (index for index in range(component.parallelism + len(used)) if index not in used)
        group = []
        for _ in range(missing):
            group.append(Item(component.name, next(free), next_task_id, component.size))
            next_task_id += 1
        if group:
            result.append(group)
    return result, next_task_id


def evict_overflow(bins: Bins) -> list[Item]:
    """Remove items from each overfull bin, largest instances first, until the bin respects its limits."""
    evicted = []
    for one in bins:
        while bins.overflows(one):
            item = max(one.items, key=lambda item: (item.size[1], item.size[0], item.index))
            bins.remove(one, item)
            evicted.append(item)
    return evicted


def close_bins(bins: Bins, surplus: int) -> list[Item]:
    """Close the emptiest bins (on a tie, the one with the highest id); returns their items."""
    emptiest = sorted(bins, key=lambda one: (len(one), -one.id))[: max(0, surplus)]
    return [item for one in emptiest for item in bins.drop(one)]


def reshape(bins: Bins, demand: Demand, next_task_id: int, count: int) -> Change:
    """Remove surplus instances, evict instances that do not fit, and open or close bins until there are `count` bins.

    Returns the instances that need a bin.
    """
    remove_surplus(bins, demand)
    added, next_task_id = added_items(bins, demand, next_task_id)
    homeless = evict_overflow(bins)
    homeless += close_bins(bins, len(bins) - count)
    while len(bins) < count:
        bins.open()
    return Change(homeless, added, next_task_id)


def place_least_loaded(bins: Bins, items: list[Item], *, may_open: bool, fix: str) -> None:
    """Place items of one component, each into the bin with the fewest tasks among the bins that it fits in.

    On a tie, the bin with the fewest instances of the same component is chosen. With `may_open`, a new bin
    is opened for an item that fits in no bin.
    """
    component = items[0].component
    bins_list = bins.bins
    heap = [(len(one), one.types.get(component, 0), one.id, i) for i, one in enumerate(bins_list)]
    heapq.heapify(heap)
    for item in items:
        # All items have the same size: a bin without room for this item has no room for the others.
        while heap and not bins.fits(bins_list[heap[0][3]], item.size):
            heapq.heappop(heap)
        if not heap:
            if not may_open:
                raise bins.no_room(item, fix)
            bins.open()
            heap.append((0, 0, bins_list[-1].id, len(bins_list) - 1))
            if not bins.fits(bins_list[-1], item.size):
                raise bins.no_room(item, fix)
        i = heap[0][3]
        one = bins_list[i]
        bins.add(one, item)
        heapq.heapreplace(heap, (len(one), one.types[component], one.id, i))


def level_counts(bins: Bins, moves_max: int | None = None) -> int:
    """Move tasks from the fullest to the emptiest bins until their numbers of tasks differ by at most one.

    Returns the number of moves. Stops early when the limits allow no further move, or after `moves_max`.
    """
    moves = 0
    while moves_max is None or moves < moves_max:
        fullest = max(bins, key=lambda one: (len(one), -one.id))
        emptiest = min(bins, key=lambda one: (len(one), one.id))
        if len(fullest) - len(emptiest) <= 1:
            return moves
        movable = [item for item in fullest.items if bins.fits(emptiest, item.size)]
        if not movable:
            return moves
        item = max(
            movable,
            key=lambda item: (
                fullest.types[item.component] - emptiest.types.get(item.component, 0),
                item.index,
            ),
        )
        bins.remove(fullest, item)
        bins.add(emptiest, item)
        moves += 1
    return moves
