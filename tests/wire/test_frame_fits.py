"""A frame whose counts and arrays fit each other can be read by everything that reads frames; no other is taken."""

from __future__ import annotations

import random

import numpy as np
import pytest

from heronpy.proto import frame_pb2
from heronpy.wire.frames import (
    ACK,
    COUNT_MAX,
    DATA,
    FAIL,
    REGISTER,
    Frame,
    fits,
    pack16,
    pack32,
    pack64,
    root_tasks_of,
    roots_of,
    values_of,
)
from instance.tuples import InFrame

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
