"""Alignment of barriers, whatever the interleaving: what belongs to a checkpoint, what is held back (F38)."""

from __future__ import annotations

from collections import deque
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from instance.in_queue import Aligner, Channels, Recorder, Step

DATA, BARRIER, ABORT = "data", "barrier", "abort"
Item = tuple[str, int, int]


class Bolt:
    """What a bolt does around an Aligner: a queue, and a record of what was processed before each cut."""

    def __init__(self, sources: int, bytes_max: int) -> None:
        self.aligner: Aligner[Item] = Aligner(range(sources), bytes_max)
        self.queue: deque[Item] = deque()
        self.processed: dict[int, list[int]] = {source: [] for source in range(sources)}
        self.cuts: dict[int, dict[int, int]] = {}
        self.declined: list[int] = []
        self.aborted: set[int] = set()

    def release(self, held: list[Item]) -> None:
        self.queue.extendleft(reversed(held))

    def step(self) -> None:
        kind, source, number = item = self.queue.popleft()
        if kind == DATA:
            step = self.aligner.data(source, item, 1)
            if step is Step.PROCESS:
                self.processed[source].append(number)
            elif step is Step.FULL:
                self.queue.appendleft(item)
                self.declined.append(self.aligner.checkpoint)
                self.release(self.aligner.abort(self.aligner.checkpoint))
            assert self.aligner.held_bytes <= self.aligner.bytes_max
            return
        step = self.aligner.barrier(source, number)
        if step is Step.OVERTAKEN:
            self.queue.appendleft(item)
            self.release(self.aligner.end())
        elif step is Step.CUT:
            self.cuts[number] = {source: len(done) for source, done in self.processed.items()}
            self.release(self.aligner.abort(number))

    def abort(self, checkpoint: int) -> None:
        if checkpoint not in self.cuts:
            self.aborted.add(checkpoint)
        self.release(self.aligner.abort(checkpoint))


@st.composite
def traffic(draw: st.DrawFn, lossless: bool = False) -> tuple[int, list[list[Item]], list[Any]]:
    """Per source data and barriers in order (some barriers never come), and an interleaving of it all."""
    sources = draw(st.integers(1, 4))
    checkpoints = draw(st.integers(1, 4))
    streams: list[list[Item]] = []
    for source in range(sources):
        stream: list[Item] = []
        number = 0
        for checkpoint in range(1, checkpoints + 1):
            for _ in range(draw(st.integers(0, 4))):
                stream.append((DATA, source, number))
                number += 1
            if lossless or draw(st.integers(0, 5)):
                stream.append((BARRIER, source, checkpoint))
        for _ in range(draw(st.integers(0, 2))):
            stream.append((DATA, source, number))
            number += 1
        streams.append(stream)
    order: list[Any] = [source for source, stream in enumerate(streams) for _ in stream]
    order = list(draw(st.permutations(order + ["step"] * len(order))))
    if not lossless:
        for checkpoint in draw(st.lists(st.integers(1, checkpoints), max_size=3)):
            order.insert(draw(st.integers(0, len(order))), (ABORT, checkpoint))
    return sources, streams, order


def run(bolt: Bolt, streams: list[list[Item]], order: list[Any]) -> None:
    rest = [deque(stream) for stream in streams]
    for event in order:
        if event == "step":
            if bolt.queue:
                bolt.step()
        elif isinstance(event, tuple):
            bolt.abort(event[1])
        else:
            bolt.queue.append(rest[event].popleft())
    while bolt.queue:
        bolt.step()


