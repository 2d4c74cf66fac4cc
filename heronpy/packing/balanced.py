"""Balanced: all containers have the same number of tasks, and of tasks of each component, to within one.

Both hold after packing and after every repacking; a repacking reaches this with the minimum number of
moves for the given number of containers. Where there is a choice, downstream instances go where their
upstream is. Both balances are compatible because only the remainders of components are free to
choose (see evenness.py).
"""

from __future__ import annotations

from dataclasses import dataclass
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
    """Even numbers of tasks, in total and of every component."""

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


@dataclass(slots=True)
class Target:
    """The number of instances of a component for each bin: `base`, and one more in `extras`."""

    component: ComponentDemand
    base: int
    extras: set[int]
    #: current instances by number of bin; bins without any are absent
    have: dict[int, int]

    def of(self, number: int) -> int:
        return self.base + (number in self.extras)

    def surplus(self) -> list[tuple[int, int]]:
        """(bin, instances above the target)."""
        return [(c, n - self.of(c)) for c, n in sorted(self.have.items()) if n > self.of(c)]

    def missing(self, containers: int) -> list[tuple[int, int]]:
        """(bin, instances below the target)."""
        places = range(containers) if self.base else sorted(self.extras)
        found = [(c, self.of(c) - self.have.get(c, 0)) for c in places]
        return [(c, n) for c, n in found if n > 0]


def _settle(bins: Bins, demand: Demand, homeless: list[Item], added: list[list[Item]]) -> list[Item]:
    """Remove, move and add instances until the bins are even; returns the running tasks that moved."""
    fresh = {group[0].component: group for group in added}
    lost: dict[str, list[Item]] = {}
    for item in homeless:
        lost.setdefault(item.component, []).append(item)
    moved: list[Item] = []
    for target in _targets(bins, demand):
        name = target.component.name
        places = target.missing(len(bins))
        movers = _movers(bins, target, lost.get(name, []))
        moved += movers
        waiting = iter([*movers, *fresh.get(name, ())])
        for number, count in places:
            for _ in range(count):
                bins.add(bins.bins[number], next(waiting))
    for one in bins:
        if bins.overflows(one):
            raise bins.no_room(max(one.items, key=lambda item: item.size[1]), _FIX)
    return moved


def _targets(bins: Bins, demand: Demand) -> list[Target]:
    """The number of instances of each component per bin, with the fewest moves."""
    count = len(bins)
    # Large instances choose first: limits leave them the least freedom.
    parts = sorted(demand.components, key=lambda part: (-part.size[1], -part.size[0]))
    number = {part.name: k for k, part in enumerate(parts)}
    targets = [Target(part, part.parallelism // count, set(), {}) for part in parts]
    for c, one in enumerate(bins):
        for name, n in one.types.items():
            targets[number[name]].have[c] = n
    chosen = choose_extras(
        count,
        [part.parallelism % count for part in parts],
        [{c for c, n in target.have.items() if n > target.base} for target in targets],
        upstream=[[number[name] for name in part.upstream if name in number] for part in parts],
        weights=[_weight(demand, part) for part in parts],
    )
    for target, extras in zip(targets, chosen, strict=True):
        target.extras = extras
    return targets


def _weight(demand: Demand, part: ComponentDemand) -> float:
    """The largest share of a container that one instance takes; 0 without limits."""
    return max(
        (size / room for size, room in zip(part.size, demand.usable, strict=True) if room),
        default=0.0,
    )


def _movers(bins: Bins, target: Target, homeless: list[Item]) -> list[Item]:
    """Take the instances above the target out of the bins, and drop those no longer wanted.

    Tasks of closed containers are dropped first, then the highest index from the fullest container;
    the others need a new place.
    """
    name = target.component.name
    surplus: list[tuple[int, int, Item, Bin]] = []
    for number, above in target.surplus():
        one = bins.bins[number]
        surplus += [(len(one), item.index, item, one) for item in one.of(name)[-above:]]
    for _, _, item, one in surplus:
        bins.remove(one, item)
    surplus.sort(key=lambda entry: (-entry[0], -entry[1]))
    homeless = sorted(homeless, key=lambda item: -item.index)
    have = len(homeless) + sum(target.have.values())
    given_up = max(0, have - target.component.parallelism)
    return [*homeless, *(item for _, _, item, _ in surplus)][given_up:]
