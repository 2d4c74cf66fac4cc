"""Round robin: deal the instances one by one over a given number of containers. Pure.

Components with large instances come first. Without limits, the number of tasks per container, in total and
of each component, differs by at most one. With limits, full containers are skipped. A repacking leaves
every running task in place unless the number of containers changes.

Resource compliant round robin opens another container where limits require it, and never exceeds a limit; the
configured number of containers is only the initial one.
"""

from __future__ import annotations

from typing import ClassVar

from heronpy.packing.bins import (
    Bins,
    Change,
    Item,
    check_count,
    container_count,
    level_counts,
    place_least_loaded,
    reshape,
)
from heronpy.packing.demand import Demand

_FIX = "request more containers, raise the limit of a container, or use the algorithm resource_compliant_round_robin"


class RoundRobin:
    """Deals instances in turn over a fixed number of containers."""

    name: ClassVar[str] = "round_robin"
    fixed_containers: ClassVar[bool] = True
    #: The fix that the error suggests if an instance fits in no container.
    fix: ClassVar[str] = _FIX

    def pack(self, demand: Demand, items: list[list[Item]]) -> Bins:
        bins = Bins(demand, container_count(demand))
        deal(bins, items, may_open=not self.fixed_containers)
        return bins

    def repack(self, bins: Bins, demand: Demand, next_task_id: int) -> Change:
        if demand.containers is not None:
            check_count(demand, demand.containers)
        change = self.placed_again(bins, demand, next_task_id)
        bins.drop_empty()
        return change

    def placed_again(self, bins: Bins, demand: Demand, next_task_id: int) -> Change:
        """Repack without closing bins that have become empty."""
        before = len(bins)
        count = demand.containers or min(before, demand.task_count)
        change = reshape(bins, demand, next_task_id, count)
        for group in change.groups():
            place_least_loaded(bins, group, may_open=not self.fixed_containers, fix=self.fix)
        if count != before:
            level_counts(bins)
        return change


def deal(bins: Bins, items: list[list[Item]], *, may_open: bool) -> None:
    """Deal items in turn, largest components first; with `may_open`, open a bin for an item that fits in no bin."""
    position = 0
    for group in sorted(items, key=lambda group: (-group[0].size[1], -group[0].size[0])):
        position = _deal_group(bins, group, position, may_open)


def _deal_group(bins: Bins, group: list[Item], position: int, may_open: bool) -> int:
    """Deal items of one size, beginning at this position among the bins; returns the next position."""
    order = [*range(position, len(bins)), *range(position)]
    turn = 0
    for item in group:
        while order:
            if turn >= len(order):
                turn = 0
            if bins.fits(bins.bins[order[turn]], item.size):
                break
            # All items of the group have the same size, so none of them fits into this bin.
            del order[turn]
        else:
            if not may_open or not bins.fits(bins.open(), item.size):
                raise bins.no_room(item, _FIX)
            order, turn = [len(bins) - 1], 0
        position = order[turn]
        bins.add(bins.bins[position], item)
        turn += 1
    return (position + 1) % len(bins)


class ResourceCompliantRoundRobin(RoundRobin):
    """Round robin that opens containers instead of exceeding limits."""

    name: ClassVar[str] = "resource_compliant_round_robin"
    fixed_containers: ClassVar[bool] = False
    fix: ClassVar[str] = "raise the limit of a container or make the instance smaller"
