"""A pool of thousands of slots, simulated: what its keeper costs at first, at rest, and when slots are lost."""

from __future__ import annotations

import time
from typing import Final

import psutil
from msgspec import Struct

from heronpy.pools.keeping import Decision, Keeper, SlotView, first_map
from heronpy.pools.shards import SHARDS_PER_SLOT, Answer, Map, Pool, Size, Spec, loads_of

#: Containers of each topology, without the master's.
CONTAINERS: Final = 10
SLOT: Final = Size(8.0, 32 << 30)
TASK_CONTAINER: Final = Size(0.5, 2 << 30)
#: Rounds of which the costs at rest are the mean.
ROUNDS: Final = 5


class Costs(Struct, frozen=True):
    """CPU seconds and bytes."""

    map_s: float
    round_s: float
    loss_s: float
    memory_bytes: int
    moved: int
    """Shards that the lost slots had, and others have."""
    left: int
    """Shards that still belong to a lost slot, or to none."""


def costs(slots: int, containers: int, lost: int) -> Costs:
    """Costs of a keeper whose slots answer each map at once."""
    before = psutil.Process().memory_info().rss
    pool = Pool(slots, SHARDS_PER_SLOT * slots, SLOT)
    specs = [
        Spec(f"T{number}", f"T{number}-1", "", dict.fromkeys(range(1, CONTAINERS + 1), TASK_CONTAINER))
        for number in range(containers // CONTAINERS)
    ]
    keeper, known, now = Keeper(), first_map(pool), 0.0

    def step(gone: int = 0) -> Decision:
        nonlocal known, now
        now += 1.0
        decided = keeper.decide(known, pool, _views(slots, gone, known), loads_of(specs, {}, pool.shards), now)
        known = decided.map or known
        return decided

    began = time.process_time()
    step()
    map_s = time.process_time() - began
    step()
    began = time.process_time()
    for _ in range(ROUNDS):
        step()
    round_s = (time.process_time() - began) / ROUNDS
    owned = known.owners
    began = time.process_time()
    while step(lost).map is not None:
        pass
    loss_s = time.process_time() - began
    moved = sum(1 for old, new in zip(owned, known.owners, strict=True) if old.slot != new.slot)
    left = sum(1 for owner in known.owners if owner.slot <= lost or owner.to)
    return Costs(map_s, round_s, loss_s, psutil.Process().memory_info().rss - before, moved, left)


def _views(slots: int, gone: int, known: Map) -> dict[int, SlotView]:
    """All slots; the first `gone` are lost."""
    acts, is_over = SlotView(1, answer=Answer(1, known.number)), SlotView(over=1)
    return {slot: is_over if slot <= gone else acts for slot in range(1, slots + 1)}
