"""What a ledger decides, one rule at a time, in invented time."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from heronpy.common.errors import LedgerError
from heronpy.ingest.ledger import policy, ranges
from heronpy.ingest.ledger.memory import MemoryStore
from heronpy.ingest.ledger.requests import (
    Again,
    Alive,
    Bad,
    Brake,
    Collect,
    Commit,
    Cut,
    Dispatched,
    DispatchFailed,
    Failed,
    FoundFile,
    FoundRange,
    GiveBack,
    GoneFile,
    Halve,
    Idle,
    Lease,
    Leave,
    Line,
    ListBad,
    ListDispatches,
    ListFinished,
    Lost,
    MakeDispatch,
    Open,
    Pause,
    Published,
    Rebuild,
    ReportScan,
    RetryBad,
    RetryFailed,
    SeenFile,
    SetSite,
    Show,
    ShowAlive,
    SplitAt,
    Taken,
    TryFailed,
    Work,
)
from heronpy.ingest.ledger.types import Config, DispatchState, File, FileState, Kind, Span, SpanState, Unit, UnitState
from heronpy.ingest.ledger.validate import validate
from tests.ingest.ledger_world import Process, World

SMALL = Config(pattern="*.log", unit_bytes=100, unit_wait_s=2.0)


def _world(config: Config = SMALL, sites: int = 1, pipeline: str = "p", store: MemoryStore | None = None) -> World:
    return World([store or MemoryStore()], pipeline, config, sites)


def _see(world: World, key: str, size: int, keeper: int = 0, **more: Any) -> Any:
    seen = SeenFile(key, more.pop("generation", 1), key, size, more.pop("inode", key), more.pop("head", "h"), **more)
    return world.ask(world.keepers[keeper], ReportScan((seen,)))


def _lease(world: World, worker: int = 0) -> Any:
    world.ask(world.workers[worker], ShowAlive())
    return world.ask(world.workers[worker], Lease())


def _units(world: World) -> list[Unit]:
    return [row for row in world.rows() if isinstance(row, Unit)]


def _spans(world: World) -> list[tuple[int, int, SpanState]]:
    return [(row.begin, row.end, row.state) for row in world.rows() if isinstance(row, Span)]


def _all_alive(world: World) -> None:
    for process in (*world.workers, *world.keepers):
        world.ask(process, ShowAlive())


# ---- files and cuts -------------------------------------------------------------------------
def test_a_unit_is_cut_when_it_is_full_or_its_oldest_byte_is_old() -> None:
    world = _world()
    _see(world, "a", 250)
    cut = world.ask(world.keepers[0], Cut())
    assert (len(cut.units), cut.brake) == (2, Brake.YOUNG)
    world.now += 2.0
    assert len(world.ask(world.keepers[1], Cut()).units) == 1
    assert world.ask(world.keepers[1], Cut()) == replace(cut, units=(), brake=Brake.NOTHING, now=world.now)


def test_no_cut_while_enough_is_ready() -> None:
    world = _world()
    _see(world, "a", 10_000)
    cut = world.ask(world.keepers[0], Cut())
    assert (len(cut.units), cut.brake) == (4 * len(world.workers), Brake.READY)
    assert world.ask(world.keepers[1], Cut()).units == ()


def test_a_unit_has_small_files_together_and_the_oldest_first() -> None:
    world = _world()
    for number in range(5):
        _see(world, f"f{number}", 30)
        world.now += 0.1
    world.now += 2.0
    world.ask(world.keepers[0], Cut())
    first, second = _lease(world), _lease(world, 1)
    assert [(chunk.key, chunk.begin, chunk.end) for chunk in first.chunks] == [
        *(("f0", 0, 30), ("f1", 0, 30), ("f2", 0, 30), ("f3", 0, 10)),
    ]
    assert [chunk.key for chunk in second.chunks] == ["f3", "f4"]


def test_a_size_never_shrinks_and_duplicates_change_nothing() -> None:
    world = _world()
    _see(world, "a", 50)
    _all_alive(world)
    before = world.rows()
    assert _see(world, "a", 20, keeper=1).known[0].file.size == 50
    assert [row for row in world.rows() if isinstance(row, (File, Span))] == [
        row for row in before if isinstance(row, (File, Span))
    ]


def test_a_decision_on_an_old_row_is_refused() -> None:
    world = _world()
    _see(world, "a", 50, head="short")
    _see(world, "a", 60, head="longer", compared="short")
    answer = _see(world, "a", 70, keeper=1, head="other", compared="short")
    assert answer.stale == (0,)
    assert answer.known[0].file.head == "longer"
    assert _see(world, "a", 10, keeper=1, generation=2, head="other", compared="").stale == ()
    assert _see(world, "a", 10, keeper=0, generation=2, head="third", compared="").stale == (0,)


def test_a_mutated_file_is_not_processed_and_what_was_cut_is_bad() -> None:
    world = _world()
    _see(world, "a", 250)
    world.ask(world.keepers[0], Cut())
    work = _lease(world)
    _see(world, "a", 260, mutated=True)
    assert [row.state for row in world.rows() if isinstance(row, File)] == [FileState.MUTATED]
    assert _spans(world) == [
        (0, 100, SpanState.UNIT),
        (100, 200, SpanState.BAD),
        (200, 250, SpanState.BAD),
    ]
    assert world.ask(world.workers[0], Commit(work.unit, work.attempt, 1, 1, 0.1)).lost is None
    world.now += 10
    assert world.ask(world.keepers[0], Cut()).units == ()


def test_a_file_that_is_older_than_the_horizon_is_refused_and_counted() -> None:
    world = _world()
    week = SMALL.days * 86_400
    assert _see(world, "first", 10, age_s=10 * week).late == ()  # nothing can have been forgotten yet
    world.now += week + 1
    assert _see(world, "late", 10, age_s=week + 1).late == (0,)
    assert _see(world, "new", 10, age_s=week - 1).late == ()
    assert world.ask(world.user, Show()).files == {"live": 2, "late": 1}
    assert _see(world, "late", 20, age_s=0.0).late == (0,)


def test_names_that_no_store_can_keep_are_refused() -> None:
    world = _world()
    for key in ("a\0b", "a\udcff", "a" * 3_000):
        with pytest.raises(LedgerError, match="UTF-8"):
            _see(world, key, 1)
    with pytest.raises(LedgerError, match="make several"):
        world.ask(world.keepers[0], ReportScan((SeenFile("a", 1, "a", 1, "i", "h"),) * 1_001))


def test_a_file_may_be_twice_in_one_report() -> None:
    world = _world()
    seen = SeenFile("a", 1, "a", 30, "i", "h")
    answer = world.ask(world.keepers[0], ReportScan((seen, replace(seen, size=40), replace(seen, head="x"))))
    assert answer.stale == (2,)
    assert [one.file.size for one in answer.known] == [40]
    two = ReportScan((SeenFile("b", 1, "b", 1, "i", "h"), SeenFile("b", 2, "b", 1, "j", "h")))
    answer = world.ask(world.keepers[0], two)
    assert [(one.file.generation, one.file.id) for one in answer.known] == [(1, 2), (2, 3)]


def test_who_has_missed_a_file_cannot_say_that_another_one_is_new() -> None:
    world = _world()
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
    world = _world()
    _see(world, "a", 30)
    _see(world, "b", 30)
    world.now += 3.0
    world.ask(world.keepers[0], Cut())
    world.ask(world.keepers[0], ReportScan((), (GoneFile(1, "a"),)))
    assert isinstance(_lease(world), Idle)
    world.now += 61.0
    assert world.ask(world.keepers[0], Collect()).lost == 30
    work = _lease(world)
    assert [chunk.key for chunk in work.chunks] == ["b"]
    assert world.ask(world.user, ListBad()).ranges[0].span.error == "the file was gone before it was processed"


def test_ten_days_of_rotation_leave_a_flat_ledger() -> None:
    world = _world(replace(SMALL, days=7.0))
    counts = []
    for hour in range(240):
        key = f"log-{hour:04}"
        _see(world, key, 150)
        world.now += 1_800
        _all_alive(world)
        world.ask(world.keepers[0], Cut())
        for _ in range(3):
            work = _lease(world)
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
    assert _see(world, "log-0000", 150, age_s=9 * 86_400).late == (0,)


# ---- leases ---------------------------------------------------------------------------------
def test_a_lease_is_repeated_and_not_given_twice() -> None:
    world = _world()
    _see(world, "a", 200)
    world.ask(world.keepers[0], Cut())
    work = _lease(world)
    assert world.ask(world.workers[0], Lease(), again=True) == work
    assert _lease(world).unit != work.unit


def test_a_backup_is_taken_after_the_lease_in_another_container() -> None:
    world = _world()
    _see(world, "a", 100)
    world.ask(world.keepers[0], Cut())
    first = _lease(world, 0)
    assert first.until_s == policy.LEASE_MIN_S
    world.now += 4.9
    _all_alive(world)
    assert isinstance(_lease(world, 1), Idle)
    world.now += 0.2
    assert isinstance(_lease(world, 2), Idle)  # the container of the first one
    second = _lease(world, 1)
    assert (second.unit, second.attempt, second.backup) == (first.unit, 2, True)
    assert second.until_s == 2 * policy.LEASE_MIN_S
    # Late is fine; who comes second has lost.
    assert world.ask(world.workers[0], Commit(first.unit, 1, 1, 1, 0.1)).lost is None
    assert world.ask(world.workers[1], Commit(first.unit, 2, 1, 1, 0.1)).lost is Lost.OTHER_WON


def test_three_workers_finish_one_unit_and_one_counts() -> None:
    world = _world()
    _see(world, "a", 100)
    world.ask(world.keepers[0], Cut())
    works = []
    for number in (0, 1, 2):
        works.append((number, _lease(world, number)))
        world.now += 60.0
        _all_alive(world)
    answers = [world.ask(world.workers[n], Commit(work.unit, work.attempt, 1, 1, 0.1)).lost for n, work in works]
    assert answers == [None, Lost.OTHER_WON, Lost.OTHER_WON]


def test_the_time_of_a_lease_follows_the_pace_of_commits() -> None:
    assert policy.lease_s([], 32 << 20, 1) == policy.LEASE_MIN_S
    assert policy.lease_s([1e-6, 2e-6, 9.0], 10_000_000, 1) == pytest.approx(62.0)
    assert policy.lease_s([1.0], 10**12, 1) == policy.LEASE_MAX_S
    assert policy.lease_s([], 1, 3) == 4 * policy.LEASE_MIN_S
    assert policy.lease_s([], 1, 10_000) == policy.LEASE_MIN_S * 2**policy.DOUBLINGS


def test_the_silent_lose_their_leases() -> None:
    world = _world()
    _see(world, "a", 100)
    world.ask(world.keepers[0], Cut())
    _lease(world, 0)
    world.ask(world.user, RetryFailed())
    world.now += 4.0
    assert isinstance(_lease(world, 2), Idle)
    world.now += 11.5
    work = _lease(world, 2)  # of the same container, as the holder may be dead
    assert (work.attempt, work.backup) == (2, False)


def test_a_successor_gives_back_and_only_own_deaths_count() -> None:
    world = _world()
    _see(world, "a", 100)
    world.ask(world.keepers[0], Cut())
    for counts, tries in ((False, 0), (True, 1)):
        unit = _lease(world, 0).unit
        world.workers[0].incarnation += 1
        world.workers[0].number = 0
        assert world.ask(world.workers[0], GiveBack(counts, "exit code 9")).units == (unit,)
        assert world.ask(world.workers[0], GiveBack(counts, "exit code 9")).units == ()
        assert _units(world)[0].tries == tries
    assert isinstance(_lease(world, 1), Idle)  # it rests for a second
    world.now += 1.0
    assert isinstance(_lease(world, 1), Work)
    assert world.ask(world.workers[1], GiveBack(False, "", own=True)).units == (1,)


def test_throttles() -> None:
    world = _world(replace(SMALL, unpublished_units=1, bytes_per_s=50.0))
    _see(world, "a", 1_000)
    world.ask(world.keepers[0], Cut())
    work = _lease(world, 0)
    assert _lease(world, 1).brake is Brake.RATE
    world.now += 2.0
    other = _lease(world, 1)
    assert isinstance(other, Work)
    world.ask(world.workers[0], Commit(work.unit, 1, 1, 1, 0.1))
    world.now += 2.0
    assert _lease(world, 0).brake is Brake.UNPUBLISHED
    world.ask(world.keepers[0], Published((work.unit,), 1))
    assert isinstance(_lease(world, 0), Work)
    assert world.ask(world.user, Pause(True)) == Alive(1, True)
    assert _lease(world, 2).brake is Brake.PAUSED
    assert world.ask(world.keepers[0], Cut()).brake is Brake.PAUSED


def test_a_site_has_its_units_until_it_is_down_or_silent() -> None:
    world = _world(sites=2)
    for keeper in (0, 1):
        _see(world, "a", 300, keeper=keeper)
    world.ask(world.keepers[0], Cut())
    east = _lease(world, 0)
    world.now += 6.0
    _all_alive(world)
    others = [_lease(world, 1) for _ in range(3)]
    assert [type(one) for one in others] == [Work, Work, Idle]  # the first one stays in the east
    assert world.ask(world.user, SetSite("east", False)).freed == 1
    assert _lease(world, 0).brake is Brake.SITE_DOWN
    taken = _lease(world, 3)
    assert (taken.unit, taken.attempt) == (east.unit, 2)
    world.ask(world.user, SetSite("east", True))
    world.now += 31.0
    world.ask(world.workers[0], ShowAlive())
    assert isinstance(_lease(world, 0), Work)  # the west has been silent


def test_a_site_takes_only_what_it_has() -> None:
    world = _world(sites=2)
    _see(world, "a", 100, keeper=0)
    world.ask(world.keepers[0], Cut())
    assert isinstance(_lease(world, 1), Idle)
    _see(world, "a", 90, keeper=1)
    assert isinstance(_lease(world, 1), Idle)
    _see(world, "a", 100, keeper=1)
    assert isinstance(_lease(world, 1), Work)


# ---- bad bytes ------------------------------------------------------------------------------
def _fails_at(world: World, line: int, rows: int = 1) -> object:
    """The next unit fails at a line, whether it has it or not, behind so many rows."""
    work = _lease(world)
    failed = TryFailed(work.unit, work.attempt, 1, "boo", Line(1, line, line + 10), rows)
    return world.ask(world.workers[0], failed)


def test_a_line_that_raises_three_times_is_cut_out() -> None:
    world = _world()
    _see(world, "a", 100)
    world.ask(world.keepers[0], Cut())
    # The lines before it were good: the others do not wait for the tries that it has left.
    assert _fails_at(world, 40) == Taken((2, 3, 4))
    for chunk in ((0, 40), (50, 100)):
        [one] = _lease(world).chunks
        assert (one.begin, one.end) == chunk
    assert _lease(world, 1).brake is Brake.LATER
    world.now += 1.0
    # Alone it has two tries.
    assert _fails_at(world, 40) == Again(2)
    assert _lease(world, 1).brake is Brake.LATER
    world.now += 5.0
    assert _fails_at(world, 40) == Bad(1, 3, (Line(1, 40, 50),), "boo")
    assert _spans(world) == [(0, 40, SpanState.UNIT), (40, 50, SpanState.BAD), (50, 100, SpanState.UNIT)]
    assert world.ask(world.user, Show()).bad_ranges == 1
    assert world.ask(world.user, RetryBad(root=1)).units == (5,)
    assert all(unit.tries == 0 for unit in _units(world))


def test_a_first_line_that_raises_is_tried_among_the_others() -> None:
    """What the function needs may be away: then every line would raise."""
    world = _world()
    _see(world, "a", 100)
    world.ask(world.keepers[0], Cut())
    answers = []
    for wait in (1.0, 5.0, 0.0):
        answers.append(_fails_at(world, 0, rows=0))
        if wait:
            assert _lease(world).brake is Brake.LATER
        world.now += wait
    assert answers == [Again(1), Again(2), Taken((2, 3))]
    # Alone it has one try.
    assert _fails_at(world, 0, rows=0) == Bad(1, 3, (Line(1, 0, 10),), "boo")


def test_lines_are_tried_apart_as_long_as_so_many_may_be_bad() -> None:
    world = _world(replace(SMALL, bad_max=3))
    _see(world, "a", 100)
    world.ask(world.keepers[0], Cut())
    answers = []
    for line in (20, 40, 60):
        while True:
            work = _lease(world)
            if any(one.begin <= line < one.end for one in work.chunks):
                break
        answers.append(
            world.ask(world.workers[0], TryFailed(work.unit, work.attempt, 1, "boo", Line(1, line, line + 10), 1))
        )
    assert answers == [Taken((2, 3, 4)), Taken((5, 6, 7)), Taken((8, 9, 10))]
    work = _lease(world)
    while not any(one.begin == 70 for one in work.chunks):
        work = _lease(world)
    assert world.ask(world.workers[0], TryFailed(work.unit, work.attempt, 1, "boo", Line(1, 80, 90), 1)) == Again(1)


def test_a_line_that_fails_only_among_others_is_not_bad() -> None:
    """A function that takes the lines in batches fails at the last one of a batch, whichever is to blame."""
    world = _world()
    _see(world, "a", 100)
    world.ask(world.keepers[0], Cut())
    _fails_at(world, 40)
    world.now += 1.0
    work = _lease(world)
    assert [(one.begin, one.end) for one in work.chunks] == [(40, 50)]
    world.ask(world.workers[0], Commit(work.unit, work.attempt, 1, 1, 0.1))
    world.ask(world.keepers[0], Published((work.unit,), 1))
    assert _spans(world) == [(0, 40, SpanState.UNIT), (40, 50, SpanState.DONE), (50, 100, SpanState.UNIT)]
    assert world.ask(world.user, Show()).bad_ranges == 0


def test_a_crash_is_halved_down_to_its_line() -> None:
    lines = 64
    world = _world(replace(SMALL, unit_bytes=10 * lines))
    _see(world, "a", 10 * lines)
    world.now += 3.0
    world.ask(world.keepers[0], Cut())
    world.poison["a", 370] = "die"
    crashes = 0
    for _ in range(500):
        world.now += 6.0
        _all_alive(world)
        work = world.ask(world.workers[0], Lease())
        if isinstance(work, Idle):
            break
        crashes += isinstance(work, Work) and any(one.begin <= 370 < one.end for one in work.chunks)
        world.end(world.workers[0], work)
    assert crashes <= 3 + math.log2(lines)
    bad = [one.span for one in world.ask(world.user, ListBad()).ranges]
    assert [(one.begin, one.end) for one in bad] == [(370, 380)]
    assert bad[0].error == "killed by a signal"


def test_lines_that_differ_are_no_diagnosis() -> None:
    world = _world()
    _see(world, "a", 100)
    world.ask(world.keepers[0], Cut())
    for line in (0, None, 0):
        work = _lease(world)
        found = None if line is None else Line(1, line, line + 10)
        world.ask(world.workers[0], TryFailed(work.unit, work.attempt, 1, "boo", found))
        world.now += 5.0
    halve = _lease(world)
    assert isinstance(halve, Halve)
    with pytest.raises(LedgerError, match="not inside"):
        world.ask(world.workers[0], SplitAt(halve.unit, halve.attempt, 1, 1, 100))
    assert isinstance(world.ask(world.workers[0], SplitAt(halve.unit, halve.attempt, 1, 1, 50)), Taken)
    assert sorted(unit.tries for unit in _units(world)) == [2, 2]


def test_too_many_bad_ranges_are_a_bug_and_retry_begins_anew() -> None:
    world = _world(replace(SMALL, bad_max=2, tries_max=1))
    _see(world, "a", 100)
    world.ask(world.keepers[0], Cut())
    judged = []
    for line in (10, 20, 30):
        # Cut out, and then alone.
        for _ in range(2):
            while True:
                work = _lease(world)
                if any(one.begin <= line < one.end for one in work.chunks):
                    break
            judged.append(
                world.ask(world.workers[0], TryFailed(work.unit, work.attempt, 1, "boo", Line(1, line, line + 10)))
            )
    assert [type(one) for one in judged] == [Taken, Bad, Taken, Bad, Taken, Failed]
    assert "more than 2 ranges" in judged[-1].error
    with pytest.raises(LedgerError, match="has not failed"):
        world.ask(world.user, RetryFailed(unit=1))
    assert world.ask(world.user, RetryFailed()).units == (judged[-1].unit,)
    assert isinstance(_lease(world), Work)


def test_rows_that_go_to_bolts_have_no_backups() -> None:
    for rows_to, gets in (("table", Work), ("bolts", Idle)):
        world = _world(replace(SMALL, rows_to=rows_to))
        _see(world, "a", 100)
        world.ask(world.keepers[0], Cut())
        work = _lease(world)
        for _ in range(int(work.until_s) + 10):
            world.now += 1.0
            world.ask(world.workers[0], ShowAlive())
        assert isinstance(world.ask(world.workers[1], Lease()), gets)
        # A holder that was not seen for long has lost its lease in any case.
        world.now += 20.0
        assert isinstance(world.ask(world.workers[2], Lease()), Work)


def test_on_bad_fail_takes_nothing_apart() -> None:
    world = _world(replace(SMALL, on_bad="fail", tries_max=2))
    _see(world, "a", 100)
    world.ask(world.keepers[0], Cut())
    work = _lease(world)
    world.ask(world.workers[0], TryFailed(work.unit, work.attempt, 1, "boo", Line(1, 0, 10)))
    world.now += 1.0
    _lease(world)
    world.workers[0].incarnation += 1
    assert world.ask(world.workers[0], GiveBack(True, "out of memory")).failed == (work.unit,)
    [unit] = _units(world)
    assert unit.state is UnitState.FAILED and unit.error == "a 0-100: out of memory"
    # Nothing else is handed out until a user has it tried again.
    _see(world, "b", 100)
    world.ask(world.keepers[0], Cut())
    idle = world.ask(world.workers[1], Lease())
    assert isinstance(idle, Idle) and idle.brake is Brake.FAILED
    world.ask(world.user, RetryFailed())
    assert isinstance(world.ask(world.workers[1], Lease()), Work)


# ---- ends and beginnings --------------------------------------------------------------------
def test_a_dispatch_is_made_when_it_is_due_and_repeats() -> None:
    world = _world(replace(SMALL, dispatch_bytes=150))
    _see(world, "a", 300)
    world.ask(world.keepers[0], Cut())
    for _ in range(3):
        work = _lease(world)
        world.ask(world.workers[0], Commit(work.unit, 1, 1, 1, 0.1))
    first = world.ask(world.keepers[0], MakeDispatch()).dispatches
    assert [len(one.units) for one in first] == [2]
    assert world.ask(world.keepers[1], MakeDispatch()).dispatches == first
    world.now += 5.0
    assert [len(one.units) for one in world.ask(world.keepers[1], MakeDispatch()).dispatches] == [2, 1]
    assert world.ask(world.keepers[0], ListFinished()).units == ()
    assert world.ask(world.keepers[0], Published((1, 2, 3), 1)).units == 0


def test_a_failed_dispatch_waits_for_a_user_and_goes_out_under_another_id() -> None:
    world = _world(replace(SMALL, dispatch_bytes=150))
    _see(world, "a", 200)
    world.ask(world.keepers[0], Cut())
    for _ in range(2):
        work = _lease(world)
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
    world = _world()
    _see(world, "a", 250)
    world.ask(world.keepers[0], Cut())
    work = _lease(world)
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
    assert _spans(world) == [
        (0, 40, SpanState.DONE),
        (40, 60, SpanState.BAD),
        (60, 150, SpanState.UNIT),
        (150, 180, SpanState.DONE),
    ]
    assert world.ask(world.workers[0], Commit(work.unit, 1, 1, 1, 0.1)).lost is Lost.GENERATION
    _see(world, "a", 250)
    assert isinstance(_lease(world), Work)


def test_numbers_that_cannot_work_are_refused() -> None:
    world = _world()
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
    with pytest.raises(LedgerError, match="no such pipeline"):
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
    world = _world()
    _see(world, "a", 100)
    world.ask(world.keepers[0], Cut())
    unit = _lease(world).unit
    assert world.ask(world.user, Show()).workers > 0
    for process in (*world.workers, *world.keepers):
        world.ask(process, ShowAlive())
        world.ask(process, Leave())
    figures = world.ask(world.user, Show())
    assert (figures.workers, figures.keepers) == (0, 0)
    assert [one.state for one in _units(world)] == ["ready"]
    assert world.ask(world.user, Rebuild(SMALL, ())).generation == 2
    world.ask(world.workers[0], Leave())  # repeated
    assert world.ask(world.user, Show()).workers == 0
    assert isinstance(_lease(world, 1), Idle) and unit == 1


def test_figures_tell_of_published_units_their_time_backups_and_lines_without_an_end() -> None:
    world = _world()
    _see(world, "a", 300)
    world.ask(world.keepers[0], Cut(unfinished=12))
    figures = world.ask(world.user, Show())
    assert (figures.published_units, figures.p50_s, figures.p99_s, figures.unfinished_bytes) == (0, None, None, 12)
    first = _lease(world, 0)
    world.now += first.until_s + 1.0
    world.ask(world.workers[0], ShowAlive())
    backup = _lease(world, 1)
    assert backup.backup and backup.unit == first.unit
    world.ask(world.workers[1], Commit(backup.unit, backup.attempt, 1, 1, 4.0))
    for _ in range(2):
        work = _lease(world, 0)
        world.ask(world.workers[0], Commit(work.unit, work.attempt, 1, 1, 2.0))
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
