"""Shared moments: the processes of a host act together, once per interval, and groups apart from each other."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.common.clock import shared_moment

TIMES = st.floats(0, 1e8, allow_nan=False)
INTERVALS = st.floats(0.05, 1e3, allow_nan=False)
GROUPS = st.integers(0, 10_000)


@given(TIMES, INTERVALS, GROUPS)
def test_the_next_moment_is_ahead_and_not_later_than_an_interval_and_what_a_timer_may_be_early(
    now: float, interval_s: float, group: int
) -> None:
    after = shared_moment(now, interval_s, group) - now
    assert 0.0019 < after <= interval_s + 0.0021


@given(TIMES, INTERVALS, GROUPS, st.integers(1, 5))
def test_moments_follow_each_other_at_the_interval(now: float, interval_s: float, group: int, rounds: int) -> None:
    first = moment = shared_moment(now, interval_s, group)
    for _ in range(rounds):
        moment = shared_moment(moment, interval_s, group)
    assert moment - first == pytest.approx(rounds * interval_s, abs=1e-6)


@given(TIMES, st.integers(1, 20))
def test_a_rare_moment_is_one_of_the_frequent_ones(now: float, times: int) -> None:
    rare = shared_moment(now, float(times))
    assert rare == shared_moment(rare - 0.5, 1.0)


def test_groups_are_spread_over_the_interval() -> None:
    at = sorted(shared_moment(1000.0, 1.0, group) for group in range(8))
    assert min(after - before for before, after in pairwise(at)) > 0.05
