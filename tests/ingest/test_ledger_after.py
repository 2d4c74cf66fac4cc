"""Pipelines that wait for others, on every store: unit by unit, and for a set that does not grow."""

from __future__ import annotations

from itertools import count

import pytest
from msgspec.structs import replace

from heronpy.common.errors import LedgerError
from heronpy.ingest.ledger.commands import ForgetSite, ListUnits, Rebuild, SetSite, Show
from heronpy.ingest.ledger.requests import (
    Brake,
    Commit,
    Cut,
    Idle,
    Lease,
    Open,
    Published,
    ReportScan,
    SeenFile,
    ShowAlive,
    TryFailed,
    Work,
)
from heronpy.ingest.ledger.store import Store
from heronpy.ingest.ledger.types import Config, Scanned, UnitState
from heronpy.ingest.ledger.validate import validate
from tests.ingest.ledger_world import World

SMALL = Config(pattern="*.log", unit_bytes=100, unit_wait_s=0.0, tries_max=1, on_bad="fail")
_numbers = count()


class Two:
    """A pipeline that waits for another one, in one ledger and one time."""

    def __init__(self, store: Store, how: str, sites: int = 1, before: bool = True) -> None:
        number = next(_numbers)
        self.names = f"first-{number}", f"second-{number}"
        self.store, self.how, self.sites = store, how, sites
        self.now = 1_000.0
        self.second = World([store], self.names[1], replace(SMALL, **{how: (self.names[0],)}), sites)
        if before:
            self.begin()

    def begin(self) -> None:
        self.first = World([self.store], self.names[0], SMALL, self.sites)
        self.pass_s(0.0)

    def pass_s(self, seconds: float) -> None:
        self.now += seconds
        self.second.now = self.now
        if hasattr(self, "first"):
            self.first.now = self.now

    def grow(self, world: World, size: int, keeper: int = 0) -> None:
        head = "h" if world.ask(world.user, Show()).files else ""
        world.ask(world.keepers[keeper], ReportScan((SeenFile("a", 1, "a", size, "1", "h", head),)))
        world.ask(world.keepers[keeper], Cut())

    def look(self, since: float, keeper: int = 0, closed: bool = False) -> None:
        self.first.ask(self.first.keepers[keeper], Cut(since, closed))

    def publish(self, world: World) -> None:
        work = world.ask(world.workers[0], Lease())
        assert isinstance(work, Work)
        world.ask(world.workers[0], Commit(work.unit, work.attempt, work.generation, 1, 0.1))
        world.ask(world.keepers[0], Published((work.unit,), work.generation))

    def waits(self) -> str:
        """What the first ready unit of the second pipeline waits for; "" when it is handed out."""
        [unit, *_] = self.second.ask(self.second.user, ListUnits(UnitState.READY)).units
        answer = self.second.ask(self.second.workers[0], Lease())
        if isinstance(answer, Idle):
            assert answer.brake is Brake.AFTER
            return "; ".join(unit.waits).replace(self.names[0], "first")
        assert isinstance(answer, Work) and unit.waits == ()
        return ""


HAS_NOT_LOOKED = "pipeline 'first', which has not scanned its files yet"
LOOKS_AGAIN = "pipeline 'first', which is scanning its files again"


def test_a_unit_waits_until_the_other_has_looked_and_published_what_is_older(store: Store) -> None:
    two = Two(store, "after", before=False)
    two.grow(two.second, 100)
    assert two.waits() == "pipeline 'first', which has not begun"
    two.begin()
    assert two.waits() == HAS_NOT_LOOKED  # its files may have older bytes, which nobody has seen
    two.look(990.0)
    assert two.waits() == LOOKS_AGAIN
    two.grow(two.first, 100)
    two.pass_s(7.0)
    # It was not there at the look before.
    assert two.waits() == "pipeline 'first', whose oldest byte has waited for 17 s"
    two.publish(two.first)
    assert two.waits() == LOOKS_AGAIN
    two.look(1_001.0)
    assert two.waits() == ""
    for world in (two.first, two.second):
        assert validate(world.rows()) == []


def test_bytes_that_were_seen_late_may_be_older_than_a_unit(store: Store) -> None:
    two = Two(store, "after")
    two.look(1_000.0)
    two.pass_s(3.0)
    two.grow(two.second, 100)
    two.pass_s(2.0)
    two.grow(two.first, 100)  # it may have been there since 1,000
    two.look(1_004.0)
    assert two.waits() == "pipeline 'first', whose oldest byte has waited for 5 s"
    two.publish(two.first)
    two.pass_s(3.0)
    two.grow(two.first, 200)  # this was not there at 1,004
    assert two.waits() == ""


