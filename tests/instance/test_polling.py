"""How often a spout that says nothing is polled: promised to users by the documentation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.common.setting_types import InstanceSettings
from instance.linger import SOON_S, poll_pause_s

SHORTEST_S = InstanceSettings().spout_idle_min_us * 1e-6
LONGEST_S = InstanceSettings().spout_idle_max_ms * 1e-3


def pause_s(silent_s: float) -> float:
    return poll_pause_s(silent_s, SHORTEST_S, LONGEST_S)


@pytest.mark.parametrize(
    ("silent_s", "expected"),
    [(0.0, SHORTEST_S), (1.0, 0.05), (2.0, 0.1), (5.0, 0.1), (10.0, 0.2), (25.0, 0.5), (1e6, 0.5)],
)
def test_the_pause_follows_the_silence(silent_s: float, expected: float) -> None:
    assert pause_s(silent_s) == pytest.approx(expected)


@given(st.floats(0, 1e6))
def test_a_record_waits_for_a_small_part_of_the_silence_before_it(silent_s: float) -> None:
    pause = pause_s(silent_s)
    assert SHORTEST_S <= pause <= LONGEST_S
    assert pause <= max(SHORTEST_S, silent_s * 0.05)
    assert pause <= max(SOON_S, silent_s * 0.02)


@given(st.floats(0, 1e3), st.floats(0, 1e3))
def test_a_longer_silence_never_means_a_shorter_pause(one_s: float, other_s: float) -> None:
    assert pause_s(min(one_s, other_s)) <= pause_s(max(one_s, other_s))


@pytest.mark.parametrize("longest_s", [0.0, 0.02, 0.1])
def test_a_user_s_limit_wins(longest_s: float) -> None:
    assert poll_pause_s(1e6, 0.0, longest_s) == longest_s


def test_a_silent_spout_is_called_a_few_hundred_times_in_the_first_minute() -> None:
    silent_s, calls = 0.0, 0
    while silent_s < 60.0:
        silent_s += pause_s(silent_s)
        calls += 1
    assert calls < 350
