"""Times of chunks of calls: their sum stays, and one slow call shows."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instance.time_use import PERIOD_S, PERIODS, SINGLY_NS, ExecuteTimes, RecentMax, by_stream

TIMES = st.floats(0, 1e12)


def total(samples: list[tuple[float, int]]) -> float:
    return sum(value * number for value, number in samples)


@given(st.lists(st.tuples(st.integers(1, 10_000), TIMES)))
def test_samples_have_the_number_and_the_time_of_the_calls(chunks: list[tuple[int, float]]) -> None:
    times = ExecuteTimes()
    for count, took in chunks:
        samples = times.samples("s", count, took)
        assert sum(number for _, number in samples) == count
        assert total(samples) == pytest.approx(took, rel=1e-6, abs=1e-3)
        assert all(value >= 0 and number > 0 for value, number in samples)


@given(st.lists(st.integers(0, 10**9), min_size=1), st.integers(0, 3), st.integers(0, 10**6))
def test_calls_that_were_timed_are_one_sample_each(each: list[int], missing: int, rest: int) -> None:
    stamps = list(accumulate(each, initial=77))
    samples = ExecuteTimes().samples("s", len(each) + missing, sum(each) + rest, stamps)
    assert samples[: len(each)] == [(took, 1) for took in each]
    assert sum(number for _, number in samples) == len(each) + missing
    if missing:
        assert total(samples) == pytest.approx(sum(each) + rest)


def test_one_slow_call_among_thousands_shows() -> None:
    times = ExecuteTimes()
    for _ in range(50):
        times.samples("s", 4000, 4000 * 500.0)
    usual, slow = times.samples("s", 4000, 3999 * 500.0 + 100e6)
    assert usual == (pytest.approx(500.0), 3999) and slow == (pytest.approx(100e6), 1)
    assert times.samples("s", 4000, 4000 * 500.0) == [(500.0, 4000)], "the chunks after it are as before"


def test_calls_that_have_become_slow_are_timed_singly_soon() -> None:
    times = ExecuteTimes()
    for _ in range(50):
        times.samples("s", 4000, 4000 * 500.0)
    chunks = 0
    while not times.singly("s"):
        times.samples("s", 10, 10 * 2.0 * SINGLY_NS)
        chunks += 1
    assert chunks < 15


def test_what_is_usual_depends_on_the_source() -> None:
    times = ExecuteTimes()
    for _ in range(20):
        times.samples("quick", 1000, 1000 * 100.0)
        assert times.samples("slow", 100, 100 * 50_000.0) == [(50_000.0, 100)]


STREAMS = st.lists(st.sampled_from("abc"), min_size=1)


@given(STREAMS, st.data())
def test_each_stream_has_its_calls(streams: list[str], data: st.DataObject) -> None:
    """Whether the chunk was timed as a whole, holds a slow call, or was timed singly, maybe not to the end."""
    count = len(streams)
    timed = data.draw(st.integers(0, count))
    samples = [(float(n), 1) for n in range(timed)] + ([(5.0, count - timed)] if timed < count else [])
    if not timed and count > 1 and data.draw(st.booleans()):
        samples = [(5.0, count - 1), (999.0, 1)]
    parts = by_stream(streams, samples)
    assert {name: sum(n for _, n in own) for name, own in parts.items()} == {s: streams.count(s) for s in streams}
    assert sum(map(total, parts.values())) == pytest.approx(total(samples))
    assert all(number > 0 for own in parts.values() for _, number in own)


def test_calls_that_were_timed_belong_to_their_streams() -> None:
    samples = [(1.0, 1), (2.0, 1), (3.0, 1)]
    assert by_stream(["a", "b", "a"], samples) == {"a": [(1.0, 1), (3.0, 1)], "b": [(2.0, 1)]}


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(1, 1e6)), min_size=1))
def test_the_largest_of_the_last_minute_is_kept(notes: list[tuple[float, float]]) -> None:
    largest, now = RecentMax(), 1e6
    noted: list[tuple[float, float]] = []
    for pause, value in notes:
        now += pause
        largest.note(value, now)
        noted.append((now, value))
        found = largest.at(now)
        assert found >= max(v for at, v in noted if at > now - 60)
        assert found in [v for at, v in noted if at > now - PERIOD_S * PERIODS]
    assert largest.at(now + PERIOD_S * PERIODS) == 0