@given(traffic(), st.sampled_from([2, 5, 1000]))
def test_a_cut_holds_exactly_what_came_before_the_barriers(
    made: tuple[int, list[list[Item]], list[Any]], bytes_max: int
) -> None:
    """Data of one source keeps its order, is processed once, and none of a blocked source before the cut."""
    sources, streams, order = made
    bolt = Bolt(sources, bytes_max)
    run(bolt, streams, order)
    assert list(bolt.cuts) == sorted(bolt.cuts), "numbers of checkpoints only grow"
    assert not bolt.aborted & set(bolt.cuts), "nothing comes of an aborted checkpoint"
    for checkpoint, cut in bolt.cuts.items():
        for source, stream in enumerate(streams):
            place = stream.index((BARRIER, source, checkpoint))
            assert cut[source] == sum(kind == DATA for kind, _, _ in stream[:place])
    bolt.release(bolt.aligner.abort(99))
    while bolt.queue:
        bolt.step()
    for source, stream in enumerate(streams):
        assert bolt.processed[source] == [number for kind, _, number in stream if kind == DATA]
    assert bolt.aligner.held_bytes == 0 and not bolt.aligner.blocked


@given(traffic(lossless=True))
def test_one_checkpoint_after_the_other_is_cut_always(made: tuple[int, list[list[Item]], list[Any]]) -> None:
    """The next barrier is sent when the checkpoint before is over: then no cut is missed."""
    sources, streams, order = made
    bolt = Bolt(sources, 10_000)
    count = max(number for kind, _, number in streams[0] if kind == BARRIER)
    parts: list[list[list[Item]]] = []
    for checkpoint in range(1, count + 1):
        part = []
        for source, stream in enumerate(streams):
            ends = [0, *(stream.index((BARRIER, source, n)) + 1 for n in range(1, checkpoint + 1))]
            part.append(stream[ends[-2] : ends[-1]])
        parts.append(part)
    for part in parts:
        left = {source: len(items) for source, items in enumerate(part)}
        mine = []
        for event in order:
            if event == "step":
                mine.append(event)
            elif left[event]:
                left[event] -= 1
                mine.append(event)
        run(bolt, part, mine)
    assert list(bolt.cuts) == list(range(1, count + 1))
    assert not bolt.declined


def test_too_much_to_hold_back_is_said_before_it_is_held() -> None:
    aligner: Aligner[str] = Aligner([1, 2], 10)
    assert aligner.barrier(1, 5) is Step.NOTED
    assert aligner.data(1, "a", 6) is Step.HELD
    assert aligner.data(1, "b", 6) is Step.FULL
    assert aligner.data(2, "c", 600) is Step.PROCESS
    assert aligner.abort(5) == ["a"]
    assert aligner.data(1, "b", 6) is Step.PROCESS
    assert aligner.barrier(2, 5) is Step.IGNORED


def test_barriers_that_say_nothing_more() -> None:
    """Of an older checkpoint, of one that was aborted before any barrier came, and of a stranger."""
    aligner: Aligner[str] = Aligner([1, 2], 10)
    assert aligner.abort(3) == []
    assert aligner.barrier(1, 3) is Step.IGNORED
    assert aligner.barrier(7, 4) is Step.IGNORED
    assert aligner.barrier(1, 5) is Step.NOTED
    assert aligner.barrier(2, 4) is Step.IGNORED
    assert aligner.barrier(1, 5) is Step.NOTED, "a repeated barrier must not stand for another source's"
    assert aligner.barrier(2, 6) is Step.OVERTAKEN
    aligner.end()
    assert aligner.barrier(2, 6) is Step.NOTED
    assert aligner.barrier(1, 5) is Step.IGNORED
    assert aligner.barrier(1, 6) is Step.CUT


def test_a_recorder_is_complete_with_the_last_barrier_and_says_when_it_is_full() -> None:
    recorder = Recorder(4, [1, 2], 100)
    recorder.data(b"x", 3)
    assert recorder.arrived(60)
    recorder.barrier(1)
    assert not recorder.wants(1) and recorder.wants(2) and not recorder.complete
    assert not recorder.arrived(60), "what is not recorded takes memory, too"
    recorder.barrier(2)
    assert recorder.complete and recorder.frames == [b"x"] and recorder.tuples == 3


@given(st.lists(st.integers(1, 3)), st.integers(1, 3), st.integers(-2, 2))
def test_channels_know_how_many_frames_are_missing(frames: list[int], source: int, lost: int) -> None:
    channels = Channels()
    for frame in frames:
        channels.count(frame)
    assert channels.difference(source, frames.count(source) + lost) == lost
