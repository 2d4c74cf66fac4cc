"""The balance of a pool: it never overflows, keeps its budget, takes the best step, and leaves noise alone."""

from __future__ import annotations

import itertools
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.pools.balance import BEGIN, BUDGET, BUDGET_MIN, Loads, balance, best_step, level_counts
from heronpy.pools.shards import Size

GB = 1 << 30
SLOT = Size(4.0, 8 * GB)

loads = st.builds(Size, st.floats(0.01, 2.0), st.integers(GB // 100, 4 * GB))
worlds = st.lists(st.tuples(loads, st.integers(1, 5)), max_size=40)


def _shares(owners: dict[int, int], load: dict[int, Size], slots: range) -> dict[int, float]:
    sums = dict.fromkeys(slots, Size())
    for shard, slot in owners.items():
        sums[slot] += load[shard]
    return {slot: one.share_of(SLOT) for slot, one in sums.items()}


@given(worlds, st.integers(1, 5))
@settings(max_examples=200, deadline=None)
def test_a_round_overflows_nothing_and_keeps_its_budget(world: list[tuple[Size, int]], count: int) -> None:
    load = {shard: size for shard, (size, _) in enumerate(world)}
    owners = {shard: min(slot, count) for shard, (_, slot) in enumerate(world)}
    slots = range(1, count + 1)
    before = _shares(owners, load, slots)
    found = balance(owners, load, slots, SLOT)
    after = _shares(owners | found.moves, load, slots)
    assert len(found.moves) <= max(BUDGET_MIN, int(BUDGET * len(owners)))
    assert all(after[slot] <= max(1.0, before[slot]) + 1e-9 for slot in slots)
    assert max(after.values()) <= max(before.values()) + 1e-9
    assert all(owners[shard] != slot for shard, slot in found.moves.items())


def _run_rounds(owners: dict[int, int], load: dict[int, Size], slots: range) -> str:
    """Change `owners` round by round, until a round moves nothing; returns why they are not level."""
    for _ in range(200):
        found = balance(owners, load, slots, SLOT)
        if not found.moves:
            return found.why
        owners |= found.moves
    raise AssertionError("the rounds do not end")


@given(worlds, st.integers(2, 4))
@settings(max_examples=200, deadline=None)
def test_rounds_end_level_or_say_why_not(world: list[tuple[Size, int]], count: int) -> None:
    load = {shard: size for shard, (size, _) in enumerate(world)}
    owners = {shard: min(slot, count) for shard, (_, slot) in enumerate(world)}
    slots = range(1, count + 1)
    why = _run_rounds(owners, load, slots)
    shares = _shares(owners, load, slots)
    mean = sum(shares.values()) / count
    level = all(abs(share - mean) <= BEGIN * mean + 1e-9 for share in shares.values()) and max(shares.values()) <= 1
    assert level or max(shares.values()) < 0.1 or why


@given(st.lists(loads, min_size=1, max_size=5), st.lists(loads, max_size=4))
@settings(max_examples=200, deadline=None)
def test_a_step_is_the_best_move_or_swap(hot: list[Size], cold: list[Size]) -> None:
    known = Loads([1, 2], SLOT)
    for shard, size in enumerate(hot):
        known.give(shard, size, 1)
    for shard, size in enumerate(cold, 100):
        known.give(shard, size, 2)
    if known.shares[1] < known.shares[2]:
        return
    there, back = best_step(known, 1, 2)
    outcomes = []
    for one, other in itertools.product(range(len(hot)), [None, *range(len(cold))]):
        came = cold[other] if other is not None else Size()
        first, second = known.after(1, hot[one], came), known.after(2, came, hot[one])
        if second <= 1:
            outcomes.append(max(first, second))
    best = min([known.shares[1], *outcomes])
    if there is None:
        assert best >= known.shares[1] - 1e-6
        return
    came = cold[back - 100] if back is not None else Size()
    assert max(known.after(1, hot[there], came), known.after(2, came, hot[there])) <= best + 1e-9


@given(st.lists(loads, min_size=1, max_size=5), st.lists(loads, max_size=4))
@settings(max_examples=200, deadline=None)
def test_the_rounds_of_two_slots_end_where_no_move_and_no_swap_helps(hot: list[Size], cold: list[Size]) -> None:
    """By brute force, after the last round: its rounds are as good as all moves and swaps, unless it is level."""
    load = dict(enumerate([*hot, *cold]))
    owners = {shard: 1 if shard < len(hot) else 2 for shard in load}
    slots = range(1, 3)
    _run_rounds(owners, load, slots)
    shares = _shares(owners, load, slots)
    most, mean = max(shares.values()), sum(shares.values()) / 2
    if most <= 1 and (most - mean <= BEGIN * mean + 1e-9 or most < 0.1):
        return
    hottest = max(slots, key=lambda slot: shares[slot])
    there = [shard for shard, slot in owners.items() if slot == hottest]
    back = [None, *(shard for shard, slot in owners.items() if slot != hottest)]
    for one, other in itertools.product(there, back):
        after = _shares(owners | {one: 3 - hottest} | ({other: hottest} if other is not None else {}), load, slots)
        assert max(after.values()) >= most - 1e-6 or after[3 - hottest] > 1 - 1e-9, (one, other)


def test_a_pool_of_few_shards_is_levelled_by_a_swap() -> None:
    load = {0: Size(2.0, GB), 1: Size(1.0, GB), 2: Size(1.5, GB), 3: Size(0.5, GB)}
    owners = {0: 1, 1: 1, 2: 2, 3: 2}
    found = balance(owners, load, [1, 2], SLOT)
    assert found.moves == {0: 2, 2: 1} and found.why == ""


def test_noise_of_nine_percent_moves_nothing_in_a_hundred_rounds() -> None:
    rng = random.Random(7)
    owners = {shard: shard % 4 + 1 for shard in range(64)}
    for _ in range(100):
        noisy = {shard: Size(0.2 * rng.uniform(0.91, 1.09), int(GB / 4 * rng.uniform(0.91, 1.09))) for shard in owners}
        assert balance(owners, noisy, range(1, 5), SLOT).moves == {}


def test_a_slot_beyond_its_capacity_gives_first_and_a_load_that_nothing_lowers_is_named() -> None:
    large = {shard: Size(1.5, GB) for shard in range(3)}
    assert set(balance(dict.fromkeys(large, 1), large, [1, 2], SLOT).moves.values()) == {2}
    found = balance({0: 1}, {0: Size(3.0, GB)}, [1, 2], SLOT)
    assert found.moves == {} and "slot 1 is 75% full" in found.why


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=6))
def test_shards_without_a_load_are_spread_when_a_slot_lacks_them(slots: list[tuple[int, int]]) -> None:
    names = itertools.count()
    empty = {slot: [next(names) for _ in range(free)] for slot, (free, _) in enumerate(slots)}
    counts = {slot: free + kept for slot, (free, kept) in enumerate(slots)}
    moves = level_counts(counts, empty)
    mean = sum(counts.values()) / len(counts)
    after = dict(counts)
    for shard, slot in moves.items():
        giver = next(one for one, shards in empty.items() if shard in shards)
        after[giver] -= 1
        after[slot] += 1
    assert sum(after.values()) == sum(counts.values())
    if min(counts.values()) >= mean / 2:
        assert moves == {}
    elif all(kept == 0 for _, kept in slots):
        assert max(after.values()) - min(after.values()) <= 1 or not moves or min(after.values()) >= int(mean)
