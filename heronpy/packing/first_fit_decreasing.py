"""First fit decreasing: few containers, found by placing large instances first. Pure.

Each instance goes to the first container that it fits in. Without any limit, all instances fit in one container.
The limits determine the number of containers, so requesting a number is an error.
"""

from __future__ import annotations

from typing import ClassVar

from heronpy.common.errors import ConfigError
from heronpy.packing.bins import Bin, Bins, Change, Item, reshape
from heronpy.packing.demand import Demand, Size

_FIX = "raise the limit of a container or make the instance smaller"


class FirstFitDecreasing:
    """Packs each instance into the first container with room for it, largest instances first."""

    name: ClassVar[str] = "first_fit_decreasing"
    fixed_containers: ClassVar[bool] = False

    def pack(self, demand: Demand, items: list[list[Item]]) -> Bins:
        _refuse_count(demand)
        bins = Bins(demand)
        _first_fit(bins, items)
        return bins

    def repack(self, bins: Bins, demand: Demand, next_task_id: int) -> Change:
        _refuse_count(demand)
        change = reshape(bins, demand, next_task_id, len(bins))
        _first_fit(bins, change.groups())
        bins.drop_empty()
        return change


def _refuse_count(demand: Demand) -> None:
    if demand.containers is not None:
        raise ConfigError(
            "first_fit_decreasing determines the number of containers itself; omit the number or use round_robin"
        )


def _first_fit(bins: Bins, items: list[list[Item]]) -> None:
    cpu_first = bins.demand.cpu_first

    def decreasing(group: list[Item]) -> tuple[float, float, float]:
        cpu, ram, disk = group[0].size
        return (-cpu, -ram, -disk) if cpu_first else (-ram, -cpu, -disk)

    groups = sorted(items, key=decreasing)
    smallest = _smallest_after(groups)
    bins.bins.sort(key=lambda one: one.id)
    candidates: list[Bin] = list(bins)
    for group, least in zip(groups, smallest, strict=True):
        # From now on, skip bins that have no room for any remaining item.
        candidates = [one for one in candidates if bins.fits(one, least)]
        candidates = _place_group(bins, group, candidates)


def _place_group(bins: Bins, group: list[Item], candidates: list[Bin]) -> list[Bin]:
    place = 0
    for item in group:
        # Items of a group have the same size, so the search continues from the last bin with room.
        while place < len(candidates) and not bins.fits(candidates[place], item.size):
            place += 1
        if place == len(candidates):
            opened = bins.open()
            if not bins.fits(opened, item.size):
                raise bins.no_room(item, _FIX)
            candidates.append(opened)
        bins.add(candidates[place], item)
    return candidates


def _smallest_after(groups: list[list[Item]]) -> list[Size]:
    """Return for each group the minimum size per dimension over this group and all later groups."""
    result: list[Size] = []
    for group in reversed(groups):
        size = group[0].size
        if result:
            last = result[-1]
            size = (min(size[0], last[0]), min(size[1], last[1]), min(size[2], last[2]))
        result.append(size)
    return result[::-1]
