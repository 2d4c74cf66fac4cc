"""Balanced: all containers have the same number of tasks, and of tasks of each component, to within one. Pure.

Both hold after packing and after every repacking; a repacking reaches this with the minimum number of
moves for the given number of containers. Where there is a choice, downstream instances go where their
upstream is. Both balances are compatible because only the remainders of components are free to
choose (see evenness.py).

Two things come before evenness. Where the limits of a container leave no even spread, instances are dealt as by
round robin. And a repacking that keeps the containers moves no more than a share of the running tasks, because a
task that moves is started again, and without checkpoints all spouts wait for it: what an update changes is usually
one component, while evenness of a plan that was made in another way may ask for nearly all tasks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from heronpy.packing.base import (
    Change,
    added_items,
    check_count,
    close_bins,
    container_count,
    count_by_component,
    level_counts,
)
from heronpy.packing.bins import Bin, Bins, Item
from heronpy.packing.demand import ComponentDemand, Demand
from heronpy.packing.evenness import choose_extras
from heronpy.packing.round_robin import RoundRobin


class Balanced(RoundRobin):
    """Even numbers of tasks, in total and of every component."""

    name: ClassVar[str] = "balanced"

    def pack(self, demand: Demand, items: list[list[Item]]) -> Bins:
        bins = Bins(demand, container_count(demand))
        return bins if _settle(bins, demand, [], items)[1] else super().pack(demand, items)

    def repack(self, bins: Bins, demand: Demand, next_task_id: int) -> Change:
        if demand.containers is not None:
            check_count(demand, demand.containers)
        moves_max = math.ceil(bins.task_count * demand.moves_percent / 100)
        even = bins.copy()
        change, fits = _even_out(even, demand, next_task_id)
        if fits and (len(even) != len(bins) or len(change.homeless) <= moves_max):
            bins.take(even)
            return change
        change = super().repack(bins, demand, next_task_id)
        level_counts(bins, moves_max)
        return change


def _even_out(bins: Bins, demand: Demand, next_task_id: int) -> tuple[Change, bool]:
    """Repack with the fewest moves that make the bins even; also whether the limits of the bins allow it."""
    count = demand.containers or min(len(bins), demand.task_count)
    _drop_unknown(bins, demand)
    added, next_task_id = added_items(bins, demand, next_task_id)
    closed = close_bins(bins, len(bins) - count)
    while len(bins) < count:
        bins.open()
    moved, fits = _settle(bins, demand, closed, added)
    return Change(moved, added, next_task_id), fits


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


def _settle(bins: Bins, demand: Demand, homeless: list[Item], added: list[list[Item]]) -> tuple[list[Item], bool]:
    """Remove, move and add instances until the bins are even.

    Returns the running tasks that moved, and whether the limits of the bins allow it.
    """
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
        # In turn, the emptiest container first: as round robin deals them, whose plans people know.
        places.sort(key=lambda place: len(bins.bins[place[0]]))
        for turn in range(max((count for _, count in places), default=0)):
            for number, count in places:
                if turn < count:
                    bins.add(bins.bins[number], next(waiting))
    return moved, not any(bins.overflows(one) for one in bins)


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
