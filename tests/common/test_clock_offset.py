"""How clocks are compared: the true offset is always within the error, whatever the ways there and back take."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heronpy.common.clock import DRIFT, KEPT_NS, SAMPLES_MAX, ClockFilter, offset_of

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
