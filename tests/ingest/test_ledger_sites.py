"""What a ledger decides for several sites, and for pipelines that wait for others, in invented time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.common.errors import LedgerError
from heronpy.ingest.ledger import policy
from heronpy.ingest.ledger.commands import ForgetSite, ListUnits, Pause, SetSite, Show
from heronpy.ingest.ledger.requests import (
    Brake,
    Collect,
    Commit,
    Cut,
    Idle,
    Lease,
    Line,
    Lost,
    ReportScan,
    SeenFile,
    ShowAlive,
    TryFailed,
    Work,
)
from heronpy.ingest.ledger.store import Store
from heronpy.ingest.ledger.types import Config, File, Unit, UnitState
from heronpy.ingest.ledger.validate import validate
from tests.ingest.ledger_world import World
from tests.support.memory_ledger import MemoryStore

SMALL = Config(pattern="*.log", unit_bytes=100, unit_wait_s=2.0)
EAST, WEST = 0, 1


def _world(config: Config = SMALL, pipeline: str = "p", store: Store | None = None, sites: int = 2) -> World:
    return World([store or MemoryStore()], pipeline, config, sites)


def _see(world: World, key: str, size: int, site: int = EAST, head: str = "h", **more: Any) -> Any:
    seen = SeenFile(key, 1, key, size, more.pop("inode", f"{site}:{key}"), head, **more)
    return world.ask(world.keepers[site], ReportScan((seen,)))


def _alive(world: World, *sites: int) -> None:
    for site in sites:
        for process in (*world.workers[site::2], *world.keepers[site::2]):
            world.ask(process, ShowAlive())


def _lease(world: World, site: int) -> Any:
    _alive(world, site)
    return world.ask(world.workers[site], Lease())


def _cut(world: World, site: int = EAST) -> tuple[int, ...]:
    return world.ask(world.keepers[site], Cut()).units


def _waits(world: World, state: UnitState = UnitState.READY) -> list[str]:
    return ["; ".join(unit.waits) for unit in world.ask(world.user, ListUnits(state)).units]


# ---- files ----------------------------------------------------------------------------------
def test_a_key_is_one_file_whatever_its_inodes_are() -> None:
    world = _world()
    _see(world, "a", 100, EAST, inode="1:1")
    _see(world, "a", 60, WEST, inode="9:9", head="h")
    [file] = [row for row in world.rows() if isinstance(row, File)]
    assert (file.key, file.size) == ("a", 100)
    copies = world.stores[0].transact("p", lambda view, now: (_nothing(), view.copies(file.id)))
    assert [(copy.site, copy.size, copy.inode) for copy in copies] == [("east", 100, "1:1"), ("west", 60, "9:9")]


def _nothing() -> Any:
    from heronpy.ingest.ledger.store import Changes

    return Changes()


@given(
    copies=st.dictionaries(st.sampled_from("abcd"), st.integers(0, 50), max_size=4),
    live=st.frozensets(st.sampled_from("abcd")),
)
def test_a_file_is_cut_as_far_as_a_site_that_works_has_it(copies: dict[str, int], live: frozenset[str]) -> None:
    found = policy.readable(copies, live)
    there = {site: size for site, size in copies.items() if site in live} if live else copies
    if not there:
        assert found is None
        return
    assert found is not None
    end, sites = found
    assert end == max(there.values())
    assert set(sites) == {site for site, size in copies.items() if size >= end} and set(sites) & there.keys()


def test_what_only_a_lost_site_has_stays_uncut_and_others_go_on() -> None:
    world = _world()
    _see(world, "a", 1000, EAST)
    _see(world, "a", 250, WEST)
    world.now += 31.0
    _alive(world, WEST)
    units = _cut(world, WEST)
    assert len(units) == 3 and sum(unit.bytes for unit in world.rows() if isinstance(unit, Unit)) == 250
    works = [_lease(world, WEST) for _ in range(4)]
    assert [type(one) for one in works] == [Work, Work, Work, Idle]
    _alive(world, EAST)
    assert len(_cut(world)) == 8


def test_ready_units_of_a_lost_site_do_not_keep_others_from_cutting() -> None:
    """Each site has files of its own."""
    world = _world()
    _see(world, "mine", 10_000, EAST)
    assert len(_cut(world)) == 16  # as many as may be ready
    _see(world, "yours", 300, WEST)
    assert _cut(world, WEST) == ()
    world.ask(world.user, SetSite("east", False))
    assert len(_cut(world, WEST)) == 3
    assert isinstance(_lease(world, WEST), Work)
    assert _lease(world, EAST).brake is Brake.SITE_DOWN
    world.ask(world.user, SetSite("east", True))
    assert isinstance(_lease(world, EAST), Work)


# ---- units ----------------------------------------------------------------------------------
def test_a_slow_site_keeps_its_unit_for_ten_leases_and_the_first_commit_counts() -> None:
    world = _world()
    _see(world, "a", 100, EAST)
    _see(world, "a", 100, WEST)
    _cut(world)
    east = _lease(world, EAST)
    while world.now < 1_000.0 + policy.SITE_LEASES * east.until_s - 1.0:
        world.now += 1.0
        _alive(world, EAST)
        assert isinstance(_lease(world, WEST), Idle)
    world.now += 1.0
    _alive(world, EAST)
    west = _lease(world, WEST)
    assert (west.unit, west.attempt, west.backup) == (east.unit, 2, True)
    assert world.ask(world.workers[WEST], Commit(west.unit, 2, 1, 1, 0.1)).lost is None
    assert world.ask(world.workers[EAST], Commit(east.unit, 1, 1, 1, 0.1)).lost is Lost.OTHER_WON


def test_a_site_that_falls_silent_loses_its_units_after_thirty_seconds() -> None:
    world = _world()
    _see(world, "a", 100, EAST)
    _see(world, "a", 100, WEST)
    _cut(world)
    east = _lease(world, EAST)
    world.now += policy.SITE_SILENCES * Config().silent_s
    assert isinstance(_lease(world, WEST), Idle)
    world.now += 0.1
    assert _lease(world, WEST).unit == east.unit


def test_figures_of_sites(store: Store, request: pytest.FixtureRequest) -> None:
    world = _world(pipeline=request.node.name, store=store)
    _see(world, "a", 100, EAST)
    _see(world, "b", 50, EAST)
    _see(world, "a", 100, WEST)
    _cut(world)
    _lease(world, EAST)
    shown = {site.name: site for site in world.ask(world.user, Show()).sites}
    assert {name: (one.state, one.files, one.bytes, one.leased) for name, one in shown.items()} == {
        "east": ("up", 2, 150, 1),
        "west": ("up", 1, 100, 0),
    }
    assert (shown["east"].workers, shown["east"].keepers) == (2, 1)
    world.now += 31.0
    _alive(world, WEST)
    world.ask(world.user, SetSite("west", False))
    shown = {site.name: site for site in world.ask(world.user, Show()).sites}
    assert {name: (one.state, one.workers) for name, one in shown.items()} == {
        "east": ("silent", 0),
        "west": ("down", 2),
    }
    assert shown["east"].seen_s == pytest.approx(31.0)


def test_a_pipeline_without_sites_shows_none() -> None:
    world = _world(sites=1)
    _see(world, "a", 100)
    assert world.ask(world.user, Show()).sites == ()


def test_stores_know_which_ready_units_a_site_can_take(store: Store, request: pytest.FixtureRequest) -> None:
    world = _world(pipeline=request.node.name, store=store)
    _see(world, "a", 300, EAST)
    _cut(world)
    _see(world, "a", 200, WEST)
    found = store.transact(
        world.pipeline,
        lambda view, now: (_nothing(), [list(view.ready_on(site)) for site in ("east", "west", "north")]),
    )
    assert found == [[1, 2, 3], [1, 2], []]
    sites = store.transact(world.pipeline, lambda view, now: (_nothing(), list(view.worker_sites(world.now))))
    assert sites == ["east", "west"]


def test_files_of_a_lost_site_do_not_fill_the_page_of_a_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "CUT_FILES_MAX", 2)
    world = _world()
    for name in ("a", "b", "c"):
        _see(world, name, 100, EAST)
    world.now += 31.0
    _see(world, "z", 100, WEST)
    _alive(world, WEST)
    assert len(_cut(world, WEST)) == 1


def test_stores_know_what_waits_on_which_sites(store: Store, request: pytest.FixtureRequest) -> None:
    world = _world(pipeline=request.node.name, store=store)
    _see(world, "a", 100, EAST)
    _see(world, "b", 50, WEST)
    _see(world, "c", 70, EAST)
    _see(world, "c", 30, WEST)

    def found(*sites: str) -> tuple[list[str], list[tuple[int, str]]]:
        return store.transact(
            world.pipeline,
            lambda view, now: (
                _nothing(),
                (
                    [file.key for file in view.waiting(9, frozenset(sites))],
                    [(copy.file, copy.site) for copy in view.copies_of_waiting(9, frozenset(sites))],
                ),
            ),
        )

    assert found() == (["a", "b", "c"], [(1, "east"), (2, "west"), (3, "east"), (3, "west")])
    assert found("west") == (["b", "c"], [(2, "west"), (3, "east"), (3, "west")])
    assert found("east", "north") == (["a", "c"], [(1, "east"), (3, "east"), (3, "west")])


def test_a_site_that_is_gone_is_forgotten_and_what_only_it_had_becomes_bad(
    store: Store, request: pytest.FixtureRequest
) -> None:
    world = _world(pipeline=request.node.name, store=store)
    for name in ("a", "b", "c"):
        _see(world, name, 100, EAST)
    _see(world, "a", 100, WEST)
    _cut(world)
    with pytest.raises(LedgerError, match="site east is active: 3 of its processes"):
        world.ask(world.user, ForgetSite("east"))
    world.now += 16.0
    _alive(world, WEST)
    world.ask(world.user, SetSite("east", False))
    answer = world.ask(world.user, ForgetSite("east", 2))
    assert (answer.files, answer.more) == (2, True)
    answer = world.ask(world.user, ForgetSite("east", 2))
    assert (answer.files, answer.more) == (1, False)
    files = {row.key: row.gone for row in world.rows() if isinstance(row, File)}
    assert files["a"] is None and files["b"] == files["c"] == world.now
    shown = {site.name: (site.state, site.files) for site in world.ask(world.user, Show()).sites}
    assert shown == {"east": ("up", 0), "west": ("up", 1)}, "an hour after its last sign of life it is not shown"
    assert _lease(world, WEST).chunks[0].key == "a"
    world.now += policy.VANISHED_S + 1
    _alive(world, WEST)
    lost = [world.ask(world.keepers[WEST], Collect()).lost for _ in range(3)]
    assert lost == [100, 100, 0]
    assert validate(world.rows()) == []


# ---- what a unit waits for ------------------------------------------------------------------
def test_it_is_said_what_a_unit_waits_for() -> None:
    world = _world()
    _see(world, "a", 100, EAST)
    _cut(world)
    assert _waits(world) == [""]
    world.ask(world.user, Pause(True))
    assert _waits(world) == ["the end of the pause"]
    world.ask(world.user, Pause(False))
    world.ask(world.user, SetSite("east", False))
    assert _waits(world) == ["site east (down): no other site has its bytes"]
    world.ask(world.user, SetSite("east", True))
    work = _lease(world, EAST)
    assert _waits(world, UnitState.LEASED) == [""]
    world.ask(world.workers[EAST], TryFailed(work.unit, work.attempt, 1, "boo", Line(1, 0, 10)))
    assert _waits(world) == ["its next attempt in 1 s"]
    _see(world, "a", 100, WEST)
    world.now += 1.0
    assert _waits(world) == ["site east, which has priority for 299 s"]
    world.now += 31.0
    _alive(world, WEST)
    assert _waits(world) == [""]
    work = _lease(world, WEST)
    world.ask(world.workers[WEST], Commit(work.unit, work.attempt, 1, 1, 0.1))
    assert _waits(world, UnitState.COMMITTED) == ["its publication"]
