"""Balanced: every container has as many tasks as any other, and as many of each component.

Both hold at once, give or take one, after packing and after every repacking; a repacking reaches it
with the fewest moves that exist for the given number of containers. Downstream instances go where
their upstream is, as far as this leaves a choice. Rules: count and type balance of independent
tasks compose because only the remainders of components are free (see evenness.py).
"""

from __future__ import annotations

from typing import ClassVar

from heronpy.packing.base import (
    Change,
    added_items,
    check_count,
    close_bins,
    container_count,
    count_by_component,
)
from heronpy.packing.bins import Bin, Bins, Item
from heronpy.packing.demand import ComponentDemand, Demand
from heronpy.packing.evenness import choose_extras

_FIX = (
    "an even spread leaves no other container for it, so ask for more containers, raise the limit "
    "of a container, or use the algorithm resource_compliant_round_robin"
)


class Balanced:
    """Even counts of tasks and of every component."""

    name: ClassVar[str] = "balanced"
    fixed_containers: ClassVar[bool] = True

    def pack(self, demand: Demand, items: list[list[Item]]) -> Bins:
        bins = Bins(demand, container_count(demand))
        _settle(bins, demand, [], items)
        return bins

    def repack(self, bins: Bins, demand: Demand, next_task_id: int) -> Change:
        if demand.containers is not None:
            check_count(demand, demand.containers)
        count = demand.containers or min(len(bins), demand.task_count)
        _drop_unknown(bins, demand)
        added, next_task_id = added_items(bins, demand, next_task_id)
        closed = close_bins(bins, len(bins) - count)
        while len(bins) < count:
            bins.open()
        moved = _settle(bins, demand, closed, added)
        return Change(moved, added, next_task_id)


def _drop_unknown(bins: Bins, demand: Demand) -> None:
    """Remove the tasks of components that the topology no longer has."""
    for name in count_by_component(bins).keys() - {part.name for part in demand.components}:
        for one in bins:
            for item in one.of(name):
                bins.remove(one, item)


def _settle(
    bins: Bins, demand: Demand, homeless: list[Item], added: list[list[Item]]
) -> list[Item]:
    """Remove, move and add so that the bins are even; returns the running tasks that moved."""
    fresh = {group[0].component: group for group in added}
    moved: list[Item] = []
    for component, targets in _targets(bins, demand):
        lost = [item for item in homeless if item.component == component.name]
        movers = _movers(bins, component, targets, lost)
        moved += movers
        waiting = iter([*movers, *fresh.get(component.name, ())])
        for one, target in zip(bins, targets, strict=True):
            for _ in range(target - one.types.get(component.name, 0)):
                bins.add(one, next(waiting))
    for one in bins:
        if bins.overflows(one):
            raise bins.no_room(max(one.items, key=lambda item: item.size[1]), _FIX)
    return moved


def _targets(bins: Bins, demand: Demand) -> list[tuple[ComponentDemand, list[int]]]:
    """How many instances of each component each bin gets, in the order of the bins."""
    count = len(bins)
    # Large instances choose first: they are the ones that limits leave least freedom.
    parts = sorted(demand.components, key=lambda part: (-part.size[1], -part.size[0]))
    number = {part.name: k for k, part in enumerate(parts)}
    base = [part.parallelism // count for part in parts]
    free = [
        {c for c, one in enumerate(bins) if one.types.get(part.name, 0) > base[k]}
        for k, part in enumerate(parts)
    ]
    extras = choose_extras(
        count,
        [part.parallelism % count for part in parts],
        free,
        upstream=[[number[name] for name in part.upstream if name in number] for part in parts],
        weights=[_weight(demand, part) for part in parts],
    )
    return [
        (part, [base[k] + (c in extras[k]) for c in range(count)]) for k, part in enumerate(parts)
    ]


def _weight(demand: Demand, part: ComponentDemand) -> float:
    """The largest share of a container that one instance takes; 0 without limits."""
    return max(
        (size / room for size, room in zip(part.size, demand.usable, strict=True) if room),
        default=0.0,
    )


def _movers(
    bins: Bins, component: ComponentDemand, targets: list[int], homeless: list[Item]
) -> list[Item]:
    """Take what is above the targets out of the bins, and give up what is no longer wanted.

    Given up are first the tasks of closed containers, then from the fullest container the highest
    index; the others need a new place.
    """
    name = component.name
    have = len(homeless) + sum(one.types.get(name, 0) for one in bins)
    surplus: list[tuple[int, int, Item, Bin]] = []
    for one, target in zip(bins, targets, strict=True):
        above = one.types.get(name, 0) - target
        if above > 0:
            surplus += [(len(one), item.index, item, one) for item in one.of(name)[-above:]]
    for _, _, item, one in surplus:
        bins.remove(one, item)
    surplus.sort(key=lambda entry: (-entry[0], -entry[1]))
    homeless = sorted(homeless, key=lambda item: -item.index)
    given_up = max(0, have - component.parallelism)
    return [*homeless, *(item for _, _, item, _ in surplus)][given_up:]
