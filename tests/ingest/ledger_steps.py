"""Single steps of processes of a ledger, for tests of one rule at a time."""

from __future__ import annotations

from typing import Any

from heronpy.ingest.ledger.requests import Lease, Line, ReportScan, SeenFile, ShowAlive, TryFailed
from heronpy.ingest.ledger.types import Config, Span, SpanState, Unit
from tests.ingest.ledger_world import World
from tests.support.memory_ledger import MemoryStore

SMALL = Config(pattern="*.log", unit_bytes=100, unit_wait_s=2.0)


def world_of(config: Config = SMALL, sites: int = 1, pipeline: str = "p", store: MemoryStore | None = None) -> World:
    return World([store or MemoryStore()], pipeline, config, sites)


def see(world: World, key: str, size: int, keeper: int = 0, **more: Any) -> Any:
    seen = SeenFile(key, more.pop("generation", 1), key, size, more.pop("inode", key), more.pop("head", "h"), **more)
    return world.ask(world.keepers[keeper], ReportScan((seen,)))


def lease(world: World, worker: int = 0) -> Any:
    world.ask(world.workers[worker], ShowAlive())
    return world.ask(world.workers[worker], Lease())


def units_of(world: World) -> list[Unit]:
    return [row for row in world.rows() if isinstance(row, Unit)]


def spans_of(world: World) -> list[tuple[int, int, SpanState]]:
    return [(row.begin, row.end, row.state) for row in world.rows() if isinstance(row, Span)]


def all_alive(world: World) -> None:
    for process in (*world.workers, *world.keepers):
        world.ask(process, ShowAlive())


def fails_at(world: World, line: int, rows: int = 1) -> object:
    """The next unit fails at a line, which it may not have, after `rows` rows."""
    work = lease(world)
    failed = TryFailed(work.unit, work.attempt, 1, "boo", Line(1, line, line + 10), rows)
    return world.ask(world.workers[0], failed)
