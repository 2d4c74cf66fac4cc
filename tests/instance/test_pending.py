"""Pending roots of a spout against a dict model; at its limit it goes on with whole batches, soon, and never beyond."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.task.roots import Batch, PendingRoots
from heronpy.wire.frames import joined, one_run
from instance.linger import FULL, OPEN, SMALL_LIMIT, WAIT_MAX_S, room


@pytest.mark.parametrize("seed", range(60))
def test_pending_equals_model(seed: int) -> None:
    rng = random.Random(seed)
    pending = PendingRoots(1 << 40)
    model: dict[int, tuple[object, int]] = {}
    for now in range(200):
        choice = rng.random()
        if choice < 0.3:
            ids = [object() for _ in range(rng.randint(1, 10))]
            base = pending.add(list(ids), now, 0)
            model.update({base + i: (x, now) for i, x in enumerate(ids)})
        elif choice < 0.9 and model:
            first, length = rng.choice(list(model)) - rng.randint(0, 3), rng.randint(1, 12)
            got = [i for ids, _ in pending.complete(first, length) for i in ids]
            assert got == [model.pop(root)[0] for root in range(first, first + length) if root in model]
        elif choice > 0.97:
            got = [i for ids, _ in pending.expire(now - 50) for i in ids]
            assert got == [model.pop(root)[0] for root in sorted(model) if model[root][1] < now - 50]
        assert pending.total == len(model)


@pytest.mark.parametrize("seed", range(60))
def test_any_runs_equal_model(seed: int) -> None:
    """Short and long ones, in any order, overlapping, of roots that are not pending and of gaps between batches."""
    rng = random.Random(seed)
    pending = PendingRoots(1 << 40)
    model: dict[int, object] = {}
    for now in range(60):
        for _ in range(rng.randint(0, 3)):
            ids = [object() for _ in range(rng.choice((1, 5, 60)))]
            base = pending.add(list(ids), now, 0)
            model.update({base + i: x for i, x in enumerate(ids)})
        runs, expected = [], []
        for _ in range(rng.randint(1, 12)):
            first = rng.choice([*model, pending.next_root]) - rng.randint(0, 90)
            length = rng.choice((1, 2, 7, 200))
            runs.append(one_run(first, length))
            expected += [model.pop(root) for root in range(first, first + length) if root in model]
        got = [i for ids, _ in pending.complete_runs(joined(runs)) for i in ids]
        assert len(got) == len(expected) and set(got) == set(expected)
        if len(runs) == 1:
            assert got == expected
        assert pending.total == len(model)
    assert [i for ids, _ in pending.complete_runs(one_run(1 << 40, 1 << 20)) for i in ids] == list(model.values())
    assert not pending.total


def test_a_run_over_a_long_gap_takes_no_step_per_root() -> None:
    pending = PendingRoots(1)
    oldest = pending.add(["old"], 0.0, 0)
    for _ in range(100):
        pending.add([None] * 100_000, 0.0, 0)
    young = pending.add(["young"], 0.0, 0)
    for batch in range(100):
        assert sum(len(ids) for ids, _ in pending.complete(oldest + 1 + batch * 100_000, 100_000)) == 100_000
    found = Looks(pending)
    assert [ids for ids, _ in found.complete(oldest, young)] == [["old"], ["young"]]
    assert found.looks < 200


class Looks(PendingRoots):
    """Counts the searches for a root's batch."""

    def __init__(self, other: PendingRoots) -> None:
        self.__dict__.update(other.__dict__)
        self.looks = 0

    def _find(self, root: int) -> Batch | None:
        self.looks += 1
        return super()._find(root)


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
