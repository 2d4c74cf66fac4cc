"""Assigns instances to containers. Pure.

`pack` makes the first plan of a topology. `repack` makes the next plan, with as few moves as the algorithm allows, and
`resize` makes a plan in which no task moves. Task ids start at 1 in component order, spouts first, and are never
reused; containers are numbered from 1. Repacking without any change returns the current plan itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heronpy.common.errors import ConfigError, TopologyError
from heronpy.common.nearest import did_you_mean
from heronpy.packing.balanced import Balanced
from heronpy.packing.bins import Bins, Packing, new_items, same_plan
from heronpy.packing.demand import demand_of
from heronpy.packing.first_fit_decreasing import FirstFitDecreasing
from heronpy.packing.round_robin import ResourceCompliantRoundRobin, RoundRobin
from heronpy.plan import packing_plan

if TYPE_CHECKING:
    from heronpy.common.setting_types import PackingSettings

__all__ = ["ALGORITHMS", "Packing", "get_algorithm", "pack", "repack", "resize"]

ALGORITHMS: dict[str, Packing] = {
    algorithm.name: algorithm
    for algorithm in (
        RoundRobin(),
        ResourceCompliantRoundRobin(),
        FirstFitDecreasing(),
        Balanced(),
    )
}


def get_algorithm(name: str) -> Packing:
    """Return the packing algorithm of this name. Raises ConfigError if no algorithm has this name."""
    found = ALGORITHMS.get(name)
    if found is None:
        raise ConfigError(
            f"there is no packing algorithm '{name}'{did_you_mean(name, ALGORITHMS)}; "
            f"choose one of {', '.join(ALGORITHMS)}"
        )
    return found


def pack(topology: Any, settings: PackingSettings, containers: int | None = None) -> Any:
    """Make the first PackingPlan of a topology.

    `containers` overrides `topology.stmgrs`. Raises TopologyError if an instance fits in no
    container or a container would stay empty, and ConfigError if a setting is invalid.
    """
    algorithm = get_algorithm(settings.algorithm)
    demand = demand_of(topology, settings, containers, share_requested=algorithm.fixed_containers)
    items = new_items(demand)
    bins = algorithm.pack(demand, items)
    return bins.to_plan(version=1, next_task_id=demand.task_count + 1)


def repack(current: Any, topology: Any, settings: PackingSettings, containers: int | None = None) -> Any:
    """Make the next PackingPlan for a changed topology or number of containers.

    Without `containers`, the number of containers stays the same (algorithms with limits may add some). Running
    tasks keep their ids, and stay in their containers if the algorithm allows it. The version grows by one;
    if nothing changes, the current plan itself is returned.
    """
    algorithm = get_algorithm(settings.algorithm)
    demand = demand_of(topology, settings, containers, share_requested=algorithm.fixed_containers)
    bins = Bins.from_plan(demand, current)
    change = algorithm.repack(bins, demand, packing_plan.next_task_id(current))
    result = bins.to_plan(version=current.version + 1, next_task_id=change.next_task_id)
    return current if same_plan(current, result) else result


def resize(current: Any, topology: Any, settings: PackingSettings) -> Any:
    """Return the current plan with the task sizes of a changed topology, or the plan itself if the sizes are equal.

    Raises TopologyError if a container would exceed the limit of the topology.
    """
    fixed = get_algorithm(settings.algorithm).fixed_containers
    bins = Bins.from_plan(demand := demand_of(topology, settings, None, share_requested=fixed), current)
    full = next((one.id for one in bins if bins.overflows(one)), None)
    if full is not None:
        raise TopologyError(
            f"the tasks of container {full} would exceed the limits of a container of topology '{demand.topology}';"
            " raise topology.container.max.ram.hint or topology.container.max.cpu.hint, or spread the tasks with"
            " --container-number"
        )
    result = bins.to_plan(current.version + 1, packing_plan.next_task_id(current))
    return current if same_plan(current, result) else result
