"""Bolts that hold tuples: acks of any tuples in any order, few messages, and tuples anchored to many."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.task.acks import BoltAcks
from heronpy.task.roots import anchored
from heronpy.task.tuples import HeronTuple, InFrame, make_tuples
from heronpy.wire.frames import ACK, Frame, edges_of, expand, fits, pack32, pack64, read_runs, roots_of, values_of

SPOUTS = (4, 9)


class Sent:
    """A bolt's acks, and what its messages say of each root: the XOR of the values, and fails."""

    def __init__(self, frame_max_bytes: int = 64 << 20) -> None:
        self.frame_max_bytes = frame_max_bytes
        self.messages: list[Frame] = []
        self.values: defaultdict[tuple[int, int], int] = defaultdict(int)
        self.failed: Counter[tuple[int, int]] = Counter()
        self.counted: Counter[str] = Counter()
        self.settle: Any = lambda: None
        self.acks = BoltAcks(7, self.send, lambda: self.settle(), True, self.count, frame_max_bytes)
        self.next_root = dict.fromkeys(SPOUTS, 1 << 40)

    def count(self, name: str, label: str, by: float) -> None:
        self.counted[name] += int(by)

    def send(self, data: bytes) -> None:
        message = Frame.FromString(data)
        assert fits(message) and len(data) <= self.frame_max_bytes
        self.messages.append(message)
        if message.run_first:
            first, length = read_runs((message.run_first, message.run_length))
            roots, values = expand(first, length), np.repeat(np.frombuffer(message.run_edge, dtype="<u8"), length)
        else:
            roots, values = roots_of(message), values_of(message)
        for root, value in zip(roots.tolist(), values.tolist(), strict=True):
            if message.kind == ACK:
                self.values[message.dest_task, root] ^= value
            else:
                self.failed[message.dest_task, root] += 1

    def frame(self, rng: random.Random, count: int, kind: str) -> list[HeronTuple]:
        """A frame of a spout, or of a bolt: a list of roots, several roots per tuple, some of them shared."""
        made = Frame(count=count, tracked=True, edge=rng.getrandbits(64) | 1)
        if kind == "spout":
            made.root_task = rng.choice(SPOUTS)
            made.root_base = self.next_root[made.root_task]
            self.next_root[made.root_task] += count
        else:
            made.derived_edges = True
            counts = [rng.choice((0, 1, 2, 4)) if kind == "many" else 1 for _ in range(count)]
            tasks = [rng.choice(SPOUTS) for _ in range(sum(counts))]
            made.roots = pack64([self.next_root[task] + rng.randrange(30) for task in tasks])
            made.root_tasks = pack32(tasks)
            if kind == "many":
                made.root_counts = pack32(counts)
        frame = InFrame("up", "default", 3, count, 0.0)
        frame.track(made)
        return make_tuples(list(range(count)), 1, frame)


def edge_of(tup: HeronTuple) -> int:
    envelope = tup.frame.envelope
    assert envelope is not None
    return int(edges_of(envelope)[tup.index])


@given(
    st.lists(st.tuples(st.sampled_from(["spout", "list", "many"]), st.integers(1, 40)), min_size=1, max_size=8),
    st.integers(0, 1 << 30),
    st.sampled_from([400, 64 << 20]),
)
def test_any_order_grouping_and_repetition_acks_each_tuple_once(
    shapes: list[tuple[str, int]], seed: int, frame_max_bytes: int
) -> None:
    rng = random.Random(seed)
    sent = Sent(frame_max_bytes)
    frames = [sent.frame(rng, count, kind) for kind, count in shapes]
    tuples = [tup for some in frames for tup in some]
    words = rng.choices(tuples, k=rng.randrange(2 * len(tuples) + 1))
    words += rng.choice(frames)
    if rng.random() < 0.5:
        rng.shuffle(words)
    expected: defaultdict[tuple[int, int], int] = defaultdict(int)
    acked: set[int] = set()
    while words:
        part = [words.pop() for _ in range(min(len(words), rng.randint(1, 60)))]
        if rng.random() < 0.5:
            sent.acks.ack(part)
        else:
            for tup in part:
                sent.acks.ack(tup)
        for tup in part:
            if id(tup) not in acked:
                acked.add(id(tup))
                for pair in tup.roots:
                    expected[pair] ^= edge_of(tup)
        sent.acks.flush(rng.choice([None, *frames]))
    assert {pair: value for pair, value in sent.values.items() if value} == {p: v for p, v in expected.items() if v}
    assert sent.acks.ack_count == sent.counted["__ack-count"] == len(acked)


