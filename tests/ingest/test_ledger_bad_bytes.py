"""What becomes of a unit with a line that fails, one rule at a time, in invented time."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from heronpy.common.errors import LedgerError
from heronpy.ingest.ledger import policy
from heronpy.ingest.ledger.commands import ListBad, RetryBad, RetryFailed, Show
from heronpy.ingest.ledger.requests import (
    Again,
    Bad,
    Brake,
    Commit,
    Cut,
    Failed,
    GiveBack,
    Halve,
    Idle,
    Lease,
    Line,
    Published,
    Returned,
    ShowAlive,
    SplitAt,
    Taken,
    TryFailed,
    Work,
)
from heronpy.ingest.ledger.types import SpanState, UnitState
from tests.ingest.ledger_steps import SMALL, all_alive, fails_at, lease, see, spans_of, units_of, world_of
from tests.ingest.ledger_world import World


def test_a_line_that_raises_three_times_is_cut_out() -> None:
    world = world_of()
    see(world, "a", 100)
    world.ask(world.keepers[0], Cut())
    # The lines before it were good: the others do not wait for the tries that it has left.
    assert fails_at(world, 40) == Taken((2, 3, 4))
    for chunk in ((0, 40), (50, 100)):
        [one] = lease(world).chunks
        assert (one.begin, one.end) == chunk
    assert lease(world, 1).brake is Brake.LATER
    world.now += 1.0
    # Alone it has two tries.
    assert fails_at(world, 40) == Again(2)
    assert lease(world, 1).brake is Brake.LATER
    world.now += 5.0
    assert fails_at(world, 40) == Bad(1, 3, (Line(1, 40, 50),), "boo")
    assert spans_of(world) == [(0, 40, SpanState.UNIT), (40, 50, SpanState.BAD), (50, 100, SpanState.UNIT)]
    assert world.ask(world.user, Show()).bad_ranges == 1
    assert world.ask(world.user, RetryBad(root=1)).units == (5,)
    assert all(unit.tries == 0 for unit in units_of(world))


def test_a_first_line_that_raises_is_tried_among_the_others() -> None:
    """What the function needs may be away: then every line would raise."""
    world = world_of()
    see(world, "a", 100)
    world.ask(world.keepers[0], Cut())
    answers = []
    for wait in (1.0, 5.0, 0.0):
        answers.append(fails_at(world, 0, rows=0))
        if wait:
            assert lease(world).brake is Brake.LATER
        world.now += wait
    assert answers == [Again(1), Again(2), Taken((2, 3))]
    # Alone it has one try.
    assert fails_at(world, 0, rows=0) == Bad(1, 3, (Line(1, 0, 10),), "boo")


def test_lines_are_tried_apart_as_long_as_so_many_may_be_bad() -> None:
    world = world_of(replace(SMALL, bad_max=3))
    see(world, "a", 100)
    world.ask(world.keepers[0], Cut())
    answers = []
    for line in (20, 40, 60):
        while True:
            work = lease(world)
            if any(one.begin <= line < one.end for one in work.chunks):
                break
        answers.append(
            world.ask(world.workers[0], TryFailed(work.unit, work.attempt, 1, "boo", Line(1, line, line + 10), 1))
        )
    assert answers == [Taken((2, 3, 4)), Taken((5, 6, 7)), Taken((8, 9, 10))]
    work = lease(world)
    while not any(one.begin == 70 for one in work.chunks):
        work = lease(world)
    assert world.ask(world.workers[0], TryFailed(work.unit, work.attempt, 1, "boo", Line(1, 80, 90), 1)) == Again(1)


def test_a_line_that_fails_only_among_others_is_not_bad() -> None:
    """A function that takes the lines in batches fails at the last one of a batch, whichever is to blame."""
    world = world_of()
    see(world, "a", 100)
    world.ask(world.keepers[0], Cut())
    fails_at(world, 40)
    world.now += 1.0
    work = lease(world)
    assert [(one.begin, one.end) for one in work.chunks] == [(40, 50)]
    world.ask(world.workers[0], Commit(work.unit, work.attempt, 1, 1, 0.1))
    world.ask(world.keepers[0], Published((work.unit,), 1))
    assert spans_of(world) == [(0, 40, SpanState.UNIT), (40, 50, SpanState.DONE), (50, 100, SpanState.UNIT)]
    assert world.ask(world.user, Show()).bad_ranges == 0


def test_a_crash_is_halved_down_to_its_line() -> None:
    lines = 64
    world = world_of(replace(SMALL, unit_bytes=10 * lines))
    see(world, "a", 10 * lines)
    world.now += 3.0
    world.ask(world.keepers[0], Cut())
    world.poison["a", 370] = "die"
    crashes = 0
    for _ in range(500):
        world.now += 6.0
        all_alive(world)
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
    world = world_of()
    see(world, "a", 100)
    world.ask(world.keepers[0], Cut())
    for line in (0, None, 0):
        work = lease(world)
        found = None if line is None else Line(1, line, line + 10)
        world.ask(world.workers[0], TryFailed(work.unit, work.attempt, 1, "boo", found))
        world.now += 5.0
    halve = lease(world)
    assert isinstance(halve, Halve)
    with pytest.raises(LedgerError, match="which is not inside the unit"):
        world.ask(world.workers[0], SplitAt(halve.unit, halve.attempt, 1, 1, 100))
    assert isinstance(world.ask(world.workers[0], SplitAt(halve.unit, halve.attempt, 1, 1, 50)), Taken)
    assert sorted(unit.tries for unit in units_of(world)) == [2, 2]


def test_too_many_bad_ranges_are_a_bug_and_retry_begins_anew() -> None:
    world = world_of(replace(SMALL, bad_max=2, tries_max=1))
    see(world, "a", 100)
    world.ask(world.keepers[0], Cut())
    judged = []
    # Cut out, and then alone; behind the second one the rest fails as a whole.
    for line in (10, 10, 20, 20, 30):
        while True:
            work = lease(world)
            if any(one.begin <= line < one.end for one in work.chunks):
                break
        judged.append(
            world.ask(world.workers[0], TryFailed(work.unit, work.attempt, 1, "boo", Line(1, line, line + 10)))
        )
    assert [type(one) for one in judged] == [Taken, Bad, Taken, Bad, Failed]
    assert "more than 2 ranges" in judged[-1].error
    with pytest.raises(LedgerError, match="has not failed"):
        world.ask(world.user, RetryFailed(unit=1))
    assert world.ask(world.user, RetryFailed()).units == (judged[-1].unit,)
    assert isinstance(lease(world), Work)


def test_rows_that_go_to_bolts_have_no_backups() -> None:
    for rows_to, gets in (("table", Work), ("bolts", Idle)):
        world = world_of(replace(SMALL, rows_to=rows_to))
        see(world, "a", 100)
        world.ask(world.keepers[0], Cut())
        work = lease(world)
        for _ in range(int(work.until_s) + 10):
            world.now += 1.0
            world.ask(world.workers[0], ShowAlive())
        assert isinstance(world.ask(world.workers[1], Lease()), gets)
        # A holder that was not seen for long has lost its lease in any case.
        world.now += 20.0
        assert isinstance(world.ask(world.workers[2], Lease()), Work)


def dies(world: World, error: str, line: Line | None = None, memory: bool = False) -> Returned:
    """The holder of a unit dies, and its successor reports it."""
    unit = lease(world).unit
    world.workers[0].incarnation += 1
    world.workers[0].number = 0
    answer = world.ask(world.workers[0], GiveBack(True, error, unit=unit, line=line, memory=memory))
    world.now += 6.0
    return answer


def test_on_bad_fail_halves_what_kills_its_workers_down_to_a_line() -> None:
    """A unit that is too big for memory is no bad line: each half may be small enough."""
    world = world_of(replace(SMALL, on_bad="fail"))
    see(world, "a", 100)
    world.ask(world.keepers[0], Cut())
    for _ in range(policy.MEMORY_TRIES):
        assert dies(world, "out of memory", memory=True).failed == ()
    halve = lease(world)
    assert isinstance(halve, Halve)
    taken = world.ask(world.workers[0], SplitAt(halve.unit, halve.attempt, 1, 1, 60))
    assert isinstance(taken, Taken)
    first = lease(world)
    assert [(chunk.begin, chunk.end) for chunk in first.chunks] == [(0, 60)]
    world.ask(world.workers[0], Commit(first.unit, first.attempt, 1, 6, 0.1))
    assert dies(world, "out of memory", memory=True).failed == ()  # the other half is tried once
    halve = lease(world)
    failed = world.ask(world.workers[0], SplitAt(halve.unit, halve.attempt, 1, begin=None))
    assert isinstance(failed, Failed) and failed.error == "a bytes 60-100: out of memory"
    assert world.ask(world.user, Show()).tries_failed == 3


def test_on_bad_fail_names_the_line_at_which_each_worker_died() -> None:
    world = world_of(replace(SMALL, on_bad="fail", tries_max=2))
    see(world, "a", 100)
    world.ask(world.keepers[0], Cut())
    line = Line(1, 30, 40)
    assert dies(world, "crashed", line).failed == ()
    [failed] = dies(world, "crashed", line).failed
    [unit] = units_of(world)
    assert (unit.id, unit.state, unit.error) == (failed, UnitState.FAILED, "a bytes 30-40: crashed")


def test_on_bad_fail_takes_nothing_apart_that_raises() -> None:
    world = world_of(replace(SMALL, on_bad="fail", tries_max=2))
    see(world, "a", 100)
    world.ask(world.keepers[0], Cut())
    for _ in range(2):
        work = lease(world)
        world.ask(world.workers[0], TryFailed(work.unit, work.attempt, 1, "boo"))
        world.now += 1.0
    [unit] = units_of(world)
    assert unit.state is UnitState.FAILED and unit.error == "a bytes 0-100: boo"
    # Nothing else is handed out until a user has it tried again.
    see(world, "b", 100)
    world.ask(world.keepers[0], Cut())
    idle = world.ask(world.workers[1], Lease())
    assert isinstance(idle, Idle) and idle.brake is Brake.FAILED
    world.ask(world.user, RetryFailed())
    assert isinstance(world.ask(world.workers[1], Lease()), Work)
