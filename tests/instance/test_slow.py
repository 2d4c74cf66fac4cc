"""Slow tuples: the slowest of the last hour, with what is known of their values."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from instance.executed import KEEP_S, KEPT, NEVER, PARK_S, VALUE_LETTERS, SlowTuples, shown
from instance.tuples import HeronTuple, InFrame

MS = 1e6


class World:
    """The slow tuples of a task, and tuples for it."""

    def __init__(self, limit_ms: float = 100.0) -> None:
        self.counts: Counter[str] = Counter()
        self.slow = SlowTuples(limit_ms, lambda name, label, by: self.counts.update({f"{name} {label}": int(by)}))
        self.frame = InFrame("word", "default", 3, 1000, 0.0)

    def tuples(self, count: int) -> list[HeronTuple]:
        return [HeronTuple([f"v{n}"], self.frame, n) for n in range(count)]


@given(st.lists(st.tuples(st.floats(101, 1e6), st.floats(0, KEEP_S / 2)), max_size=60))
def test_the_slowest_of_the_last_hour_are_kept_and_all_are_counted(calls: list[tuple[float, float]]) -> None:
    world, at, known = World(), 1e9, []
    for took_ms, pause_s in calls:
        at += pause_s
        world.slow.call(world.tuples(1)[0], took_ms * MS, at)
        known.append((took_ms, at))
    took = [one.took_s for one in world.slow.kept]
    assert took == sorted(took, reverse=True) and len(took) <= KEPT
    assert all(one.at > at - KEEP_S for one in world.slow.kept)
    assert world.counts["__slow-tuples word/default"] == len(calls)
    if len(known) <= KEPT:
        assert len(took) == sum(when > at - KEEP_S for _, when in known)


@given(st.lists(st.floats(0, 400), min_size=2, max_size=50))
def test_where_calls_are_timed_each_slow_one_is_known(calls: list[float]) -> None:
    world = World()
    stamps = [int(each * MS) for each in accumulate(calls, initial=5)]
    world.slow.chunk(world.tuples(len(calls)), stamps[-1] - stamps[0], [(1.0, len(calls))], stamps, 50.0)
    known = {f"['v{n}']" for n, (low, high) in enumerate(pairwise(stamps)) if high - low > 100 * MS}
    kept = {one.value for one in world.slow.kept}
    assert kept <= known and len(kept) == min(KEPT, len(known))
    assert all(one.at <= 50.0 for one in world.slow.kept)


def test_among_quick_calls_the_tuple_that_was_seen_in_hand_is_the_slow_one() -> None:
    world, part = World(), World().tuples(1000)
    world.slow.blind_at, world.slow.in_hand = 10.0, lambda: part[611]
    assert world.slow.look(10.02) == 10.07, "a call is not looked at before it has lasted for a while"
    world.slow.look(10.06)
    world.slow.look(10.11)
    world.slow.chunk(part, 151 * MS, [(1000.0, 999), (150 * MS, 1)], (), 50.0)
    [one] = world.slow.kept
    assert (one.value, one.tuples, one.source, one.source_task) == ("['v611']", 1, "word/default", 3)
    assert round(one.took_s, 6) == 0.15


def test_what_nobody_has_seen_is_kept_without_a_value() -> None:
    world, part = World(), World().tuples(1000)
    before = world.tuples(1)[0]
    world.slow.blind_at, world.slow.in_hand = 10.0, lambda: before
    world.slow.look(10.06)
    world.slow.chunk(part, 151 * MS, [(1000.0, 999), (150 * MS, 1)], (), 50.0)
    [one] = world.slow.kept
    assert (one.value, one.tuples) == ("", 1000), "what was seen is of an earlier chunk"


def test_many_tuples_that_take_long_together_are_not_slow() -> None:
    world = World()
    world.slow.chunk(world.tuples(1000), 150 * MS, [(150_000.0, 1000)], (), 50.0)
    assert not world.slow.kept and not world.counts


def test_nobody_looks_while_no_chunk_is_blind_or_when_it_is_off() -> None:
    world = World()
    assert world.slow.look(1000.0) == NEVER
    world.slow.blind_at = 1000.0
    assert world.slow.look(1000.0 + PARK_S + 0.1) == NEVER
    off = World(0.0).slow
    off.blind_at = 1000.0
    assert off.look(1000.01) == NEVER and off.limit_ns == NEVER


class Rude:
    def __repr__(self) -> str:
        raise SystemError("no")


@given(st.recursive(st.text() | st.binary() | st.integers() | st.floats(), lambda inner: st.lists(inner)))
def test_a_value_is_short_whatever_it_is(value: object) -> None:
    assert len(shown([value])) <= VALUE_LETTERS


def test_huge_and_rude_values_are_shown_too() -> None:
    assert len(shown(["x" * 10**7, b"y" * 10**7, 10**5000])) <= VALUE_LETTERS
    assert "Rude" in shown([Rude()])
