"""Who gets a unit of a ledger, for how long, and who gets its backup, in invented time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from heronpy.ingest.ledger import policy
from heronpy.ingest.ledger.commands import (
    Pause,
    RetryFailed,
    Show,
)
from heronpy.ingest.ledger.requests import (
    ENDED,
    Alive,
    Brake,
    Commit,
    Cut,
    GiveBack,
    Idle,
    Lease,
    ListFinished,
    Lost,
    Published,
    ShowAlive,
    TryFailed,
    Work,
)
from heronpy.ingest.ledger.types import Pace
from tests.ingest.ledger_steps import SMALL, all_alive, lease, see, units_of, world_of
from tests.ingest.ledger_world import World


def test_a_lease_is_repeated_and_not_given_twice() -> None:
    world = world_of()
    see(world, "a", 200)
    world.ask(world.keepers[0], Cut())
    work = lease(world)
    assert world.ask(world.workers[0], Lease(), again=True) == work
    assert lease(world).unit != work.unit


def test_a_backup_is_taken_after_the_lease_in_another_container() -> None:
    world = world_of()
    see(world, "a", 100)
    world.ask(world.keepers[0], Cut())
    first = lease(world, 0)
    assert first.until_s == policy.LEASE_FIRST_S
    for _ in range(10):
        world.now += 2.99
        all_alive(world)
        assert isinstance(lease(world, 1), Idle)
    world.now += 0.2
    assert isinstance(lease(world, 2), Idle)  # the container of the first one
    second = lease(world, 1)
    assert (second.unit, second.attempt, second.backup) == (first.unit, 2, True)
    assert second.until_s == 2 * policy.LEASE_FIRST_S
    # Late is fine; who comes second has lost.
    assert world.ask(world.workers[0], Commit(first.unit, 1, 1, 1, 0.1)).lost is None
    assert world.ask(world.workers[1], Commit(first.unit, 2, 1, 1, 0.1)).lost is Lost.OTHER_WON


def test_a_unit_has_one_backup_and_one_of_the_two_counts() -> None:
    world = world_of()
    see(world, "a", 100)
    world.ask(world.keepers[0], Cut())
    works = []
    for number in (0, 1):
        works.append((number, lease(world, number)))
        for _ in range(10):
            world.now += 10.0
            all_alive(world)
    assert isinstance(lease(world, 2), Idle)
    answers = [world.ask(world.workers[n], Commit(work.unit, work.attempt, 1, 1, 0.1)).lost for n, work in works]
    assert answers == [None, Lost.OTHER_WON]


def test_a_backup_goes_behind_all_that_nobody_has_begun() -> None:
    world = world_of()
    paced(world, [0.1] * 5)
    see(world, "b", 200)
    world.ask(world.keepers[0], Cut())
    late = lease(world, 0)
    world.now += 60.0
    all_alive(world)
    ready = lease(world, 1)
    assert (ready.unit, ready.backup) != (late.unit, True) and not ready.backup
    backup = lease(world, 3)
    assert (backup.unit, backup.backup) == (late.unit, True)


def test_a_silent_holder_s_unit_counts_as_one_that_nobody_has_begun() -> None:
    world = world_of()
    see(world, "a", 200)
    world.ask(world.keepers[0], Cut())
    lost = lease(world, 0)
    world.now += 16.0
    world.ask(world.workers[1], ShowAlive())
    assert (lease(world, 1).unit, units_of(world)[0].backup) == (lost.unit, 0)
    assert world.ask(world.user, Show()).preempted == 1


def paced(world: World, paces: list[float], worker: int = 0, key: str = "a") -> None:
    """A worker commits units of 100 bytes, each of which took its pace of seconds per byte."""
    see(world, key, 100 * len(paces))
    world.ask(world.keepers[0], Cut())
    for pace in paces:
        work = lease(world, worker)
        world.ask(world.workers[worker], Commit(work.unit, work.attempt, 1, 1, pace * 100))
        world.now += 0.1
    units = tuple(one.unit for one in world.ask(world.keepers[0], ListFinished(64)).units)
    world.ask(world.keepers[0], Published(units, 1))


def pace(seconds: float, container: str = "", at: float = 0.0) -> Pace:
    return Pace(0, seconds, seconds, container, at)


def test_the_time_of_a_lease_follows_the_pace_of_commits() -> None:
    few, known = [pace(1e-6)] * 4, [pace(1e-6), pace(2e-6), pace(2e-6), pace(9.0), pace(9.0)]
    assert policy.lease_s([], 32 << 20, 1) == policy.lease_s(few, 1, 1) == policy.LEASE_FIRST_S
    assert policy.lease_s(known, 10_000_000, 1) == pytest.approx(30.0)
    assert policy.lease_s(known, 1, 1) == policy.LEASE_MIN_S
    assert policy.lease_s([pace(1.0)] * 5, 10**12, 1) == policy.LEASE_MAX_S
    assert policy.lease_s(known, 1, 3) == 4 * policy.LEASE_MIN_S
    assert policy.lease_s(known, 1, 10_000) == policy.LEASE_MIN_S * 2**policy.DOUBLINGS


def test_a_lease_ends_by_the_time_that_is_expected_by_then() -> None:
    """The first leases begin before any time is expected."""
    world = world_of()
    see(world, "b", 100)
    world.ask(world.keepers[0], Cut())
    first = lease(world, 0)
    paced(world, [0.01] * 5, worker=1)
    world.now += 1.0
    assert isinstance(lease(world, 1), Idle)
    world.now += 1.0
    all_alive(world)
    backup = lease(world, 1)
    assert (backup.unit, backup.backup) == (first.unit, True)


@given(st.lists(st.floats(1.0, 2.9), min_size=5, max_size=40), st.integers(1, 6))
def test_no_container_is_slow_among_alike_ones(paces: list[float], containers: int) -> None:
    found = [pace(one, f"c{number % containers}", number) for number, one in enumerate(paces)]
    assert not policy.slow_containers(found)


def test_a_container_is_slow_by_its_last_units_and_leaves_the_list_by_one_in_usual_time() -> None:
    usual = [pace(1.0, "a", at) for at in range(10)]
    slow = [pace(4.0, "b", at) for at in (1, 2, 3)]
    assert policy.slow_containers([*usual, *slow]) == {"b": policy.Slow(4.0, 3)}
    assert policy.slow_containers([*usual, *slow[:2]]) == {}
    assert policy.slow_containers([*usual, *slow, pace(1.0, "b", 4)]) == {}


def test_neither_short_units_nor_a_slowdown_of_all_containers_make_a_container_slow() -> None:
    usual = [pace(1.0, name, at) for name in "ab" for at in range(10)]
    short = [Pace(0, 40.0, 0.03, "b", at) for at in (11, 12, 13)]
    assert policy.slow_containers([*usual, *short]) == {}, "halves of a unit with a bad line"
    slow = [pace(4.0, name, at) for name in "ab" for at in (11, 12, 13)]
    assert policy.slow_containers([*usual, *slow[3:]]) == {"b": policy.Slow(4.0, 13)}
    assert policy.slow_containers([*usual, *slow]) == {}


def test_a_container_whose_unit_is_late_is_named_until_the_unit_has_a_backup() -> None:
    world = world_of(SMALL)
    paced(world, [0.02] * 5, worker=0, key="a")
    see(world, "b", 100)
    world.ask(world.keepers[0], Cut())
    lease(world, 1)
    world.now += 5.9
    assert world.ask(world.user, Show()).slow == {}
    world.now += 0.1
    assert world.ask(world.user, Show()).slow == {"c1": pytest.approx(3.0)}
    all_alive(world)
    assert lease(world, 0).backup
    assert world.ask(world.user, Show()).slow == {}


def test_a_slow_container_gets_what_others_cannot_soon_begin_and_a_probe_a_minute() -> None:
    world = world_of(replace(SMALL, ready_per_worker=16))
    paced(world, [0.1] * 10, worker=0, key="a")
    paced(world, [0.5] * 3, worker=1, key="b")
    assert world.ask(world.user, Show()).slow == {"c1": pytest.approx(5.0)}
    see(world, "c", 100 * 21)
    world.ask(world.keepers[0], Cut())
    all_alive(world)
    # 21 units and four workers: the last unit would wait for longer than a slow container needs for it.
    many = [lease(world, 1), lease(world, 1)]
    assert all(isinstance(one, Work) for one in many)
    assert lease(world, 1).brake is lease(world, 3).brake is Brake.SLOW
    assert isinstance(lease(world, 0), Work)
    for one in many:
        world.ask(world.workers[1], Commit(one.unit, one.attempt, 1, 1, 50.0))
    world.now += 59.0
    all_alive(world)
    assert lease(world, 1).brake is Brake.SLOW
    world.now += 2.0
    probe = lease(world, 1)
    assert isinstance(probe, Work)
    assert lease(world, 3).brake is Brake.SLOW  # one at a time in a container
    world.ask(world.workers[1], Commit(probe.unit, probe.attempt, 1, 1, 10.0))
    assert "c1" not in world.ask(world.user, Show()).slow
    assert isinstance(lease(world, 1), Work)


def test_a_slow_container_alone_works() -> None:
    world = world_of()
    paced(world, [0.1] * 5, worker=0, key="a")
    paced(world, [0.5] * 3, worker=1, key="b")
    world.now += 20.0
    see(world, "c", 100)
    world.ask(world.keepers[0], Cut())
    assert isinstance(lease(world, 1), Work)


def test_an_attempt_hears_that_it_is_in_vain_with_its_sign_of_life() -> None:
    world = world_of()
    paced(world, [0.01] * 5)
    see(world, "b", 100)
    world.ask(world.keepers[0], Cut())
    first = lease(world, 0)
    world.now += 10.0
    all_alive(world)
    second = lease(world, 1)
    assert second.backup
    shows = [ShowAlive(one.unit, one.attempt, 1) for one in (first, second)]
    assert [world.ask(world.workers[n], show).in_vain for n, show in enumerate(shows)] == [False, False]
    world.ask(world.workers[1], Commit(second.unit, second.attempt, 1, 1, 0.5))
    assert [world.ask(world.workers[n], show).in_vain for n, show in enumerate(shows)] == [True, False]
    assert world.ask(world.workers[0], ShowAlive(first.unit, 1, generation=2)).in_vain
    assert not world.ask(world.workers[0], ShowAlive()).in_vain
    world.ask(world.keepers[0], Published((second.unit,), 1))
    figures = world.ask(world.user, Show())
    assert (figures.attempts, figures.backups, figures.backups_won, figures.in_vain) == (7, 1, 1, 1)


def test_the_silent_lose_their_leases() -> None:
    world = world_of()
    see(world, "a", 100)
    world.ask(world.keepers[0], Cut())
    lease(world, 0)
    world.ask(world.user, RetryFailed())
    world.now += 4.0
    assert isinstance(lease(world, 2), Idle)
    world.now += 11.5
    work = lease(world, 2)  # of the same container, as the holder may be dead
    assert (work.attempt, work.backup) == (2, False)


def test_work_says_whether_its_last_try_ended_with_an_exception() -> None:
    """Then its lines may be processed together, because the process that finds an error survives."""
    world = world_of()
    see(world, "a", 100)
    world.ask(world.keepers[0], Cut())
    work = lease(world)
    assert not work.raised
    world.ask(world.workers[0], TryFailed(work.unit, work.attempt, 1, "ValueError: boo", None))
    world.now += 5.0
    work = lease(world)
    assert work.tries == 1 and work.raised
    world.ask(world.workers[0], GiveBack(True, f"{ENDED}crashed", own=True))
    world.now += 5.0
    work = lease(world)
    assert work.tries == 2 and not work.raised


def test_a_successor_gives_back_and_only_own_deaths_count() -> None:
    world = world_of()
    see(world, "a", 100)
    world.ask(world.keepers[0], Cut())
    for counts, tries in ((False, 0), (True, 1)):
        unit = lease(world, 0).unit
        world.workers[0].incarnation += 1
        world.workers[0].number = 0
        assert world.ask(world.workers[0], GiveBack(counts, "exit code 9")).units == (unit,)
        assert world.ask(world.workers[0], GiveBack(counts, "exit code 9")).units == ()
        assert units_of(world)[0].tries == tries
    assert isinstance(lease(world, 1), Idle)  # it rests for a second
    world.now += 1.0
    assert isinstance(lease(world, 1), Work)
    assert world.ask(world.workers[1], GiveBack(False, "", own=True)).units == (1,)


def test_a_unit_that_cannot_be_read_twice_lets_other_units_go_first() -> None:
    world = world_of()
    see(world, "a", 100)
    world.ask(world.keepers[0], Cut())
    for expected in (Work, Idle):
        assert isinstance(lease(world, 1), Work)
        world.ask(world.workers[1], GiveBack(False, "a.log was truncated", own=True))
        found = lease(world, 0)
        assert isinstance(found, expected)
        if isinstance(found, Work):
            world.ask(world.workers[0], GiveBack(False, "", own=True))
    world.now += 3.0
    assert isinstance(lease(world, 0), Work)


def test_throttles() -> None:
    world = world_of(replace(SMALL, unpublished_units=1, bytes_per_s=50.0))
    see(world, "a", 1_000)
    world.ask(world.keepers[0], Cut())
    work = lease(world, 0)
    assert lease(world, 1).brake is Brake.RATE
    world.now += 2.0
    other = lease(world, 1)
    assert isinstance(other, Work)
    world.ask(world.workers[0], Commit(work.unit, 1, 1, 1, 0.1))
    world.now += 2.0
    assert lease(world, 0).brake is Brake.UNPUBLISHED
    world.ask(world.keepers[0], Published((work.unit,), 1))
    assert isinstance(lease(world, 0), Work)
    assert world.ask(world.user, Pause(True)) == Alive(1, True)
    assert lease(world, 2).brake is Brake.PAUSED
    assert world.ask(world.keepers[0], Cut()).brake is Brake.PAUSED
