"""A frame whose counts and arrays fit each other can be read by everything that reads frames; no other is taken.

The link header: what was sent is read back, and what was changed on its way is never taken for it (F14). Runs of roots.
"""

from __future__ import annotations

import random
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.common.errors import RemoteWireError
from heronpy.proto import frame_pb2
from heronpy.task.tuples import InFrame
from heronpy.wire.frames import (
    ACK,
    COMPLETE,
    COUNT_MAX,
    DATA,
    FAIL,
    JOINED_MAX_BYTES,
    LINK_HEADER,
    REGISTER,
    Frame,
    count_of,
    distinct,
    expand,
    fits,
    header_and_frame,
    joined,
    message_of,
    one_run,
    pack16,
    pack32,
    pack64,
    part_of,
    read_runs,
    root_tasks_of,
    roots_of,
    runs_of,
    spread,
    values_of,
)

GOOD = [
    Frame(kind=DATA, count=3),
    Frame(kind=DATA, count=3, skip=3, streams=pack16([0, 1, 2])),
    Frame(kind=DATA, count=3, tracked=True, root_base=(1 << 64) - 4, edge=1),
    Frame(kind=DATA, count=2, tracked=True, roots=pack64([5, 6])),
    Frame(kind=DATA, count=2, tracked=True, roots=pack64([5, 6, 7]), root_counts=pack32([3, 0]), root_tasks=pack32([1, 2, 1])),
    Frame(kind=DATA, count=2, tracked=True, root_counts=pack32([0, 0])),
    Frame(kind=ACK, count=2, roots=pack64([5, 6]), values=pack64([1, 2])),
    Frame(kind=REGISTER, count=2, root_base=5, values=pack64([1, 2])),
    Frame(kind=FAIL, count=2, roots=pack64([5, 6])),
]  # fmt: skip
BAD = [
    Frame(kind=DATA, count=COUNT_MAX + 1),
    Frame(kind=DATA, count=3, skip=4),
    Frame(kind=DATA, count=3, streams=pack16([0, 1])),
    Frame(kind=DATA, count=3, tracked=True, root_base=(1 << 64) - 2),
    Frame(kind=DATA, count=3, tracked=True, roots=pack64([5, 6])),
    Frame(kind=DATA, count=2, tracked=True, roots=pack64([5, 6]) + b"x"),
    Frame(kind=DATA, count=2, tracked=True, roots=pack64([5, 6]), root_counts=pack32([3, 0])),
    Frame(kind=DATA, count=2, tracked=True, roots=pack64([5, 6]), root_counts=pack32([2])),
    Frame(kind=DATA, count=2, tracked=True, root_counts=pack32([1, 1])),
    Frame(kind=DATA, count=2, tracked=True, roots=pack64([5, 6]), root_tasks=pack32([1])),
    Frame(kind=ACK, count=2, roots=pack64([5, 6]), values=pack64([1])),
    Frame(kind=FAIL, count=3, roots=pack64([5, 6])),
    Frame(kind=REGISTER, count=2, values=b"x"),
]


@pytest.mark.parametrize("frame", GOOD, ids=range(len(GOOD)))
def test_what_fits(frame: frame_pb2.Frame) -> None:
    assert fits(frame)


@pytest.mark.parametrize("frame", BAD, ids=range(len(BAD)))
def test_what_does_not(frame: frame_pb2.Frame) -> None:
    assert not fits(frame)


def test_whatever_fits_can_be_unpacked() -> None:
    dice, taken = random.Random(5), 0
    for _ in range(20_000):
        count = dice.randrange(4)
        frame = Frame(kind=dice.choice([DATA, ACK, FAIL]), count=count, tracked=True, edge=dice.randrange(9))
        frame.root_base = dice.choice([0, 9, (1 << 64) - 2])
        for name, size in (("roots", 8), ("root_tasks", 4), ("root_counts", 4), ("values", 8)):
            if dice.random() < 0.4:
                numbers = np.array([dice.randrange(3) for _ in range(dice.randrange(4))], dtype=f"<u{size}")
                setattr(frame, name, numbers.tobytes() + b"x" * (dice.random() < 0.05))
        if not fits(frame):
            continue
        taken += 1
        roots = roots_of(frame)
        assert len(root_tasks_of(frame, len(roots))) == len(roots)
        if not frame.root_counts or frame.roots:
            assert len(values_of(frame)) == len(roots)
        inner = InFrame("a", "b", 1, count, 0.0)
        inner.track(frame)
        assert all(len(inner.roots_at(index)) <= len(roots) for index in range(count))
    assert taken > 1000


U64 = st.integers(0, (1 << 64) - 1)
FRAMES = st.binary(max_size=300)


@given(U64, U64, FRAMES)
def test_what_is_packed_comes_back(epoch: int, seq: int, frame: bytes) -> None:
    for header in (LINK_HEADER.pack(epoch, seq), LINK_HEADER.pack(epoch, seq, frame)):
        assert len(header) == LINK_HEADER.size == 24
        assert LINK_HEADER.unpack(header) == LINK_HEADER.unpack(header, frame) == (epoch, seq)


@given(U64, U64, FRAMES, st.data())
def test_one_flipped_bit_anywhere_is_noticed(epoch: int, seq: int, frame: bytes, choose: st.DataObject) -> None:
    """The checksum vouches for frame, epoch, sequence number and its own flag; magic and version for themselves."""
    whole = bytearray(LINK_HEADER.pack(epoch, seq, frame) + frame)
    bit = choose.draw(st.integers(0, len(whole) * 8 - 1))
    whole[bit // 8] ^= 1 << bit % 8
    header, data = bytes(whole[:24]), bytes(whole[24:])
    with pytest.raises(RemoteWireError):
        LINK_HEADER.unpack(header, data)


@given(U64, U64, st.integers(0, 300) | st.integers(JOINED_MAX_BYTES - 2, JOINED_MAX_BYTES + 2))
def test_a_message_is_one_part_unless_its_frame_is_large(epoch: int, seq: int, size: int) -> None:
    header, frame = LINK_HEADER.pack(epoch, seq), bytes(size)
    parts = message_of(header, frame)
    assert len(parts) == (1 if size <= JOINED_MAX_BYTES else 2)
    assert header_and_frame(parts) == (header, frame)
    assert header_and_frame([header, frame]) == (header, frame), "whatever the sender has chosen"


@pytest.mark.parametrize("parts", [[], [b"a", b"b", b"c"]])
def test_no_other_number_of_parts_is_a_message(parts: list[bytes]) -> None:
    with pytest.raises(ValueError):
        header_and_frame(parts)


@given(st.binary(max_size=64), FRAMES)
def test_other_bytes_are_no_header(header: bytes, frame: bytes) -> None:
    with pytest.raises(RemoteWireError):
        LINK_HEADER.unpack(b"\0" + header, frame)


def test_a_frame_of_another_version_is_refused() -> None:
    header = bytearray(LINK_HEADER.pack(5, 6))
    header[2] += 1
    with pytest.raises(RemoteWireError, match="version 2"):
        LINK_HEADER.unpack(bytes(header))


@pytest.mark.parametrize("cut", range(1, 24))
def test_a_cut_frame_is_noticed(cut: int) -> None:
    header = LINK_HEADER.pack(5, 6, b"f" * 30)
    with pytest.raises(RemoteWireError, match="checksum"):
        LINK_HEADER.unpack(header, b"f" * (30 - cut))
    with pytest.raises(RemoteWireError, match="a link header has"):
        LINK_HEADER.unpack(header[:-cut])


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
