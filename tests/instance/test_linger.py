"""Linger: tuples wait for company only as often and as long as promised, over any arrivals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instance.linger import BURST, PATIENCE, Linger

LONGEST_S = 0.0015
#: Pauses between tuples, from several at once to seconds of silence.
PAUSES = st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 1e-3), st.floats(1e-3, 3.0)), min_size=1, max_size=200)


def replay(pauses: list[float], longest_s: float = LONGEST_S) -> tuple[list[float], list[float]]:
    """The waits of tuples that arrive after these pauses, and the moments of the sends."""
    linger, now = Linger(longest_s), 100.0
    waiting: list[float] = []
    waits, sends = [], []

    def send(moment: float) -> None:
        waits.extend(moment - arrived for arrived in waiting)
        waiting.clear()
        sends.append(moment)
        linger.sent(moment)

    for pause in pauses:
        arrival = now + pause
        if waiting and linger.due <= arrival:
            send(max(now, linger.due))
        now = arrival
        waiting.append(now)
        if now >= linger.due:
            send(now)
    if waiting:
        send(max(now, linger.due))
    return waits, sends


@given(PAUSES)
def test_no_tuple_waits_longer_than_promised_and_sends_are_bounded(pauses: list[float]) -> None:
    waits, sends = replay(pauses)
    assert len(waits) == len(pauses) and max(waits) <= LONGEST_S + 1e-9
    for first in range(len(sends)):
        for last in range(first, len(sends)):
            assert last - first <= BURST + (sends[last] - sends[first]) / LONGEST_S + 1e-6


@given(st.lists(st.floats(LONGEST_S, 3.0), min_size=1, max_size=100))
def test_an_isolated_tuple_leaves_at_once(pauses: list[float]) -> None:
    waits, sends = replay(pauses)
    assert max(waits) <= 1e-9 and len(sends) == len(pauses)


@given(st.floats((BURST + 1) * LONGEST_S, 60.0))
def test_after_silence_a_burst_does_not_wait(silence: float) -> None:
    waits, _ = replay([0.0] * 50 + [silence] + [0.0] * (BURST - 1))
    assert waits[-BURST:] == [0.0] * BURST


@pytest.mark.parametrize("rate", [5_000, 20_000, 100_000])
def test_at_high_rates_sends_are_bounded_and_the_median_wait_is_half_of_the_longest(rate: int) -> None:
    waits, sends = replay([1 / rate] * rate)
    assert len(sends) <= 1 / LONGEST_S + BURST + 1
    assert sorted(waits)[len(waits) // 2] <= LONGEST_S / 2 + 2 / rate


def test_without_a_linger_everything_leaves_at_once() -> None:
    waits, sends = replay([0.0, 1e-5, 0.0, 0.1], longest_s=0.0)
    assert waits == [0.0] * 4 and len(sends) == 4


@given(st.floats(0.0, 20.0), st.booleans())
def test_a_task_that_never_sleeps_waits_longer_but_not_for_ever(lingers: float, slept: bool) -> None:
    linger = Linger(LONGEST_S)
    for _ in range(BURST):
        linger.sent(100.0)
    since = linger.due - LONGEST_S
    now = since + lingers * LONGEST_S
    may = linger.over(now, lambda: slept)
    assert may == (now >= linger.due and (slept or now >= linger.due + (PATIENCE - 1) * LONGEST_S))
    assert not may or lingers >= 1 - 1e-6
    assert may or lingers <= PATIENCE + 1e-6


def test_without_a_linger_a_task_that_never_sleeps_sends_at_once() -> None:
    linger = Linger(0.0)
    linger.sent(100.0)
    assert linger.over(100.0, lambda: False)
