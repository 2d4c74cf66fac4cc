"""Acks in any order, grouped and repeated in any way, equal an acker that takes one root at a time."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.common.setting_types import StmgrSettings
from heronpy.wire.frames import (
    ACK,
    COMPLETE,
    FAIL,
    LINK_HEADER,
    LINK_OPEN,
    Frame,
    Runs,
    expand,
    fits,
    pack32,
    pack64,
    read_runs,
    starts_of,
)
from stmgr.acker import RING_MIN, RUN_LONG, RUNS_AT_ONCE, Acker
from stmgr.switch import Switch

BASE = (3 << 40) + 1
EDGE = 0xABCDEF


def roots_in(runs: Runs) -> list[int]:
    roots: list[int] = expand(*read_runs(runs)).tolist()
    return roots


class Naive:
    """One XOR per root, one root at a time."""

    def __init__(self) -> None:
        self.trees: dict[int, int] = {}
        self.unknown = 0

    def ack(self, pairs: list[tuple[int, int]]) -> list[int]:
        touched = []
        for root, value in pairs:
            if root in self.trees:
                self.trees[root] ^= value
                touched.append(root)
            else:
                self.unknown += 1
        done = sorted({root for root in touched if not self.trees[root]})
        for root in done:
            del self.trees[root]
        return done


#: Where a run begins, how long it is, and what it is acked with.
PIECES = st.lists(
    st.tuples(st.integers(-20, 900), st.integers(1, 400) | st.integers(1, 3), st.sampled_from([EDGE, 5, EDGE ^ 5])),
    min_size=1,
    max_size=25,
)


def message_of(how: str, pieces: list[tuple[int, int, int]]) -> tuple[list[Frame], list[list[tuple[int, int]]]]:
    """The pieces as messages of one kind, and the (root, value) pairs of each message."""
    singles = [[(BASE + at + i, value) for i in range(count)] for at, count, value in pieces]
    if how == "runs":
        made = Frame(
            kind=ACK,
            count=sum(count for _, count, _ in pieces),
            run_first=pack64([BASE + at for at, _, _ in pieces]),
            run_length=pack32([count for _, count, _ in pieces]),
            run_edge=pack64([value for _, _, value in pieces]),
        )
        return [made], [[pair for pairs in singles for pair in pairs]]
    if how == "roots":
        pairs = [pair for some in singles for pair in some]
        made = Frame(
            kind=ACK, count=len(pairs), roots=pack64([r for r, _ in pairs]), values=pack64([v for _, v in pairs])
        )
        return [made], [pairs]
    frames = []
    for (at, count, value), pairs in zip(pieces, singles, strict=True):
        made = Frame(kind=ACK, count=count, root_base=BASE + at)
        if how == "slices":
            made.edge = value
        else:
            made.values = pack64([v for _, v in pairs])
        frames.append(made)
    return frames, singles


@given(
    st.lists(st.tuples(st.sampled_from(["runs", "roots", "slices", "values"]), PIECES), max_size=8), st.integers(0, 1)
)
def test_any_grouping_equals_one_root_at_a_time(words: list[tuple[str, list[tuple[int, int, int]]]], wrap: int) -> None:
    acker, naive = Acker(), Naive()
    # Once with the roots across the end of the ring.
    shift = (RING_MIN - BASE % RING_MIN - 400) if wrap else 0
    for at in range(0, 1000, 100):
        register = Frame(count=100, root_base=BASE + shift + at, edge=EDGE)
        acker.register(register)
        naive.trees.update(dict.fromkeys(range(register.root_base, register.root_base + 100), EDGE))
    for how, pieces in words:
        moved = [(at + shift, count, value) for at, count, value in pieces]
        for message, pairs in zip(*message_of(how, moved), strict=True):
            assert fits(message)
            # Runs are taken in parts, so what is complete in between stays complete.
            done = acker.ack(message)
            if how != "runs":
                assert roots_in(done) == naive.ack(pairs)
            else:
                long = [pair for some in split(pairs, pieces, True) for pair in naive.ack(some)]
                short = [root for some in split(pairs, pieces, False) for root in naive.ack(some)]
                assert roots_in(done) == long + short
            assert acker.live_roots == len(naive.trees) and acker.unknown_roots == naive.unknown
    left = sorted(naive.trees)
    assert roots_in(acker.fail(Frame(kind=FAIL, count=len(left), roots=pack64(left)))) == left if left else True


def split(pairs: list[tuple[int, int]], pieces: list[tuple[int, int, int]], long: bool) -> list[list[tuple[int, int]]]:
    """The pairs of the long runs one by one, or those of the short runs together."""
    place, runs = 0, []
    for _, count, _ in pieces:
        if (count >= RUN_LONG) == long:
            runs.append(pairs[place : place + count])
        place += count
    return runs if long else [[pair for run in runs for pair in run]]


def test_very_many_short_runs_are_taken_in_parts() -> None:
    acker = Acker()
    count = 3 * RUNS_AT_ONCE
    acker.register(Frame(count=2 * count, root_base=BASE, edge=EDGE))
    firsts = [BASE + 2 * number for number in range(count)]
    message = Frame(
        count=count, run_first=pack64(firsts[::-1]), run_length=pack32([1] * count), run_edge=pack64([EDGE] * count)
    )
    assert sorted(roots_in(acker.ack(message))) == firsts
    assert acker.live_roots == count


def test_roots_and_values_of_different_number_change_nothing() -> None:
    acker = Acker()
    acker.register(Frame(count=10, root_base=BASE, edge=EDGE))
    with pytest.raises(ValueError, match="2 roots with 1 values"):
        acker.ack(Frame(count=2, roots=pack64([BASE, BASE + 1]), values=pack64([EDGE])))
    assert acker.live_roots == 10
    assert acker.ack(Frame(count=10, root_base=BASE, edge=EDGE)) != (b"", b"")


class Spouts:
    """A switch with one spout task that has registered some roots."""

    def __init__(self, count: int, **settings: int) -> None:
        self.sent: list[Frame] = []
        self.switch = Switch(StmgrSettings(**settings), self.send, lambda: 0.0)
        self.switch.take_places({1: "spout", 2: "bolt"}, {"spout"}, {})
        self.switch.attach(self.switch.tasks[1], b"t:1:1", 1, 100)
        self.seq = 0
        self.receive(Frame(kind=LINK_OPEN))
        self.switch.ackers[1].register(Frame(count=count, root_base=BASE, edge=EDGE))

    def send(self, identity: bytes, header: bytes, data: bytes) -> bool:
        self.sent.append(Frame.FromString(data))
        return True

    def receive(self, frame: Frame) -> None:
        self.seq += 1
        self.switch.receive([b"t:1:1", LINK_HEADER.pack(100, self.seq), frame.SerializeToString()])

    def completed(self) -> list[Frame]:
        return [frame for frame in self.sent if frame.kind == COMPLETE]


def test_scattered_roots_come_back_in_messages_that_a_frame_holds() -> None:
    spouts = Spouts(4000, frame_max_bytes=4096)
    roots = [BASE + number for number in range(0, 4000, 2)]
    values = pack64([EDGE] * len(roots))
    spouts.receive(Frame(kind=ACK, dest_task=1, count=len(roots), roots=pack64(roots), values=values))
    completed = spouts.completed()
    assert [root for frame in completed for root in roots_in((frame.run_first, frame.run_length))] == roots
    assert 5 < len(completed) < 10 and all(frame.ByteSize() <= 4096 and fits(frame) for frame in completed)
    assert len(starts_of(np.array(roots))) == len(roots)


def test_runs_that_do_not_fit_are_counted_and_change_nothing() -> None:
    spouts = Spouts(100)
    for wrong in (
        Frame(
            kind=ACK, dest_task=1, count=3, run_first=pack64([BASE]), run_length=pack32([2]), run_edge=pack64([EDGE])
        ),
        Frame(kind=ACK, dest_task=1, count=2, run_first=pack64([BASE]), run_length=pack32([2])),
    ):
        spouts.receive(wrong)
    assert spouts.switch.counts["malformed_frames"] == 2
    assert spouts.switch.ackers[1].live_roots == 100 and not spouts.completed()


def test_runs_that_claim_much_make_no_large_arrays() -> None:
    spouts = Spouts(100)
    runs = 16_000
    length = RUN_LONG - 1
    claim = Frame(
        kind=ACK,
        dest_task=1,
        count=runs * length,
        run_first=pack64([BASE] * runs),
        run_length=pack32([length] * runs),
        run_edge=pack64([5] * runs),
    )
    tracemalloc.start()
    spouts.receive(claim)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20, f"{peak} bytes"
    assert spouts.switch.ackers[1].unknown_roots == runs * (length - 100)
