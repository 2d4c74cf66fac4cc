"""The topologies of a pool: its scheduler keeps nothing of those that have left."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import pytest
from msgspec.structs import replace

from heronpy.plan.launch import SLOT, LaunchSpec
from heronpy.pools.nodes import change_pool
from heronpy.pools.shards import Pool, Size, pack
from heronpy.scheduler import pool_scheduler
from heronpy.scheduler.pool_scheduler import PoolScheduler
from heronpy.statemgr import paths
from tests.scheduler.conftest import MakeWorld
from tests.scheduler.reconciler_world import NAME
from tests.support.launch import launch_spec
from tests.support.waiting import eventually


class _Member:
    """A topology that has no plan yet; the class counts those in memory and those that were closed."""

    living: WeakSet[_Member] = WeakSet()
    closed = 0

    def __init__(self, launch: LaunchSpec, *_: Any) -> None:
        self.launch, self.is_killed, self.gone = launch, False, asyncio.Event()
        self.holders: dict[tuple[int, int], int] | None = None
        self.package = SimpleNamespace(digest="")
        self.living.add(self)

    def location(self) -> bytes:
        return b""

    def spec(self) -> None:
        return None

    def close(self) -> None:
        type(self).closed += 1


async def test_a_scheduler_keeps_nothing_of_topologies_that_have_left(
    make_world: MakeWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_scheduler, "Member", _Member)
    monkeypatch.setattr(
        pool_scheduler, "read_member", lambda state, name, id_: (launch_spec(name, id_, tmp_path / name), None)
    )
    monkeypatch.setattr(pool_scheduler, "ROUND_S", 0.05)
    async with make_world(program=SLOT) as world:
        state, world.kind = world.deployed.state, PoolScheduler
        state.set(paths.pool(NAME), pack(Pool(2, 128, Size(4.0, 8 << 30))))
        there = paths.scheduler("Day")

        async def change(members: dict[str, str]) -> None:
            change_pool(state, NAME, lambda pool: replace(pool, members=members))
            await eventually(lambda: state.exists(there) == bool(members), what=f"the members being {members}")

        async with world.scheduler():
            for number in range(5):
                await change({"Day": f"Day-{number}"})
                await change({})
            await eventually(lambda: _Member.closed == 5, what="the last one being closed")
            gc.collect()
            assert len(_Member.living) == 0
            await change({"Day": "Day-5"})
        assert _Member.closed == 6, "it is closed with its scheduler"
