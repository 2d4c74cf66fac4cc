"""Resource compliant round robin: like round robin, but opens another container where limits require it.

Never exceeds a limit; the configured number of containers is only the initial one.
"""

from __future__ import annotations

from typing import ClassVar

from heronpy.packing.base import (
    Change,
    check_count,
    container_count,
    level_counts,
    place_least_loaded,
    reshape,
)
from heronpy.packing.bins import Bins, Item
from heronpy.packing.demand import Demand
from heronpy.packing.round_robin import deal

_FIX = "raise the limit of a container or make the instance smaller"


class ResourceCompliantRoundRobin:
    """Round robin that adds containers rather than overfilling one."""

    name: ClassVar[str] = "resource_compliant_round_robin"
    fixed_containers: ClassVar[bool] = False

    def pack(self, demand: Demand, items: list[list[Item]]) -> Bins:
        bins = Bins(demand, container_count(demand))
        deal(bins, items, may_open=True)
        return bins

    def repack(self, bins: Bins, demand: Demand, next_task_id: int) -> Change:
        if demand.containers is not None:
            check_count(demand, demand.containers)
        before = len(bins)
        count = demand.containers or min(before, demand.task_count)
        change = reshape(bins, demand, next_task_id, count)
        for group in change.groups():
            place_least_loaded(bins, group, may_open=True, fix=_FIX)
        if count != before:
            level_counts(bins)
        bins.drop_empty()
        return change
