"""The interface of a packing algorithm, and the first steps that every repacking shares. Pure.

An algorithm only fills bins; task ids, resources and messages are handled elsewhere. `reshape` does the
part of a repacking that all algorithms share: it removes tasks that are no longer wanted, closes surplus
containers, and leaves the instances that need a place to the algorithm.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from heronpy.common.errors import TopologyError
from heronpy.packing.bins import Bin, Bins, Item
from heronpy.packing.demand import Demand


@dataclass(slots=True)
class Change:
    """The instances that a repacking has to place."""

    #: Running tasks that lost their place; they keep their ids.
    homeless: list[Item] = field(default_factory=list)
    #: New tasks, component by component.
    added: list[list[Item]] = field(default_factory=list)
    next_task_id: int = 1

    def groups(self) -> list[list[Item]]:
        """Everything to place, in groups of equal size, running tasks first."""
        by_component: dict[str, list[Item]] = {}
        for item in self.homeless:
            by_component.setdefault(item.component, []).append(item)
        return [*by_component.values(), *self.added]


class Packing(Protocol):
    """An algorithm that decides which container an instance goes to."""

    #: Its name in `packing.algorithm`.
    name: ClassVar[str]
    #: Whether the number of containers is fixed; then requested resources are divided among the instances.
    fixed_containers: ClassVar[bool]

    def pack(self, demand: Demand, items: list[list[Item]]) -> Bins:
        """Place fresh items, given component by component, into new containers."""
        ...

    def repack(self, bins: Bins, demand: Demand, next_task_id: int) -> Change:
        """Adapt running containers to a new demand; returns the instances that were placed."""
        ...


def container_count(demand: Demand) -> int:
    """The number of containers of a first plan."""
    count = demand.containers or demand.stmgrs
    check_count(demand, count)
    return count


def check_count(demand: Demand, count: int) -> None:
    """Raise TopologyError when containers would stay empty."""
    if count > demand.task_count:
        raise TopologyError(
            f"topology '{demand.topology}' asks for {count} containers but has only "
            f"{demand.task_count} instances; lower topology.stmgrs or raise a parallelism"
        )


def remove_surplus(bins: Bins, demand: Demand) -> None:
    """Remove surplus tasks: from the fullest container, highest index first."""
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
    """The number of instances of each component."""
    result: dict[str, int] = {}
    for one in bins:
        for component, count in one.types.items():
            result[component] = result.get(component, 0) + count
    return result


def added_items(bins: Bins, demand: Demand, next_task_id: int) -> tuple[list[list[Item]], int]:
    """Items for the missing tasks, with new ids and the lowest free indexes; and the next id."""
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
    """Take out of every bin what its limits no longer allow, largest instances first."""
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
    """Remove, evict, open and close until `count` bins remain; returns the instances that need a place."""
    remove_surplus(bins, demand)
    added, next_task_id = added_items(bins, demand, next_task_id)
    homeless = evict_overflow(bins)
    homeless += close_bins(bins, len(bins) - count)
    while len(bins) < count:
        bins.open()
    return Change(homeless, added, next_task_id)


def place_least_loaded(bins: Bins, items: list[Item], *, may_open: bool, fix: str) -> None:
    """Place items of one component, each into the bin with the fewest tasks that has room.

    On a tie, the bin with the fewest instances of the same component is taken. With `may_open`, an
    item that fits nowhere gets a new bin.
    """
    component = items[0].component
    bins_list = bins.bins
    heap = [(len(one), one.types.get(component, 0), one.id, i) for i, one in enumerate(bins_list)]
    heapq.heapify(heap)
    for item in items:
        # All items have the same size: a bin without room for this one has none for the others.
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
    """Move tasks from the fullest to the emptiest bins until no two differ by more than one.

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
