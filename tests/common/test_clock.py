"""Shared moments: the processes of a host act together, once per interval, and groups apart from each other.

Clocks that are compared: the true offset is always within the error, whatever the ways there and back take.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.common.clock import DRIFT, KEPT_NS, SAMPLES_MAX, ClockFilter, is_rare, offset_of, shared_moment

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


@given(TIMES, INTERVALS, GROUPS, st.integers(1, 5))
def test_each_nth_moment_of_a_group_is_one_of_its_moments(
    now: float, interval_s: float, group: int, every: int
) -> None:
    rare = shared_moment(now, interval_s, group, every)
    assert rare - now <= every * interval_s + 0.0021
    steps = (rare - shared_moment(now, interval_s, group)) / interval_s
    assert steps == pytest.approx(round(steps), abs=1e-3) and 0 <= round(steps) < every
    assert shared_moment(rare, interval_s, group, every) - rare == pytest.approx(every * interval_s, rel=1e-3)


@given(TIMES, st.floats(0.05, 1e2), GROUPS, st.integers(1, 5))
def test_one_in_so_many_moments_is_rare(now: float, interval_s: float, group: int, every: int) -> None:
    moment, rare = now, []
    for _ in range(3 * every):
        moment = shared_moment(moment, interval_s, group)
        late = moment + 0.1 * interval_s
        rare.append(is_rare(late, interval_s, group, every))
        assert rare[-1] == is_rare(max(moment - 0.001, 0.0), interval_s, group, every), "a timer may be early or late"
    assert sum(rare) == 3 and rare[:every] == rare[every : 2 * every]


def test_groups_are_spread_over_the_interval() -> None:
    at = sorted(shared_moment(1000.0, 1.0, group) for group in range(8))
    assert min(after - before for before, after in pairwise(at)) > 0.05


NS = 1_000_000_000
ways = st.integers(0, NS)


@given(st.integers(-(10**18), 10**18), st.integers(0, 10**15), ways, ways)
def test_the_true_offset_is_within_the_error(true: int, sent: int, there: int, back: int) -> None:
    found = offset_of(sent, sent + there + true, sent + there + back)
    assert abs(found.offset - true) <= found.error
    assert 0 < found.error <= (there + back) // 2 + 1


@given(
    st.lists(st.tuples(st.integers(1, 10 * NS), ways, ways), min_size=1, max_size=60),
    st.floats(-DRIFT, DRIFT, exclude_min=True, exclude_max=True),
)
def test_a_clock_that_drifts_stays_within_the_error(samples: list[tuple[int, int, int]], drift: float) -> None:
    """Each sample: nanoseconds after the one before it, and how long the ways took."""
    known, now = ClockFilter(), 0

    def other(at: int) -> int:
        return at + 5 * NS + int(at * drift)

    for pause, there, back in samples:
        sent = now + pause
        now = sent + there + back
        known.take(sent, other(sent + there), now)
        best = known.best(now)
        assert best is not None
        # What drifts within a round trip is not reckoned with: it is less than the round trip of a microsecond here.
        assert abs(now + best.offset - other(now)) <= best.error + NS * 2 * DRIFT + 2


def test_the_shortest_round_trip_of_the_last_minute_counts() -> None:
    known = ClockFilter()
    assert known.best(0) is None
    known.take(0, 500, 200)
    known.take(1000, 99_000, 90_000)
    best = known.best(90_000)
    assert best is not None and (best.offset, best.error) == (400, 101 + int(89_800 * DRIFT))
    assert known.best(90_000 + KEPT_NS + 1) is None, "it is too old"
    known.clear()
    for at in range(100):
        known.take(at, at, at)
    assert len(known) == SAMPLES_MAX


def test_an_old_short_one_gives_way_to_a_new_longer_one() -> None:
    known = ClockFilter()
    known.take(0, 0, 2000)
    known.take(30 * NS, 30 * NS, 30 * NS + 200_000)
    best = known.best(30 * NS + 200_000)
    assert best is not None and best.error == 100_001
