"""Runs of consecutive roots: a compact encoding of the roots in an ACK or a COMPLETE. Pure.

A set of roots is split into runs (first root, number of roots), packed as two arrays. Acks in the order of the
frames are one run; other acks need a run per gap, at 12 bytes each.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from heronpy.proto import frame_pb2

#: First roots and lengths, packed as in a Frame's run_first and run_length.
Runs = tuple[bytes, bytes]
NO_RUNS: Runs = (b"", b"")

_FIRST, _LENGTH = struct.Struct("<Q"), struct.Struct("<I")
_U64, _U32 = np.dtype("<u8"), np.dtype("<u4")


def one_run(first: int, length: int) -> Runs:
    """The `length` roots from `first` on."""
    return _FIRST.pack(first), _LENGTH.pack(length)


def joined(runs: list[Runs]) -> Runs:
    """All of these runs, in this order."""
    return b"".join([first for first, _ in runs]), b"".join([length for _, length in runs])


def count_of(runs: Runs) -> int:
    """The number of runs."""
    return len(runs[1]) // 4


def only_run(runs: Runs) -> tuple[int, int] | None:
    """First root and length, if this is one run; most messages have one, and arrays for it would cost ten times."""
    if len(runs[0]) != _FIRST.size or len(runs[1]) != _LENGTH.size:
        return None
    return _FIRST.unpack(runs[0])[0], _LENGTH.unpack(runs[1])[0]


def part_of(runs: Runs, low: int, high: int) -> Runs:
    """Run number `low` to, not including, `high`."""
    return runs[0][8 * low : 8 * high], runs[1][4 * low : 4 * high]


def starts_of(roots: NDArray[np.uint64] | NDArray[np.int64]) -> NDArray[np.int64]:
    """The start indices of the runs in a non-empty array of ascending, distinct numbers."""
    breaks = np.flatnonzero(np.diff(roots) != 1)
    breaks += 1
    return np.concatenate((np.zeros(1, dtype=np.int64), breaks))


def lengths_of(starts: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The lengths of the runs that begin at these indices of `count` numbers."""
    return np.diff(starts, append=count)


def runs_of(roots: NDArray[np.uint64]) -> Runs:
    """Ascending, distinct roots as runs."""
    if not len(roots):
        return NO_RUNS
    starts = starts_of(roots)
    if len(starts) == 1:
        return one_run(int(roots[0]), len(roots))
    return roots[starts].astype(_U64).tobytes(), lengths_of(starts, len(roots)).astype(_U32).tobytes()


def read_runs(runs: Runs) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """First roots and lengths as arrays."""
    return np.frombuffer(runs[0], dtype=_U64), np.frombuffer(runs[1], dtype=_U32).astype(np.int64)


def spread(first: NDArray[np.int64], length: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers first .. first + length - 1 of each pair, one pair after the other."""
    ends = np.cumsum(length)
    numbers = np.arange(int(ends[-1]) if len(ends) else 0, dtype=np.int64)
    numbers += np.repeat(first - (ends - length), length)
    return numbers


def expand(first: NDArray[np.uint64], length: NDArray[np.int64]) -> NDArray[np.uint64]:
    """All roots of some runs, one after the other."""
    # 64-bit sums wrap around, so the result is right.
    return spread(first.view(np.int64), length).view(np.uint64)


def distinct(roots: NDArray[np.uint64], values: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Ascending, distinct roots, each with the XOR of all its values."""
    if (roots[1:] > roots[:-1]).all():
        return roots, values
    # A stable sort is faster here: acks are mostly a few ascending sequences.
    order = np.argsort(roots, kind="stable")
    roots, values = roots[order], values[order]
    firsts = np.concatenate((np.zeros(1, dtype=np.int64), np.flatnonzero(roots[1:] != roots[:-1]) + 1))
    if len(firsts) == len(roots):
        return roots, values
    return roots[firsts], np.bitwise_xor.reduceat(values, firsts)


def runs_fit(frame: frame_pb2.Frame, total: int | None = None) -> bool:
    """Whether the runs of a frame are complete, not empty, 64 bits wide, and have `total` roots if that is given."""
    runs = (frame.run_first, frame.run_length)
    if (only := only_run(runs)) is not None:
        return 0 < only[1] and sum(only) < 1 << 64 and total in (None, only[1])
    if len(runs[0]) % 8 or 2 * len(runs[1]) != len(runs[0]):
        return False
    first, length = read_runs(runs)
    if total is not None and int(length.sum()) != total:
        return False
    return bool((length > 0).all() and (first + length.astype(np.uint64) > first).all())
