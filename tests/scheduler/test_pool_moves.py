"""Which shards of a pool may move: those whose topologies are ready for it, or cannot be."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from heronpy.pools.shards import Size, Spec, shard_of
from heronpy.scheduler.pool_moves import PoolMoves
from heronpy.statemgr import paths
from tests.support.launch import launch_spec
from tests.support.memory_state import MemoryStateManager, MemoryStore

SHARDS = 8


class _Slow(MemoryStateManager):
    """It does not say who leads topology `busy` until it may."""

    asked, may_answer = 0, threading.Event()

    def get(self, path: str) -> tuple[bytes, int] | None:
        if path == paths.tmaster("busy"):
            self.asked += 1
            self.may_answer.wait(20)
        return super().get(path)


async def test_a_shard_is_ready_when_all_topologies_in_it_are(tmp_path: Path) -> None:
    names = ("alone", "busy", "killed")
    specs = {name: Spec(name, name, "", dict.fromkeys(range(3), Size(1.0, 1))) for name in names}
    launches = {name: launch_spec(name, name, tmp_path / name) for name in names if name != "killed"}
    state, everything = _Slow(MemoryStore()), frozenset(range(SHARDS))
    of_busy = {shard_of(("busy", container), SHARDS) for container in (1, 2)}
    changed = asyncio.Event()
    moves = PoolMoves(state, changed.set)

    async def until_ready(wanted: frozenset[int]) -> None:
        async with asyncio.timeout(20):
            while moves.ready(everything, specs, launches, SHARDS) != wanted:
                changed.clear()
                await changed.wait()

    await until_ready(everything - of_busy)
    state.may_answer.set()
    await until_ready(everything)
    assert state.asked == 1, "it is asked once, though two of its containers move"
    assert moves.ready(frozenset(), specs, launches, SHARDS) == frozenset()
    moves.close()
