"""Runs of roots: packed and read they are the same set, and no frame with runs that do not fit is accepted."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.wire.frames import (
    ACK,
    COMPLETE,
    COUNT_MAX,
    Frame,
    count_of,
    distinct,
    expand,
    fits,
    joined,
    one_run,
    pack32,
    pack64,
    part_of,
    read_runs,
    runs_of,
    spread,
)

BASES = st.sampled_from([0, 1, (1 << 40) + 1, (1 << 64) - 200])
SETS = st.sets(st.integers(0, 150))


@given(BASES, SETS, SETS)
def test_runs_are_the_roots(base: int, some: set[int], others: set[int]) -> None:
    roots = [base + number for number in sorted(some)]
    runs = runs_of(np.array(roots, dtype=np.uint64))
    first, length = read_runs(runs)
    assert expand(first, length).tolist() == roots
    # As few as possible, each of them once.
    assert count_of(runs) == len([number for number in some if number - 1 not in some])
    more = runs_of(np.array(sorted(others), dtype=np.uint64))
    both = joined([runs, more])
    assert part_of(both, 0, count_of(runs)) == runs and part_of(both, count_of(runs), count_of(both)) == more
    assert fits(Frame(kind=COMPLETE, run_first=runs[0], run_length=runs[1]))


def test_one_run() -> None:
    assert one_run(7, 3) == runs_of(np.array([7, 8, 9], dtype=np.uint64))


@given(st.lists(st.tuples(st.integers(-5, 50), st.integers(0, 6)), max_size=20))
def test_spread(pairs: list[tuple[int, int]]) -> None:
    first, length = (np.array([pair[at] for pair in pairs], dtype=np.int64) for at in (0, 1))
    assert spread(first, length).tolist() == [number for low, count in pairs for number in range(low, low + count)]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, (1 << 64) - 1))))
def test_distinct_roots_have_the_xor_of_their_values(pairs: list[tuple[int, int]]) -> None:
    expected: defaultdict[int, int] = defaultdict(int)
    for root, value in pairs:
        expected[root] ^= value
    roots, values = distinct(*(np.array([pair[at] for pair in pairs], dtype=np.uint64) for at in (0, 1)))
    assert list(zip(roots.tolist(), values.tolist(), strict=True)) == sorted(expected.items())


def ack(first: list[int], length: list[int], edges: int | None = None, **more: object) -> Frame:
    edge = pack64([3] * (len(first) if edges is None else edges))
    made = {"kind": ACK, "count": sum(length), "run_first": pack64(first), "run_length": pack32(length), **more}
    return Frame(run_edge=edge, **made)  # type: ignore[arg-type]


def test_acks_of_runs_fit() -> None:
    assert fits(ack([5, 9, 6], [2, 1, 4]))
    assert fits(ack([1], [COUNT_MAX])) and fits(ack([(1 << 64) - 3], [2]))


@pytest.mark.parametrize(
    "frame",
    [
        ack([5, 9], [2, 1], count=4),
        ack([5, 9], [2, 1], count=2),
        ack([5, 9], [2, 0]),
        ack([5, 9], [2, 1], edges=1),
        ack([5, 9], [2, 1], edges=0),
        ack([5, 9], [2, 1], edges=3),
        ack([5], [2, 1]),
        ack([5, 9], [2]),
        ack([1], [COUNT_MAX + 1]),
        ack([1] * 1025, [(1 << 32) - 1] * 1025, count=10),
        ack([(1 << 64) - 2], [2]),
        ack([5, 9], [2, 1], roots=pack64([1, 2, 3])),
        ack([5, 9], [2, 1], values=pack64([1, 2, 3])),
        ack([5, 9], [2, 1], derived_edges=True),
        ack([5, 9], [2, 1], root_counts=pack32([1, 1, 1])),
        Frame(kind=ACK, count=1, run_first=b"123", run_length=b"1234", run_edge=b"123"),
        Frame(kind=COMPLETE, run_first=pack64([1]), run_length=pack32([1, 2])),
        Frame(kind=COMPLETE, run_first=pack64([1, 2]), run_length=pack32([1])),
        Frame(kind=COMPLETE, run_first=pack64([1]), run_length=pack32([0])),
        Frame(kind=COMPLETE, run_first=pack64([(1 << 64) - 1]), run_length=pack32([1])),
        Frame(kind=COMPLETE, run_first=b"", run_length=pack32([1])),
    ],
)
def test_what_does_not_fit_is_refused(frame: Frame) -> None:
    assert not fits(frame)
