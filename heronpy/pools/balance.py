"""Levels the load of slots, in cores and memory, with few moves. Pure.

The load of a slot is the used share of its cores or of its memory, whichever is larger. Levelling begins when a slot is
more than 10 % away from the mean, and ends when all slots are within 5 %. Overloaded slots are levelled first.
Invariants: No move overloads a slot. Each step is the move or swap between the hottest and the coldest slot that lowers
the larger of their loads most. The number of moves never exceeds the budget.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from heronpy.pools.shards import Size

BEGIN: Final = 0.10
END: Final = 0.05
#: Maximum share of the loaded shards that moves in one round.
BUDGET: Final = 0.05
#: Number of shards that may always move, because a swap moves two.
BUDGET_MIN: Final = 2
#: Shards with a load below this share of a slot are not moved, because a move costs a restart.
WORTH: Final = 0.1
_ROUNDING: Final = 1e-9


class Balanced(NamedTuple):
    """The moves of a round, and the reason why the slots are still not level."""

    moves: dict[int, int]
    """Map from shard to slot."""
    why: str = ""
    """The slot that cannot be levelled, with its load; "" if the slots are level."""


class Loads:
    """Tracks the loads of slots of equal size while shards are added and removed."""

    def __init__(self, slots: Iterable[int], size: Size) -> None:
        self._size = size
        self.shards: dict[int, dict[int, Size]] = {slot: {} for slot in slots}
        self._sums = {slot: Size() for slot in self.shards}
        #: Map from slot to the used share of its capacity.
        self.shares = dict.fromkeys(self.shards, 0.0)
        self._counts = dict.fromkeys(self.shards, 0)
        #: Heaps of slots, by load and by number of shards; outdated entries are skipped.
        self._cool: list[tuple[float, int, int]] = []
        self._few: list[tuple[int, int]] = []

    def give(self, shard: int, load: Size | None, slot: int) -> None:
        """Add a shard to a slot; `load` is None if no container of the shard runs."""
        self._counts[slot] += 1
        if load is not None:
            self.shards[slot][shard] = load
            self._sum(slot, self._sums[slot] + load)
        self._sort(slot)

    def take(self, shard: int, slot: int) -> Size | None:
        self._counts[slot] -= 1
        load = self.shards[slot].pop(shard, None)
        # The sum is computed from scratch: the errors of repeated subtraction add up.
        self._sum(slot, sum(self.shards[slot].values(), Size()))
        self._sort(slot)
        return load

    def place(self, shard: int, load: Size | None) -> int:
        """Add a shard to the slot with the least load, or a shard without a load to the slot with the fewest shards."""
        slot = self.coolest() if load is not None else self._emptiest()
        self.give(shard, load, slot)
        return slot

    def coolest(self) -> int:
        """Return the slot with the least load; among equal slots, the slot with the fewest shards."""
        if not self._cool:
            self._cool = [self._key(slot) for slot in self.shares]
            heapq.heapify(self._cool)
        while self._cool[0] != self._key(self._cool[0][2]):
            heapq.heappop(self._cool)
        return self._cool[0][2]

    def _emptiest(self) -> int:
        if not self._few:
            self._few = [(count, slot) for slot, count in self._counts.items()]
            heapq.heapify(self._few)
        while self._few[0][0] != self._counts[self._few[0][1]]:
            heapq.heappop(self._few)
        return self._few[0][1]

    def _key(self, slot: int) -> tuple[float, int, int]:
        return self.shares[slot], self._counts[slot], slot

    def _sum(self, slot: int, load: Size) -> None:
        self._sums[slot], self.shares[slot] = load, load.share_of(self._size)

    def _sort(self, slot: int) -> None:
        """Push the new values of a slot onto the existing heaps."""
        if self._cool:
            heapq.heappush(self._cool, self._key(slot))
        if self._few:
            heapq.heappush(self._few, (self._counts[slot], slot))

    def after(self, slot: int, gone: Size, come: Size) -> float:
        """Return the used share of a slot if the load `gone` left it and the load `come` were added."""
        return (self._sums[slot] - gone + come).share_of(self._size)


def balance(owners: Mapping[int, int], loads: Mapping[int, Size], slots: Iterable[int], size: Size) -> Balanced:
    """Compute the moves of one round; `owners` maps movable shards with a load to their slots."""
    known = Loads(slots, size)
    for shard, slot in owners.items():
        known.give(shard, loads[shard], slot)
    if len(known.shares) < 2:
        return Balanced({})
    budget, moves = max(BUDGET_MIN, int(BUDGET * len(owners))), dict[int, int]()
    limit = BEGIN
    while True:
        shares = known.shares
        mean = sum(shares.values()) / len(shares)
        hot, cold = max(shares, key=lambda slot: (shares[slot], -slot)), known.coolest()
        away = max(shares[hot] - mean, mean - shares[cold])
        if shares[hot] <= 1 and (away <= limit * mean or shares[hot] < WORTH):
            return Balanced(moves)
        limit = END
        there, back = best_step(known, hot, cold)
        changed = [shard for shard in (there, back) if shard is not None]
        if not changed:
            why = f"slot {hot} is {shares[hot]:.0%} full, and no move to or swap with the emptiest slot helps"
            return Balanced(moves, f"{why}; the mean is {mean:.0%}")
        if len(moves.keys() | set(changed)) > budget:
            return Balanced(moves, f"slot {hot} is {shares[hot]:.0%} full; the mean is {mean:.0%}; more moves follow")
        for one, source, target in ((there, hot, cold), (back, cold, hot)):
            if one is not None:
                known.give(one, known.take(one, source), target)
                moves[one] = target
                if owners[one] == target:
                    del moves[one]


def is_pressing(owners: Mapping[int, int], loads: Mapping[int, Size], slots: Iterable[int], size: Size) -> bool:
    """Whether a slot is overloaded, or has no load while another slot has several loaded shards."""
    counts = dict.fromkeys(slots, 0)
    cpu, ram_bytes = dict.fromkeys(counts, 0.0), dict.fromkeys(counts, 0)
    for shard, slot in owners.items():
        counts[slot] += 1
        cpu[slot] += loads[shard].cpu
        ram_bytes[slot] += loads[shard].ram_bytes
    if len(counts) < 2:
        return False
    is_over = max(cpu.values()) > size.cpu * (1 + _ROUNDING) or max(ram_bytes.values()) > size.ram_bytes
    return is_over or (min(counts.values()) == 0 and max(counts.values()) > 1)


def best_step(known: Loads, hot: int, cold: int) -> tuple[int | None, int | None]:
    """Return the shard to move from the hottest slot to the coldest, and the shard to move back, if any."""
    best = known.shares[hot] - _ROUNDING
    step: tuple[int | None, int | None] = (None, None)
    others: list[tuple[int | None, Size]] = [(None, Size()), *sorted(known.shards[cold].items())]
    for there, load in sorted(known.shards[hot].items()):
        for back, other in others:
            cooler, warmer = known.after(hot, load, other), known.after(cold, other, load)
            if warmer <= 1 and max(cooler, warmer) < best:
                best, step = max(cooler, warmer), (there, back)
    return step


def is_uneven(counts: Mapping[int, int]) -> bool:
    """Whether any slot has less than half of its fair number of shards."""
    return min(counts.values()) < sum(counts.values()) / len(counts) / 2


def level_counts(counts: Mapping[int, int], empty: Mapping[int, list[int]]) -> dict[int, int]:
    """If the slots are uneven, return moves of shards without a load to the slots with the fewest shards."""
    if not is_uneven(counts):
        return {}
    mean = sum(counts.values()) / len(counts)
    now, moves = dict(counts), dict[int, int]()
    rest = {slot: list(shards) for slot, shards in empty.items()}
    takers = sorted(now, key=lambda slot: (now[slot], slot))
    for giver in sorted(now, key=lambda slot: (-now[slot], slot)):
        while now[giver] > mean and rest.get(giver):
            while takers and now[takers[0]] + 1 > mean:
                takers.pop(0)
            if not takers:
                return moves
            moves[rest[giver].pop()] = takers[0]
            now[giver] -= 1
            now[takers[0]] += 1
    return moves
