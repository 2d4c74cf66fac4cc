"""Shuffles that go where there is room, small frames for slow tasks, and the pace of a task."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.plan.grouping import LocalOrShuffle, Shuffle
from heronpy.task.outlets import Outlet
from instance.in_queue import Pace, TunedCapacity

TASKS = st.sets(st.integers(1, 9), min_size=1)


@given(TASKS, st.sets(st.integers(1, 9)), st.integers(0, 100))
def test_a_shuffle_goes_round_those_with_room(tasks: set[int], full: set[int], start: int) -> None:
    chooser = Shuffle(tasks, start)
    chooser.avoid(full)
    wanted = tasks - full or tasks
    assert sorted(chooser.target() for _ in range(2 * len(wanted))) == sorted([*wanted, *wanted])
    chooser.avoid(set())
    assert sorted(chooser.target() for _ in range(len(tasks))) == sorted(tasks)


@given(TASKS, TASKS, st.sets(st.integers(1, 9)))
def test_the_own_container_comes_first_while_it_has_room(tasks: set[int], local: set[int], full: set[int]) -> None:
    chooser = LocalOrShuffle(tasks, local)
    chooser.avoid(full)
    near, room = (tasks & local) - full, tasks - full
    assert set(chooser.open) == (near or room or tasks & local or tasks)


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=6, unique=True),
    st.dictionaries(st.integers(1, 20), st.integers(1, 50)),
    st.lists(st.integers(1, 3000), min_size=1, max_size=5),
)
def test_shares_take_all_and_respect_limits(dests: list[int], limits: dict[int, int], totals: list[int]) -> None:
    outlet = Outlet(0, dests, 1)
    for total in totals:
        shares = outlet.shares(total, limits)
        assert sum(size for _, size in shares) == total
        assert all(dest in dests and 0 < size <= limits.get(dest, total) for dest, size in shares)
        if any(dest not in limits for dest in dests):
            assert len(shares) == len({dest for dest, _ in shares}), "one share each"
        else:
            counts = [sum(size for dest, size in shares if dest == one) for one in dests]
            assert max(counts) - min(counts) <= max(limits.values()) * (total // min(limits.values()) + 1)


@pytest.mark.parametrize("total", [1, 2])
@pytest.mark.parametrize("limits", [{9: 5}, {1: 5, 2: 1, 3: 60}])
def test_even_small_flushes_reach_all_in_turn(total: int, limits: dict[int, int]) -> None:
    outlet = Outlet(0, [1, 2, 3], 1)
    got = [dest for _ in range(30) for dest, _ in outlet.shares(total, limits)]
    assert {dest: got.count(dest) for dest in (1, 2, 3)} == dict.fromkeys((1, 2, 3), 10 * total)


def test_the_pace_is_of_the_time_with_work() -> None:
    pace = Pace()
    assert not pace.sample(10, int(0.1e9)) and pace.rate == 0.0
    assert pace.sample(30, int(0.3e9)) and round(pace.rate) == 100
    assert not pace.sample(100, int(0.9e9)), "known, it changes once a second of work"
    assert pace.sample(330, int(1.3e9)) and round(pace.rate) == 200
    assert not pace.sample(330, int(9.3e9)), "no tuple has ended"
    assert pace.sample(331, int(11.3e9)) and 100.0 < pace.rate < 100.1


def test_the_in_queue_aims_at_a_time() -> None:
    capacity = TunedCapacity(8192, 65536, 0.8, 0.1)
    capacity.aim(12.7)
    assert capacity.expected == 12
    for step in range(40):
        capacity.sample(100, step * 0.1)
    assert capacity.current == 1
    capacity.aim(0.2)
    assert capacity.expected == 1
    capacity.aim(1e9)
    assert capacity.expected == 8192
