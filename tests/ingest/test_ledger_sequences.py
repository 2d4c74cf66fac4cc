"""Random sequences of all transactions and deaths, against a map of every byte, on every store."""

from __future__ import annotations

import itertools
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heronpy.ingest.ledger.reaching import open_store
from heronpy.ingest.ledger.sqlite import SqliteStore
from tests.ingest.ledger_world import STEPS, World
from tests.support.memory_ledger import MemoryStore
from tests.support.postgres import PostgresServer

_numbers = itertools.count()
_steps = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 11), st.integers(0, 23)), max_size=60)


@settings(max_examples=80)
@given(steps=_steps, sites=st.integers(1, 2))
def test_every_byte_is_published_once_or_bad(steps: list[tuple[str, int, int]], sites: int) -> None:
    world = World([MemoryStore()], "p", sites=sites)
    for name, a, b in steps:
        world.step(name, a, b)
    world.drain()


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(steps=_steps, sites=st.integers(1, 2))
def test_all_stores_have_the_same_rows(
    tmp_path: Path, postgres: PostgresServer, steps: list[tuple[str, int, int]], sites: int
) -> None:
    number = next(_numbers)
    stores = [MemoryStore(), SqliteStore(tmp_path / "l" / f"{number}.db"), open_store(postgres.url)]
    try:
        world = World(stores, f"sequence-{number}", sites=sites)
        for name, a, b in steps:
            world.step(name, a, b)
        world.drain()
    finally:
        for store in stores:
            store.close()
