"""Linger keeps its promises on arrivals that a real spout had (see arrivals/record.py), not only on made ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from heronpy.common.setting_types import InstanceSettings
from instance.linger import BURST, Linger
from tests.instance.test_linger import replay

LONGEST_S = InstanceSettings().linger_max_us * 1e-6
FOLDER = Path(__file__).parent / "arrivals"
KINDS = ("steady-1000", "steady-5000", "bursts")
#: A silence of the recorded bursts; the machine makes shorter ones itself.
SILENCE_S = 0.02


def recorded(kind: str) -> list[float]:
    """The pauses before the tuples, in seconds."""
    return [int(line) * 1e-6 for line in (FOLDER / f"{kind}.txt").read_text("ascii").splitlines()]


@pytest.mark.parametrize("kind", KINDS)
def test_no_tuple_waits_longer_than_the_longest_linger(kind: str) -> None:
    pauses = recorded(kind)
    assert len(pauses) >= 2000
    waits, _ = replay(pauses, LONGEST_S)
    assert len(waits) == len(pauses) and max(waits) <= LONGEST_S + 1e-9


@pytest.mark.parametrize("kind", KINDS)
def test_an_isolated_tuple_leaves_at_once(kind: str) -> None:
    """One before which nothing came for as long as all sends together may be ahead of their time."""
    pauses = recorded(kind)
    waits, _ = replay(pauses, LONGEST_S)
    alone = [place for place, pause in enumerate(pauses) if pause > (BURST + 1) * LONGEST_S]
    assert alone and all(waits[place] == 0.0 for place in alone)


@pytest.mark.parametrize(("kind", "least"), [("steady-1000", 1.2), ("steady-5000", 3.0)])
def test_at_some_thousand_a_second_frames_are_at_most_about_a_thousand(kind: str, least: float) -> None:
    pauses = recorded(kind)
    _, sends = replay(pauses, LONGEST_S)
    seconds = sum(pauses)
    rate = len(pauses) / seconds
    assert rate == pytest.approx(int(kind.removeprefix("steady-")), rel=0.15), "not what was to be recorded"
    assert len(sends) / seconds <= min(1_000, 1 / LONGEST_S + BURST / seconds)
    # In each second, not only on the whole.
    for place, moment in enumerate(sends):
        within = sum(1 for other in sends[place:] if other < moment + 1.0)
        assert within <= 1 / LONGEST_S + BURST + 1
    assert len(pauses) / len(sends) > least, "tuples that come close together travel together"


def test_a_burst_after_silence_does_not_wait() -> None:
    """Its first sends go out at once; what comes after them within the same burst waits as promised, and no longer."""
    pauses = recorded("bursts")
    waits, _ = replay(pauses, LONGEST_S)
    starts = [place for place, pause in enumerate(pauses) if pause > SILENCE_S]
    assert len(starts) >= 30
    for start in starts:
        assert waits[start : start + BURST] == [0.0] * BURST


def test_the_recorded_bursts_would_wait_without_credit_for_silence() -> None:
    """Otherwise the test before could not fail."""

    class Strict(Linger):
        def sent(self, now: float) -> None:
            self.due = max(self.due, now) + LONGEST_S

    pauses, linger, now = recorded("bursts"), Strict(LONGEST_S), 0.0
    late = 0
    for pause in pauses:
        now += pause
        late += now < linger.due
        if now >= linger.due:
            linger.sent(now)
    assert late > len(pauses) / 2
