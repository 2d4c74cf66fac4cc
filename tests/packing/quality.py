"""How even a packing plan is: tasks per container, and tasks of one component per container.

Both kinds of imbalance hurt: uneven counts overload some containers, uneven types put the same kind
of load in one place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class PackingQuality:
    """Figures of one plan; a spread is the largest number less the smallest."""

    tasks: int
    containers: int
    tasks_min: int
    tasks_max: int
    #: Spread of each component over all containers, also those that have none of it.
    spreads: dict[str, int]
    #: The fullest container's RAM against the mean, 1 when even; 0 when no RAM was asked for.
    ram_skew: float

    @property
    def count_spread(self) -> int:
        return self.tasks_max - self.tasks_min

    @property
    def type_spread(self) -> int:
        return max(self.spreads.values(), default=0)


def quality_of(plan: Any) -> PackingQuality:
    """The evenness of a packing plan."""
    counts: list[int] = []
    types: dict[str, list[int]] = {}
    ram: list[int] = []
    for container in plan.containers:
        counts.append(len(container.instances))
        here: dict[str, int] = {}
        for item in container.instances:
            here[item.component] = here.get(item.component, 0) + 1
        for component, count in here.items():
            types.setdefault(component, []).append(count)
        ram.append(sum(item.resource.ram_bytes for item in container.instances))
    mean_ram = sum(ram) / len(ram) if ram else 0.0
    return PackingQuality(
        tasks=sum(counts),
        containers=len(counts),
        tasks_min=min(counts, default=0),
        tasks_max=max(counts, default=0),
        spreads={
            component: max(found) - (min(found) if len(found) == len(counts) else 0)
            for component, found in types.items()
        },
        ram_skew=max(ram) / mean_ram if mean_ram else 0.0,
    )
