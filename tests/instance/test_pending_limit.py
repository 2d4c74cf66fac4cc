"""A spout at its limit of pending tuples goes on with whole batches, soon, and never beyond the limit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from instance.linger import FULL, OPEN, SMALL_LIMIT, WAIT_MAX_S, room

LIMITS = st.integers(1, 100_000)
BATCHES = st.integers(1, 100_000)
STEPS = st.lists(st.tuples(st.floats(0, 2 * WAIT_MAX_S), st.integers(0, 400), st.booleans()), max_size=60)


@given(LIMITS, BATCHES, STEPS)
def test_any_course_stays_within_the_limit_and_goes_on_in_time(
    limit: int, batch: int, steps: list[tuple[float, int, bool]]
) -> None:
    pending, now, resume_at, stuck_since = 0, 100.0, OPEN, None
    for seconds, acked, emits in steps:
        now += seconds
        pending -= min(acked, pending)
        tuples, resume_at = room(limit, pending, batch, resume_at, now)
        assert 0 <= tuples <= limit - pending
        if pending >= limit:
            assert (tuples, resume_at) == (0, FULL)
        if tuples:
            assert resume_at == OPEN
        # With some room it waits, but no longer than the limit of the wait.
        waiting = not tuples and pending < limit
        stuck_since = (now if stuck_since is None else stuck_since) if waiting else None
        if stuck_since is not None:
            assert now <= resume_at <= stuck_since + WAIT_MAX_S
            assert 0 < limit - pending < limit / 4
        if emits:
            pending += tuples


@given(LIMITS, BATCHES)
def test_it_stops_at_the_limit_only(limit: int, batch: int) -> None:
    assert room(limit, limit - 1, batch, OPEN, 5.0) == (1, OPEN)
    assert room(limit, limit, batch, OPEN, 5.0) == (0, FULL)


@given(st.integers(SMALL_LIMIT, 100_000), BATCHES, st.integers(0, 100_000))
def test_after_the_limit_it_wants_a_quarter_or_a_batch(limit: int, batch: int, free: int) -> None:
    free = 1 + free % limit
    enough = free >= min(batch, limit // 4)
    assert room(limit, limit - free, batch, FULL, 5.0) == ((free, OPEN) if enough else (0, 5.0 + WAIT_MAX_S))
    assert room(limit, limit - free, batch, 5.0, 5.0) == (free, OPEN)


@given(st.integers(1, SMALL_LIMIT - 1), BATCHES)
def test_a_small_limit_never_waits(limit: int, batch: int) -> None:
    assert room(limit, limit - 1, batch, FULL, 5.0) == (1, OPEN)
