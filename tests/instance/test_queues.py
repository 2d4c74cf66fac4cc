"""Self-tuning capacities: Heron's rule."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from instance.in_queue import GROWTH_STEPS, TunedCapacity


def capacity(expected: int = 8, maximum: int = 128) -> TunedCapacity:
    return TunedCapacity(expected, maximum, weight=0.8, sample_s=0.1)


def test_it_starts_at_half_halves_above_and_grows_below() -> None:
    queue = capacity()
    assert queue.current == 64
    assert queue.sample(100, 0.0) and queue.current == 32
    assert not queue.sample(100, 0.05), "between samples nothing changes"
    for now in range(1, 10):
        queue.sample(100, float(now))
    assert queue.current == 1
    for now in range(10, 12 + GROWTH_STEPS):
        queue.sample(0, float(now))
    assert queue.current == 128


def test_the_newest_sample_weighs_most() -> None:
    queue = capacity()
    queue.sample(10, 0.0)
    assert queue.average == 8.0 and queue.current == 66, "8 on average is what is expected"
    queue.sample(11, 1.0)
    assert queue.current == 33


def test_it_recovers_in_less_than_seven_seconds() -> None:
    queue = TunedCapacity(8192, 65536, 0.8, 0.1)
    for now in range(20):
        queue.sample(65536, now / 10)
    assert queue.current == 1
    now = 2.0
    while queue.current < 0.9 * 65536:
        now += 0.1
        queue.sample(0, now)
    assert now < 9.0


@given(st.integers(-5, 100), st.integers(1, 1000), st.lists(st.integers(0, 10_000), max_size=200))
def test_it_stays_within_its_bounds(expected: int, maximum: int, lengths: list[int]) -> None:
    queue = TunedCapacity(expected, maximum, 0.8, 0.1)
    for now, length in enumerate(lengths):
        queue.sample(length, float(now))
        assert 1 <= queue.current <= maximum
