"""Balanced: the number of tasks per container, in total and of each component, differs by at most one. Pure.

Both balances hold after packing and after every repacking, which uses the minimum number of moves for the given number
of containers. If there is a choice, downstream instances are placed with their upstream instances. Both balances are
compatible because only the remainders of components can be chosen (see `choose_extras`).

Two rules take precedence over evenness. If the limits of a container prevent an even spread, instances are dealt as in
round robin. And a repacking that keeps the number of containers moves at most a share of the running tasks, because a
moved task restarts, and without checkpoints all spouts wait for the task. An update usually changes one component, but
balancing a plan from another algorithm may require moving nearly all tasks.

The remainders are placed as a minimum cost flow. A component with p instances over C containers puts p // C instances
into each container, and one more, an *extra*, into p % C containers. Only the extras can be chosen. Their number per
container must differ by at most one, and running tasks should not move: an extra is *free* where a running task already
fills it. The flow goes from components to containers (all arcs have capacity 1): it starts from the cheapest choice per
component, and sends the imbalance along cheapest paths, which preserves optimality (successive shortest paths).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

from msgspec import Struct, field

from heronpy.packing.bins import (
    Bin,
    Bins,
    Change,
    Item,
    added_items,
    check_count,
    close_bins,
    container_count,
    count_by_component,
    level_counts,
)
from heronpy.packing.demand import ComponentDemand, Demand
from heronpy.packing.round_robin import RoundRobin

#: The node of the flow that allows containers to differ by one extra.
_SINK = -1
#: Weight of a load in a score; larger than any number of extras.
_NEAR, _FREE = 1e-9, 1e9


class Extras(Struct):
    """The extras of all components, by component number and container number."""

    containers: int
    #: by component k: the containers with one more instance of it
    chosen: list[set[int]] = field(default_factory=list)
    #: by component k: the containers in which an extra costs no move
    free: list[set[int]] = field(default_factory=list)
    #: by container c: the components with an extra in it
    held: list[set[int]] = field(default_factory=list)
    #: minimum and maximum number of extras per container; high is low or low + 1
    low: int = 0
    high: int = 0
    #: Number of extras that each container passes to the sink. More extras are an excess, fewer are a deficit.
    passed: list[int] = field(default_factory=list)


def choose_extras(
    containers: int,
    wanted: Sequence[int],
    free: Sequence[set[int]],
    upstream: Sequence[Sequence[int]],
    weights: Sequence[float],
) -> list[set[int]]:
    """Choose for each component the containers that get one more instance than the others.

    `wanted[k]` is the number of such containers (below `containers`), `free[k]` contains the containers in which an
    extra costs no move, and `upstream[k]` the components that feed k. On a tie, containers with less load are taken
    (`weights[k]` is the load of one instance), then containers with more upstream instances, so that tuples stay local.
    """
    extras = Extras(containers, free=list(free), held=[set() for _ in range(containers)])
    # Number of extras so far, plus their load scaled so that its sum stays below 1.
    score = [0.0] * containers
    scale = 0.5 / (1.0 + sum(n * weight for n, weight in zip(wanted, weights, strict=True)))
    for k, count in enumerate(wanted):
        chosen = _cheapest(extras, k, count, upstream[k], score)
        extras.chosen.append(chosen)
        for container in chosen:
            extras.held[container].add(k)
            score[container] += 1.0 + weights[k] * scale
    _even_out_extras(extras)
    return extras.chosen


def _cheapest(extras: Extras, k: int, count: int, upstream: Sequence[int], score: list[float]) -> set[int]:
    """Choose containers for the extras of one component: free containers first, then the least loaded."""
    if count == 0:
        return set()
    score = score.copy()
    for u in upstream:
        for container in extras.chosen[u] if u < k else ():
            score[container] -= _NEAR
    for container in extras.free[k]:
        score[container] -= _FREE
    return set(sorted(range(extras.containers), key=score.__getitem__)[:count])


def _even_out_extras(extras: Extras) -> None:
    """Equalize the number of extras per container, at minimum cost."""
    total = sum(len(held) for held in extras.held)
    extras.low, rest = divmod(total, extras.containers)
    extras.high = extras.low + (1 if rest else 0)
    extras.passed = [min(max(len(held), extras.low), extras.high) for held in extras.held]
    passed = extras.passed
    cost_min = 0
    while True:
        excess = [c for c in range(extras.containers) if len(extras.held[c]) > passed[c]]
        deficit = {c for c in range(extras.containers) if len(extras.held[c]) < passed[c]}
        sink_excess = sum(passed) - total
        if sink_excess > 0:
            excess.append(_SINK)
        elif sink_excess < 0:
            deficit.add(_SINK)
        if not excess:
            return
        path, cost_min = _cheapest_path(extras, excess, deficit, cost_min)
        _send(extras, path)


def _send(extras: Extras, path: list[tuple[int, int]]) -> None:
    """Shift one unit along a path of (node, component used to reach the next node)."""
    for (source, k), (target, _) in pairwise(path):
        if target == _SINK:
            extras.passed[source] += 1
        elif source == _SINK:
            extras.passed[target] -= 1
        else:
            extras.chosen[k].remove(source)
            extras.chosen[k].add(target)
            extras.held[source].remove(k)
            extras.held[target].add(k)


def _cheapest_path(
    extras: Extras, excess: list[int], deficit: set[int], cost_min: int
) -> tuple[list[tuple[int, int]], int]:
    """Find the cheapest path from an excess to a deficit; `cost_min` is a lower bound for its cost."""
    cost = dict.fromkeys(excess, 0)
    came: dict[int, tuple[int, int]] = {}
    # The cheapest known way to take an extra of component k away from some container.
    offered: dict[int, int] = {}
    waiting = deque(excess)
    queued = set(excess)
    while waiting:
        node = waiting.popleft()
        queued.discard(node)
        for target, k, price in _arcs(extras, node, cost[node], offered):
            reached = cost[node] + price
            if target not in cost or reached < cost[target]:
                cost[target] = reached
                came[target] = (node, k)
                if target in deficit and reached <= cost_min:
                    return _path(came, target), reached
                if target not in queued:
                    queued.add(target)
                    waiting.append(target)
    best = min((node for node in deficit if node in cost), key=cost.__getitem__)
    return _path(came, best), cost[best]


def _arcs(extras: Extras, node: int, cost: int, offered: dict[int, int]) -> list[tuple[int, int, int]]:
    """Return (target, component, price) of the arcs that leave a node reached at this cost."""
    if node == _SINK:
        return [(c, _SINK, 0) for c in range(extras.containers) if extras.passed[c] > extras.low]
    found = [(_SINK, _SINK, 0)] if extras.passed[node] < extras.high else []
    for k in extras.held[node]:
        free, chosen = extras.free[k], extras.chosen[k]
        leaving = 1 if node in free else 0
        # Another container offers this component at no higher cost, so this arc reaches no new node.
        if k in offered and offered[k] <= cost + leaving:
            continue
        offered[k] = cost + leaving
        found += [(c, k, leaving - (1 if c in free else 0)) for c in range(extras.containers) if c not in chosen]
    return found


def _path(came: dict[int, tuple[int, int]], end: int) -> list[tuple[int, int]]:
    path = [(end, _SINK)]
    while path[-1][0] in came:
        node, k = came[path[-1][0]]
        path.append((node, k))
    return path[::-1]


class Balanced(RoundRobin):
    """Distributes tasks evenly over the containers, in total and for every component."""

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
        change = self.placed_again(bins, demand, next_task_id)
        level_counts(bins, moves_max)
        bins.drop_empty()
        return change


def _even_out(bins: Bins, demand: Demand, next_task_id: int) -> tuple[Change, bool]:
    """Repack with the fewest moves that level the bins; also returns whether the limits allow level bins."""
    count = demand.containers or min(len(bins), demand.task_count)
    _drop_unknown(bins, demand)
    added, next_task_id = added_items(bins, demand, next_task_id)
    closed = close_bins(bins, len(bins) - count)
    while len(bins) < count:
        bins.open()
    moved, fits = _settle(bins, demand, closed, added)
    return Change(moved, added, next_task_id), fits


def _drop_unknown(bins: Bins, demand: Demand) -> None:
    for name in count_by_component(bins).keys() - {part.name for part in demand.components}:
        for one in bins:
            for item in one.of(name):
                bins.remove(one, item)


class Target(Struct):
    """The number of instances of a component for each bin: `base`, and one more in `extras`."""

    component: ComponentDemand
    base: int
    extras: set[int]
    #: current instances by number of bin; bins without instances are absent
    have: dict[int, int]

    def of(self, number: int) -> int:
        return self.base + (number in self.extras)

    def surplus(self) -> list[tuple[int, int]]:
        """Return (bin, surplus) for each bin with more instances than the target."""
        return [(c, n - self.of(c)) for c, n in sorted(self.have.items()) if n > self.of(c)]

    def missing(self, containers: int) -> list[tuple[int, int]]:
        """Return (bin, deficit) for each bin with fewer instances than the target."""
        places = range(containers) if self.base else sorted(self.extras)
        found = [(c, self.of(c) - self.have.get(c, 0)) for c in places]
        return [(c, n) for c, n in found if n > 0]


def _settle(bins: Bins, demand: Demand, homeless: list[Item], added: list[list[Item]]) -> tuple[list[Item], bool]:
    """Remove, move and add instances until the bins are even.

    Returns the running tasks that moved, and whether the limits of the bins allow even bins.
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
        # Deal in turn as round robin does, beginning with the emptiest container.
        places.sort(key=lambda place: len(bins.bins[place[0]]))
        for turn in range(max((count for _, count in places), default=0)):
            for number, count in places:
                if turn < count:
                    bins.add(bins.bins[number], next(waiting))
    return moved, not any(bins.overflows(one) for one in bins)


def _targets(bins: Bins, demand: Demand) -> list[Target]:
    """Compute how many instances of each component to put in each bin so that the fewest have to move."""
    count = len(bins)
    # Place large instances first, because limits leave them the fewest choices.
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
    """Return the largest share of a container that one instance uses, over all dimensions; 0 without limits."""
    return max(
        (size / room for size, room in zip(part.size, demand.usable, strict=True) if room),
        default=0.0,
    )


def _movers(bins: Bins, target: Target, homeless: list[Item]) -> list[Item]:
    """Remove the instances above the target from the bins; drop surplus tasks, and return the rest.

    Tasks of closed containers are dropped first, then the highest index from the fullest container.
    The returned instances need a new bin.
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
