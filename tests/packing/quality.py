"""How even a packing plan is: tasks per container, and tasks of one component per container.

Both kinds of imbalance hurt: uneven counts overload some containers, uneven types put the same kind
of load in one place.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple


class PackingQuality(NamedTuple):
    """Figures of one plan. A spread is the largest number less the smallest."""

    tasks: int
    containers: int
    #: Tasks of the fullest container.
    tasks_max: int
    count_spread: int
    #: The largest spread of a component over all containers, also those that have none of it.
    type_spread: int


def quality_of(plan: Any) -> PackingQuality:
    types = [Counter(item.component for item in container.instances) for container in plan.containers]
    counts = [found.total() for found in types]
    spreads = [
        max(found[name] for found in types) - min(found[name] for found in types) for name in set().union(*types)
    ]
    spread = max(counts, default=0) - min(counts, default=0)
    return PackingQuality(sum(counts), len(counts), max(counts, default=0), spread, max(spreads, default=0))