def test_held_frames_of_spouts_are_a_few_runs_in_one_message_per_spout() -> None:
    rng, sent = random.Random(1), Sent()
    frames = [sent.frame(rng, 200, "spout") for _ in range(25)]
    tuples = [tup for frame in frames for tup in frame]
    rng.shuffle(tuples)
    sent.acks.ack(tuples)
    sent.acks.flush()
    assert len(sent.messages) == len(SPOUTS)
    assert sum(len(message.run_first) // 8 for message in sent.messages) == len(frames)
    assert sum(message.ByteSize() for message in sent.messages) < 25 * len(frames)
    assert all(frame[0].frame.whole_done for frame in frames)
    sent.acks.ack(tuples)
    sent.acks.flush()
    assert len(sent.messages) == len(SPOUTS) and sent.acks.ack_count == len(tuples)


def test_held_frames_of_bolts_take_one_message_per_spout() -> None:
    rng, sent = random.Random(2), Sent()
    tuples = [tup for _ in range(25) for tup in sent.frame(rng, 200, "list")]
    rng.shuffle(tuples)
    sent.acks.ack(tuples)
    sent.acks.flush()
    assert len(sent.messages) == len(SPOUTS)


def test_what_does_not_fit_into_one_frame_is_cut() -> None:
    rng, sent = random.Random(3), Sent(frame_max_bytes=1000)
    tuples = [tup for _ in range(10) for tup in sent.frame(rng, 100, "spout")]
    sent.acks.ack(tuples[::2])
    sent.acks.fail(tuples[1::4])
    sent.acks.flush()
    assert len(sent.messages) > 10
    assert sent.acks.ack_count == 500 and sum(sent.failed.values()) == 250
    assert len(sent.values) == 500


@pytest.mark.parametrize("wrong", ["word", 7, None, ["word"], [None]])
def test_only_tuples_can_be_acked_and_failed(wrong: Any) -> None:
    sent = Sent()
    for word in (sent.acks.ack, sent.acks.fail):
        with pytest.raises(TypeError, match=r"\(\) takes a tuple that was passed to process\(\), or a list of such"):
            word(wrong)
    sent.acks.flush()
    assert not sent.messages


def test_a_list_may_be_changed_after_its_ack() -> None:
    sent, rng = Sent(), random.Random(4)
    held = sent.frame(rng, 10, "spout")
    sent.acks.ack(held)
    held.clear()
    sent.acks.ack(iter(sent.frame(rng, 5, "list")))
    sent.acks.flush()
    assert sent.acks.ack_count == 15


def naive_roots(mark: Any) -> list[tuple[int, int]]:
    several = () if mark is None else (mark,) if type(mark) is HeronTuple else mark
    return sorted({pair for anchor in several for pair in anchor.roots})


@given(
    st.lists(st.tuples(st.sampled_from(["spout", "list", "many"]), st.integers(1, 30)), min_size=1, max_size=6),
    st.lists(st.none() | st.integers(1, 60), min_size=1, max_size=8),
    st.integers(0, 1 << 30),
)
def test_the_roots_of_many_anchors(shapes: list[tuple[str, int]], sizes: list[int | None], seed: int) -> None:
    rng, sent = random.Random(seed), Sent()
    tuples = [tup for kind, count in shapes for tup in sent.frame(rng, count, kind)]
    marks: list[Any] = []
    for size in sizes:
        some = rng.choices(tuples, k=size or 0)
        marks.append(None if size is None else some[0] if size == 1 else some)
    found = anchored(marks)
    expected = [(owner, *pair) for owner, mark in enumerate(marks) for pair in naive_roots(mark)]
    assert list(zip(found.owners.tolist(), found.tasks.tolist(), found.roots.tolist(), strict=True)) == expected
    assert found.counts(len(marks)).tolist() == [len(naive_roots(mark)) for mark in marks]
    # Each root is accounted for by the first of the anchors that has it.
    by_frame = {int(row): frame for frame, rows in found.by_frame() for row in rows}
    for row, (owner, task, root) in enumerate(expected):
        mark = marks[owner]
        first = next(a for a in ([mark] if type(mark) is HeronTuple else mark) if (task, root) in a.roots)
        place = int(found.places[row])
        low, high = first.frame.span(first.index)
        assert by_frame[row] is first.frame and low <= place < high and int(first.frame.roots[place]) == root