def test_what_is_younger_than_a_unit_is_not_waited_for(store: Store) -> None:
    two = Two(store, "after")
    two.look(1_000.0)
    two.grow(two.second, 100)
    two.pass_s(1.0)
    two.look(1_001.0)
    two.pass_s(1.0)
    two.grow(two.first, 100)
    assert two.waits() == ""


def test_a_set_is_what_was_there_when_both_had_begun(store: Store) -> None:
    two = Two(store, "after_all")
    two.grow(two.second, 300)
    assert two.waits() == HAS_NOT_LOOKED
    two.pass_s(5.0)
    two.grow(two.first, 100)
    two.look(1_005.0)  # the first look has found the file
    assert two.waits() == "pipeline 'first', whose oldest byte has waited for 0 s"
    two.pass_s(1.0)
    two.look(1_006.0)
    two.grow(two.first, 200)  # of no set
    two.publish(two.first)
    assert two.waits() == ""
    two.pass_s(1.0)
    two.grow(two.second, 400)
    assert two.waits() == ""  # later units wait for nothing more


def test_a_pipeline_that_has_ended_looks_no_more_until_it_begins_again(store: Store) -> None:
    two = Two(store, "after")
    two.look(1_000.0, closed=True)
    two.pass_s(600.0)
    two.grow(two.second, 300)
    assert two.waits() == ""
    keeper = two.first.keepers[0]
    two.first.ask(keeper, Open(SMALL))
    assert two.waits() == LOOKS_AGAIN
    two.look(1_601.0)
    assert two.waits() == ""


def test_what_has_failed_is_waited_for(store: Store) -> None:
    two = Two(store, "after")
    two.grow(two.first, 100)
    work = two.first.ask(two.first.workers[0], Lease())
    assert isinstance(work, Work)
    two.first.ask(two.first.workers[0], TryFailed(work.unit, work.attempt, 1, "boo"))
    two.grow(two.second, 100)
    two.look(1_001.0)
    two.pass_s(40.0)
    assert two.waits() == "pipeline 'first', whose oldest byte has waited for 40 s"


def test_every_site_that_works_must_have_looked(store: Store) -> None:
    two = Two(store, "after", sites=2)
    two.grow(two.second, 100)
    two.look(1_001.0, keeper=0)
    two.look(990.0, keeper=1)
    assert two.waits() == f"{LOOKS_AGAIN} (site west)"
    user = two.first.user
    two.first.ask(user, SetSite("west", False))
    assert two.waits() == ""  # a lost site is not waited for while another one works
    two.first.ask(user, SetSite("west", True))
    two.grow(two.second, 200)
    two.pass_s(20.0)
    two.first.ask(two.first.keepers[0], ShowAlive())
    two.second.ask(two.second.workers[0], ShowAlive())
    assert f"{LOOKS_AGAIN} (site west)" == two.waits()
    two.pass_s(15.0)
    assert two.waits() == ""  # it is silent now
    assert two.first.ask(user, ForgetSite("west")).files == 0
    assert [row.site for row in two.first.rows() if isinstance(row, Scanned)] == ["east"]


def test_the_figures_name_what_goes_ahead(store: Store) -> None:
    two = Two(store, "after_all")
    [one] = two.second.ask(two.second.user, Show()).after
    assert (one.pipeline, one.whole) == (two.names[0], True)
    assert one.waits.replace(two.names[0], "first") == HAS_NOT_LOOKED
    two.look(1_000.0)
    [one] = two.second.ask(two.second.user, Show()).after
    assert one.waits == ""


def test_looks_are_written_only_for_who_waits_and_go_with_a_rebuild(store: Store) -> None:
    two = Two(store, "after")
    two.second.ask(two.second.keepers[0], Cut(1_000.0))
    assert not [row for row in two.second.rows() if isinstance(row, Scanned)]
    two.look(1_000.0)
    two.look(1_000.1)
    assert [row.until for row in two.first.rows() if isinstance(row, Scanned)] == [1_000.0]
    two.pass_s(60.0)
    two.first.ask(two.first.user, Rebuild(SMALL, (), 2))
    assert not [row for row in two.first.rows() if isinstance(row, Scanned)]


@pytest.mark.parametrize("how", ["after", "after_all"])
def test_circles_are_refused_whichever_way_they_wait(store: Store, how: str) -> None:
    two = Two(store, how)
    for other in ("after", "after_all"):
        with pytest.raises(LedgerError, match="would wait for itself: its `after`"):
            two.first.ask(two.first.keepers[0], Open(replace(SMALL, **{other: (two.names[1],)})))
