"""Where the odd instances go, so that both counts are even with the fewest moves. Pure.

A component of p instances over C containers gives each p // C, and one more to p % C of them: the
*extras*. Only the extras can be chosen. Their number per container must differ by at most one, and
running tasks should stay where they are: an extra is *free* where a running task already fills it.
This is a minimum cost flow from components to containers (all arcs have capacity 1): it starts from
the cheapest choice per component, and sends the imbalance along cheapest paths, which preserves
optimality (successive shortest paths).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

#: The node that stands for "containers may differ by one extra".
_SINK = -1
#: Weight in a score: far below any load, and far above any number of extras.
_NEAR, _FREE = 1e-9, 1e9


@dataclass(slots=True)
class Extras:
    """The extras of every component, by number of component and of container."""

    containers: int
    #: containers that have one more of component k
    chosen: list[set[int]] = field(default_factory=list)
    #: containers in which an extra of component k costs no move
    free: list[set[int]] = field(default_factory=list)
    #: components that have an extra in container c
    held: list[set[int]] = field(default_factory=list)
    #: every container must have low to high extras; high is low or low + 1
    low: int = 0
    high: int = 0
    #: what each container passes to the sink; more extras than this are an excess, fewer a deficit
    passed: list[int] = field(default_factory=list)


def choose_extras(
    containers: int,
    wanted: Sequence[int],
    free: Sequence[set[int]],
    upstream: Sequence[Sequence[int]],
    weights: Sequence[float],
) -> list[set[int]]:
    """For each component the containers that get one instance more than the others.

    `wanted[k]` is their number (below `containers`), `free[k]` the containers where one costs no move,
    `upstream[k]` the components that feed k. On a tie, containers with less load are taken (`weights[k]` is
    that of one instance), then those with more of the upstream, so that tuples stay local.
    """
    extras = Extras(containers, free=list(free), held=[set() for _ in range(containers)])
    # The extras so far, plus their load as a fraction that never adds up to one.
    score = [0.0] * containers
    scale = 0.5 / (1.0 + sum(n * weight for n, weight in zip(wanted, weights, strict=True)))
    for k, count in enumerate(wanted):
        chosen = _cheapest(extras, k, count, upstream[k], score)
        extras.chosen.append(chosen)
        for container in chosen:
            extras.held[container].add(k)
            score[container] += 1.0 + weights[k] * scale
    _even_out(extras)
    return extras.chosen


def _cheapest(extras: Extras, k: int, count: int, upstream: Sequence[int], score: list[float]) -> set[int]:
    """The containers for the extras of one component by itself: free ones, then the least loaded."""
    if count == 0:
        return set()
    score = score.copy()
    for u in upstream:
        for container in extras.chosen[u] if u < k else ():
            score[container] -= _NEAR
    for container in extras.free[k]:
        score[container] -= _FREE
    return set(sorted(range(extras.containers), key=score.__getitem__)[:count])


def _even_out(extras: Extras) -> None:
    """Make the number of extras per container even, at minimum cost."""
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
    """The cheapest path from an excess to a deficit; `cost_min` is a lower bound of its cost."""
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
    """(target, component, price) of the arcs that leave a node reached at this cost."""
    if node == _SINK:
        return [(c, _SINK, 0) for c in range(extras.containers) if extras.passed[c] > extras.low]
    found = [(_SINK, _SINK, 0)] if extras.passed[node] < extras.high else []
    for k in extras.held[node]:
        free, chosen = extras.free[k], extras.chosen[k]
        leaving = 1 if node in free else 0
        # Another container offers this component as cheaply: nothing new can be reached.
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
