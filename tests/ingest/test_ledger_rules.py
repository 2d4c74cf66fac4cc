"""What a ledger decides, one rule at a time, in invented time."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec.structs import replace

from heronpy.common.errors import LedgerError
from heronpy.ingest.ledger import ranges
from heronpy.ingest.ledger.commands import (
    FoundFile,
    FoundRange,
    ListBad,
    ListDispatches,
    Rebuild,
    RetryFailed,
    SetSite,
    Show,
)
from heronpy.ingest.ledger.requests import (
    Brake,
    Collect,
    Commit,
    Cut,
    Dispatched,
    DispatchFailed,
    GoneFile,
    Idle,
    Lease,
    Leave,
    ListFinished,
    Lost,
    MakeDispatch,
    Open,
    Published,
    ReportScan,
    SeenFile,
    ShowAlive,
    Work,
)
from heronpy.ingest.ledger.types import DispatchState, File, FileState, Kind, Span, SpanState
from heronpy.ingest.ledger.validate import validate
from tests.ingest.ledger_steps import SMALL, all_alive, lease, see, spans_of, units_of, world_of
from tests.ingest.ledger_world import Process, World
from tests.support.memory_ledger import MemoryStore


# ---- files and cuts -------------------------------------------------------------------------
def test_a_unit_is_cut_when_it_is_full_or_its_oldest_byte_is_old() -> None:
    world = world_of()
    see(world, "a", 250)
    cut = world.ask(world.keepers[0], Cut())
    assert (len(cut.units), cut.brake) == (2, Brake.YOUNG)
    world.now += 2.0
    assert len(world.ask(world.keepers[1], Cut()).units) == 1
    assert world.ask(world.keepers[1], Cut()) == replace(cut, units=(), brake=Brake.NOTHING, now=world.now)


def test_no_cut_while_enough_is_ready() -> None:
    world = world_of()
    see(world, "a", 10_000)
    cut = world.ask(world.keepers[0], Cut())
    assert (len(cut.units), cut.brake) == (4 * len(world.workers), Brake.READY)
    assert world.ask(world.keepers[1], Cut()).units == ()


def test_a_unit_has_small_files_together_and_the_oldest_first() -> None:
    world = world_of()
    for number in range(5):
        see(world, f"f{number}", 30)
        world.now += 0.1
    world.now += 2.0
    world.ask(world.keepers[0], Cut())
    first, second = lease(world), lease(world, 1)
    assert [(chunk.key, chunk.begin, chunk.end) for chunk in first.chunks] == [
        *(("f0", 0, 30), ("f1", 0, 30), ("f2", 0, 30), ("f3", 0, 10)),
    ]
    assert [chunk.key for chunk in second.chunks] == ["f3", "f4"]


def test_a_size_never_shrinks_and_duplicates_change_nothing() -> None:
    world = world_of()
    see(world, "a", 50)
    all_alive(world)
    before = world.rows()
    assert see(world, "a", 20, keeper=1).known[0].file.size == 50
    assert [row for row in world.rows() if isinstance(row, (File, Span))] == [
        row for row in before if isinstance(row, (File, Span))
    ]


def test_a_decision_on_an_old_row_is_refused() -> None:
    world = world_of()
    see(world, "a", 50, head="short")
    see(world, "a", 60, head="longer", compared="short")
    answer = see(world, "a", 70, keeper=1, head="other", compared="short")
    assert answer.stale == (0,)
    assert answer.known[0].file.head == "longer"
    assert see(world, "a", 10, keeper=1, generation=2, head="other", compared="").stale == ()
    assert see(world, "a", 10, keeper=0, generation=2, head="third", compared="").stale == (0,)


def test_a_mutated_file_is_not_processed_and_what_was_cut_is_bad() -> None:
    world = world_of()
    see(world, "a", 250)
    world.ask(world.keepers[0], Cut())
    work = lease(world)
    see(world, "a", 260, mutated=True)
    assert [row.state for row in world.rows() if isinstance(row, File)] == [FileState.MUTATED]
    assert spans_of(world) == [
        (0, 100, SpanState.UNIT),
        (100, 200, SpanState.BAD),
        (200, 250, SpanState.BAD),
    ]
    assert world.ask(world.workers[0], Commit(work.unit, work.attempt, 1, 1, 0.1)).lost is None
    world.now += 10
    assert world.ask(world.keepers[0], Cut()).units == ()


def test_a_file_that_is_older_than_the_horizon_is_refused_and_counted() -> None:
    world = world_of()
    week = SMALL.days * 86_400
    assert see(world, "first", 10, age_s=10 * week).late == ()  # nothing can have been forgotten yet
    world.now += week + 1
    assert see(world, "late", 10, age_s=week + 1).late == (0,)
    assert see(world, "new", 10, age_s=week - 1).late == ()
    assert world.ask(world.user, Show()).files == {"live": 2, "late": 1}
    assert see(world, "late", 20, age_s=0.0).late == (0,)


def test_names_that_no_store_can_keep_are_refused() -> None:
    world = world_of()
    for key in ("a\0b", "a\udcff", "a" * 3_000):
        with pytest.raises(LedgerError, match="UTF-8"):
            see(world, key, 1)
    with pytest.raises(LedgerError, match="send several"):
        world.ask(world.keepers[0], ReportScan((SeenFile("a", 1, "a", 1, "i", "h"),) * 1_001))


def test_a_file_may_be_twice_in_one_report() -> None:
    world = world_of()
    seen = SeenFile("a", 1, "a", 30, "i", "h")
    answer = world.ask(world.keepers[0], ReportScan((seen, replace(seen, size=40), replace(seen, head="x"))))
    assert answer.stale == (2,)
    assert [one.file.size for one in answer.known] == [40]
    two = ReportScan((SeenFile("b", 1, "b", 1, "i", "h"), SeenFile("b", 2, "b", 1, "j", "h")))
    answer = world.ask(world.keepers[0], two)
    assert [(one.file.generation, one.file.id) for one in answer.known] == [(1, 2), (2, 3)]


def test_who_has_missed_a_file_cannot_say_that_another_one_is_new() -> None:
    world = world_of()
    keeper, slept = world.keepers

    def report(who: Process, made: int, *keys: str, generation: int = 1) -> Any:
        seen = tuple(SeenFile(key, 1, key, 1, key, f"head of {key}") for key in keys)
        return world.ask(who, ReportScan(seen, (), generation, (made,)))

    assert world.ask(slept, Open(SMALL)).made == (1,)
    assert report(keeper, 1, "a").stale == ()
    # The renamed `a` would be a second file with the same bytes.
    assert report(slept, 1, "a.1").stale == (0,)
    assert world.ask(slept, Open(SMALL)).made == (2,)
    # What it reports itself it knows.
    assert report(slept, 1, "a", "b").stale == ()
    assert report(keeper, 2, "c").stale == (0,)
    assert report(keeper, 3, "c").stale == ()
    assert report(keeper, 4, "d", generation=7).stale == (0,), "of a ledger that was rebuilt since"
    assert report(keeper, 4, "a", generation=7).stale == (0,)
    assert [row.key for row in world.rows() if isinstance(row, File)] == ["a", "b", "c"]


def test_what_vanished_becomes_bad_and_its_neighbours_go_on() -> None:
    world = world_of()
    see(world, "a", 30)
    see(world, "b", 30)
    world.now += 3.0
    world.ask(world.keepers[0], Cut())
    world.ask(world.keepers[0], ReportScan((), (GoneFile(1, "a"),)))
    assert isinstance(lease(world), Idle)
    world.now += 61.0
    assert world.ask(world.keepers[0], Collect()).lost == 30
    work = lease(world)
    assert [chunk.key for chunk in work.chunks] == ["b"]
    assert world.ask(world.user, ListBad()).ranges[0].span.error == "the file was removed before it was processed"


def test_what_a_shorter_copy_does_not_have_waits_until_the_copy_is_gone_too() -> None:
    world = world_of()
    see(world, "a", 160)
    world.ask(world.keepers[0], ReportScan((), (GoneFile(1, "a"),)))
    see(world, "a", 50, inode="a.bak")
    world.now += 61.0
    assert world.ask(world.keepers[0], Collect()).lost == 0
    world.ask(world.keepers[0], ReportScan((), (GoneFile(1, "a.bak"),)))
    world.now += 61.0
    assert world.ask(world.keepers[0], Collect()).lost == 160


def test_ten_days_of_rotation_leave_a_flat_ledger() -> None:
    world = world_of(replace(SMALL, days=7.0))
    counts = []
    for hour in range(240):
        key = f"log-{hour:04}"
        see(world, key, 150)
        world.now += 1_800
        all_alive(world)
        world.ask(world.keepers[0], Cut())
        for _ in range(3):
            work = lease(world)
            if isinstance(work, Work):
                world.ask(world.workers[0], Commit(work.unit, work.attempt, 1, 1, 0.5))
        done = world.ask(world.keepers[1], ListFinished()).units
        world.ask(world.keepers[1], Published(tuple(one.unit for one in done), 1))
        file = next(row for row in world.rows() if isinstance(row, File) and row.key == key)
        world.ask(world.keepers[0], ReportScan((), (GoneFile(file.id, key),)))
        world.now += 1_800
        while world.ask(world.keepers[hour % 2], Collect()).more:
            pass
        counts.append(len(world.rows()))
    assert max(counts[-48:]) <= max(counts[7 * 24 - 24 : 7 * 24 + 24])
    assert sum(1 for row in world.rows() if isinstance(row, File)) == pytest.approx(7 * 24, abs=2)
    # What was forgotten and comes back with its old time is late.
    assert see(world, "log-0000", 150, age_s=9 * 86_400).late == (0,)


def test_a_site_has_its_units_until_it_is_down_or_silent() -> None:
    world = world_of(sites=2)
    for keeper in (0, 1):
        see(world, "a", 300, keeper=keeper)
    world.ask(world.keepers[0], Cut())
    east = lease(world, 0)
    world.now += 6.0
    all_alive(world)
    others = [lease(world, 1) for _ in range(3)]
    assert [type(one) for one in others] == [Work, Work, Idle]  # the first one stays in the east
    assert world.ask(world.user, SetSite("east", False)).freed == 1
    assert lease(world, 0).brake is Brake.SITE_DOWN
    taken = lease(world, 3)
    assert (taken.unit, taken.attempt) == (east.unit, 2)
    world.ask(world.user, SetSite("east", True))
    world.now += 31.0
    world.ask(world.workers[0], ShowAlive())
    assert isinstance(lease(world, 0), Work)  # the west has been silent


def test_a_site_takes_only_what_it_has() -> None:
    world = world_of(sites=2)
    see(world, "a", 100, keeper=0)
    world.ask(world.keepers[0], Cut())
    assert isinstance(lease(world, 1), Idle)
    see(world, "a", 90, keeper=1)
    assert isinstance(lease(world, 1), Idle)
    see(world, "a", 100, keeper=1)
    assert isinstance(lease(world, 1), Work)


# ---- ends and beginnings --------------------------------------------------------------------
def test_a_dispatch_is_made_when_it_is_due_and_repeats() -> None:
    world = world_of(replace(SMALL, dispatch_bytes=150))
    see(world, "a", 300)
    world.ask(world.keepers[0], Cut())
    for _ in range(3):
        work = lease(world)
        world.ask(world.workers[0], Commit(work.unit, 1, 1, 1, 0.1))
    first = world.ask(world.keepers[0], MakeDispatch()).dispatches
    assert [len(one.units) for one in first] == [2]
    assert world.ask(world.keepers[1], MakeDispatch()).dispatches == first
    world.now += 5.0
    assert [len(one.units) for one in world.ask(world.keepers[1], MakeDispatch()).dispatches] == [2, 1]
    assert world.ask(world.keepers[0], ListFinished()).units == ()
    assert world.ask(world.keepers[0], Published((1, 2, 3), 1)).units == 0


def test_a_failed_dispatch_waits_for_a_user_and_goes_out_under_another_id() -> None:
    world = world_of(replace(SMALL, dispatch_bytes=150))
    see(world, "a", 200)
    world.ask(world.keepers[0], Cut())
    for _ in range(2):
        work = lease(world)
        world.ask(world.workers[0], Commit(work.unit, 1, 1, 5, 0.1))
    (first,) = world.ask(world.keepers[0], MakeDispatch()).dispatches
    world.ask(world.keepers[0], DispatchFailed(first.id, 1, "Spark says no"))
    world.ask(world.keepers[1], DispatchFailed(first.id, 1, "Spark says no"))
    assert world.ask(world.keepers[1], MakeDispatch()).dispatches == ()
    (shown,) = world.ask(world.user, ListDispatches()).dispatches
    assert (shown.state, shown.units, shown.rows, shown.bytes) == (DispatchState.FAILED, (1, 2), 10, 200)
    assert shown.error == "Spark says no"
    figures = world.ask(world.user, Show())
    assert (figures.dispatches_open, figures.dispatches_failed, figures.units_held) == (0, 1, 2)
    # A bounded run does not wait for what waits for a user.
    assert world.ask(world.workers[0], Lease()).open == 0
    retried = world.ask(world.user, RetryFailed())
    assert (retried.units, retried.dispatches) == ((), (2,))
    # What is said of the old one does not count any more.
    assert world.ask(world.keepers[1], Dispatched(first.id, 1)).units == 0
    world.ask(world.keepers[1], DispatchFailed(first.id, 1, "late"))
    (again,) = world.ask(world.keepers[0], MakeDispatch()).dispatches
    assert (again.id, again.units) == (2, first.units)
    assert world.ask(world.keepers[0], Dispatched(2, 1)).units == 2
    assert world.ask(world.user, ListDispatches()).dispatches == ()
    assert validate(world.rows()) == []


def test_a_rebuilt_ledger_has_holes_as_units_and_fences_the_old_ones() -> None:
    world = world_of()
    see(world, "a", 250)
    world.ask(world.keepers[0], Cut())
    work = lease(world)
    done = (FoundRange(0, 20, "unit=1-7"), FoundRange(20, 40, "unit=1-8"), FoundRange(150, 180, "unit=1-9"))
    bad = (FoundRange(30, 60, "bad", "boo", 3, 1),)
    found = FoundFile("a", 1, "h", done, bad)
    with pytest.raises(LedgerError, match="kill the topology"):
        world.ask(world.user, Rebuild(SMALL, (found,)))
    world.now += 16.0
    overlap = replace(found, done=(*done, FoundRange(35, 70, "unit=1-10")))
    with pytest.raises(LedgerError, match=r"unit=1-8 and unit=1-10"):
        world.ask(world.user, Rebuild(SMALL, (overlap,)))
    answer = world.ask(world.user, Rebuild(SMALL, (found,), at_least=5))
    assert (answer.generation, answer.units, answer.done_bytes, answer.bad_bytes) == (5, 1, 70, 20)
    assert spans_of(world) == [
        (0, 40, SpanState.DONE),
        (40, 60, SpanState.BAD),
        (60, 150, SpanState.UNIT),
        (150, 180, SpanState.DONE),
    ]
    assert world.ask(world.workers[0], Commit(work.unit, 1, 1, 1, 0.1)).lost is Lost.GENERATION
    see(world, "a", 250)
    assert isinstance(lease(world), Work)


def test_numbers_that_cannot_work_are_refused() -> None:
    world = world_of()
    for wrong in (
        *(replace(SMALL, unit_bytes=0), replace(SMALL, unit_wait_s=-1.0), replace(SMALL, on_bad="skip")),
        *(replace(SMALL, pattern=""), replace(SMALL, pattern="other"), replace(SMALL, bytes_per_s=math.nan)),
    ):
        with pytest.raises(LedgerError):
            world.ask(world.keepers[0], Open(wrong))
    with pytest.raises(LedgerError, match="no #"):
        world.ask(Process("a#b", Kind.WORKER, "", ""), Lease())
    stranger = Process("x", Kind.WORKER, "", "")
    other = World.__new__(World)
    other.stores, other.pipeline, other.now = [MemoryStore()], "nobody", 0.0
    with pytest.raises(LedgerError, match="has no pipeline"):
        other.ask(stranger, Lease())


# ---- ranges ---------------------------------------------------------------------------------
def test_ranges() -> None:
    assert ranges.union([(5, 9), (0, 3), (3, 5), (20, 20)]) == [(0, 9)]
    assert ranges.subtract([(0, 10), (20, 30)], [(2, 3), (8, 25)]) == [(0, 2), (3, 8), (25, 30)]
    assert ranges.fill([(1, 0, 25), (2, 0, 5)], 10, 9) == [[(1, 0, 10)], [(1, 10, 20)], [(1, 20, 25), (2, 0, 5)]]
    assert ranges.fill([(1, 0, 1), (2, 0, 1), (3, 0, 1)], 10, 2) == [[(1, 0, 1), (2, 0, 1)], [(3, 0, 1)]]
    assert ranges.split([(1, 0, 10), (2, 5, 9)], 2, 5) == ([(1, 0, 10)], [(2, 5, 9)])
    assert ranges.split([(1, 0, 10)], 1, 0) is None
    assert ranges.cut_out([(1, 0, 10)], 1, 8, 30) == ([(1, 0, 8)], (1, 8, 10), [])


def test_a_process_that_leaves_holds_nothing_and_is_not_counted() -> None:
    world = world_of()
    see(world, "a", 100)
    world.ask(world.keepers[0], Cut())
    unit = lease(world).unit
    assert world.ask(world.user, Show()).workers > 0
    for process in (*world.workers, *world.keepers):
        world.ask(process, ShowAlive())
        world.ask(process, Leave())
    figures = world.ask(world.user, Show())
    assert (figures.workers, figures.keepers) == (0, 0)
    assert [one.state for one in units_of(world)] == ["ready"]
    assert world.ask(world.user, Rebuild(SMALL, ())).generation == 2
    world.ask(world.workers[0], Leave())  # repeated
    assert world.ask(world.user, Show()).workers == 0
    assert isinstance(lease(world, 1), Idle) and unit == 1


def test_figures_tell_of_published_units_their_time_backups_and_lines_without_an_end() -> None:
    world = world_of()
    see(world, "a", 300)
    world.ask(world.keepers[0], Cut(unfinished=12))
    figures = world.ask(world.user, Show())
    assert (figures.published_units, figures.p50_s, figures.p99_s, figures.unfinished_bytes) == (0, None, None, 12)
    first = lease(world, 0)
    for _ in range(2):
        work = lease(world, 2)
        world.ask(world.workers[2], Commit(work.unit, work.attempt, 1, 1, 2.0))
    world.now += first.until_s + 1.0
    world.ask(world.workers[0], ShowAlive())
    backup = lease(world, 1)
    assert backup.backup and backup.unit == first.unit
    world.ask(world.workers[1], Commit(backup.unit, backup.attempt, 1, 1, 4.0))
    units = tuple(one.unit for one in world.ask(world.keepers[0], ListFinished()).units)
    for _ in range(2):  # once more, as another keeper would
        world.ask(world.keepers[0], Published(units, 1))
    figures = world.ask(world.user, Show())
    assert (figures.published_units, figures.backups_won) == (3, 1)
    assert (figures.p50_s, figures.p99_s) == (2.0, 4.0)
    # While it changes it is written now and then, and at once when it begins or ends.
    for unfinished, known in ((13, 13), (14, 13), (0, 0), (5, 5)):
        world.ask(world.keepers[0], Cut(unfinished=unfinished))
        assert world.ask(world.user, Show()).unfinished_bytes == known
    world.now += 6.0
    world.ask(world.keepers[0], Cut(unfinished=6))
    assert world.ask(world.user, Show()).unfinished_bytes == 6
