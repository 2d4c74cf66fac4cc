"""The in-queue of a bolt: every credit comes back once, in order, and the counts are what is here.

Self-tuning capacities: Heron's rule. Alignment of barriers, whatever the interleaving: what belongs to a checkpoint, what
is held back (F38).
"""

from __future__ import annotations

from collections import deque
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from heronpy.wire.frames import DATA as DATA_FRAME
from heronpy.wire.frames import Frame
from instance.in_queue import GROWTH_STEPS, Aligner, Channels, Entry, InQueue, Recorder, Sized, Step, TunedCapacity
from instance.progress import Progress


def frame(tuples: int, skip: int = 0) -> Frame:
    return Frame(kind=DATA_FRAME, count=tuples + skip, skip=skip)


class Machine(RuleBasedStateMachine):
    """A task that does with its queue whatever bolts, asynchronous bolts, barriers and new links do."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = Progress()
        self.returned: list[tuple[int, int]] = []
        self.queue = InQueue(lambda size, tuples: self.returned.append((size, tuples)), self.counts)
        #: What came over the present link, in order; sizes are unique, so a frame is known by its size.
        self.sent: list[tuple[int, int]] = []
        self.size = 0
        self.open: list[Entry] = []
        self.aside: list[Sized] = []
        self.done = 0
        self.came = 0
        #: The oldest frames' credit may be returned before they are done.
        self.early = False

    def sized(self, tuples: int) -> int:
        self.size += 1
        self.came += tuples
        return self.size

    @rule(tuples=st.integers(0, 4), skip=st.integers(0, 2))
    def put(self, tuples: int, skip: int) -> None:
        size = self.sized(tuples)
        self.sent.append((size, tuples))
        self.queue.put(frame(tuples, skip), size)

    @rule(tuples=st.integers(0, 4), skip=st.integers(0, 2))
    def put_settled(self, tuples: int, skip: int) -> None:
        """A checkpoint records what comes, so it must keep coming."""
        size = self.sized(tuples)
        self.sent.append((size, tuples))
        self.queue.put(frame(tuples, skip), size, settled=True)
        assert self.returned[-1] == (size, tuples) and not self.queue.waiting[-1].owes
        self.early = True

    @rule(tuples=st.integers(0, 4))
    def refuse(self, tuples: int) -> None:
        """Of another attempt, or malformed."""
        waiting, self.size = len(self.queue.waiting), self.size + 1
        self.sent.append((self.size, tuples))
        self.queue.refuse(self.size, tuples)
        assert self.returned[-1] == (self.size, tuples) and len(self.queue.waiting) == waiting
        self.early = True

    @rule(tuples=st.integers(0, 4))
    def restore(self, tuples: int) -> None:
        self.queue.restore(frame(tuples), self.sized(tuples))

    @precondition(lambda self: self.queue.waiting)
    @rule(aside=st.booleans())
    def take(self, aside: bool) -> None:
        first = self.queue.waiting[0]
        entry = self.queue.next()
        assert entry is first
        if aside and entry.tuples:
            self.aside.append((entry.frame, entry.size))
            self.queue.put_aside(entry)
        elif entry.tuples:
            self.open.append(entry)
        else:
            self.queue.done(entry, 0)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(self.open))
        tuples = data.draw(st.integers(1, entry.left))
        assert entry.rest().count - entry.rest().skip == entry.left
        self.queue.done(entry, tuples)
        self.done += tuples
        if not entry.left:
            self.open.remove(entry)

    @precondition(lambda self: self.aside)
    @rule()
    def bring_back(self) -> None:
        frames, self.aside = self.aside, []
        self.queue.put_first(frames)
        assert [(entry.frame, entry.size) for entry in self.queue.waiting][: len(frames)] == frames

    @precondition(lambda self: self.aside)
    @rule()
    def give_up(self) -> None:
        one, size = self.aside.pop()
        self.queue.drop(one, size)
        self.came -= one.count - one.skip

    @rule()
    def settle_all(self) -> None:
        self.queue.settle_all()
        assert sorted(self.returned) == self.sent
        self.early = True

    @rule()
    def lose_link(self) -> None:
        self.queue.lose_link()
        self.returned, self.sent = [], []
        self.early = False
        assert self.queue.skip() == 0

    @rule(bytes_max=st.integers(1, 40), tuples_max=st.integers(1, 10))
    def relieve(self, bytes_max: int, tuples_max: int) -> None:
        before = len(self.returned)
        self.queue.relieve(bytes_max, tuples_max)
        held = [entry for entry in self.queue.order if not entry.left]
        assert (sum(e.size for e in held) < bytes_max and sum(e.tuples for e in held) < tuples_max) or not held
        self.early = self.early or len(self.returned) > before

    @invariant()
    def credit_is_returned_once_and_in_order(self) -> None:
        assert self.returned == self.sent[: len(self.returned)] or self.early
        assert len(set(self.returned)) == len(self.returned) and set(self.returned) <= set(self.sent)
        owed = [(entry.size, entry.tuples) for entry in (*self.queue.order, *self.queue.waiting) if entry.owes]
        assert sorted(self.returned + owed) == self.sent

    @invariant()
    def counts_are_what_is_here(self) -> None:
        self.queue.validate()
        partly = sum(entry.tuples - entry.left for entry in self.open)
        assert self.counts.in_tuples == self.came - self.done + partly
        lost = sum(entry.left for entry in self.open if not entry.owes)
        lost += sum(entry.tuples for entry in self.queue.waiting if not entry.owes)
        assert self.queue.unreturnable() == lost

    def teardown(self) -> None:
        self.queue.put_first(self.aside)
        for entry in self.open:
            self.queue.done(entry, entry.left)
        while self.queue.waiting:
            entry = self.queue.next()
            self.queue.done(entry, entry.left)
        assert (self.counts.in_tuples, self.counts.in_bytes) == (0, 0)
        assert sorted(self.returned) == self.sent
        assert not self.queue.order and not self.queue.free


TestInQueue = Machine.TestCase
TestInQueue.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def queue() -> tuple[InQueue, list[int]]:
    returned: list[int] = []
    return InQueue(lambda size, tuples: returned.append(size), Progress()), returned


def test_the_successor_gets_the_rest_of_the_oldest_frame() -> None:
    q, returned = queue()
    q.put(frame(3, skip=2), 10)
    q.put(frame(4), 20)
    entry = q.next()
    q.done(entry, 1)
    assert (q.skip(), returned) == (3, [])
    q.done(entry, 2)
    assert (q.skip(), returned) == (0, [10])


def test_a_frame_is_put_aside_without_its_credit_passing_that_of_an_older_one() -> None:
    """The sender takes what is returned as the oldest frame that it has sent."""
    q, returned = queue()
    for size in (10, 20, 30):
        q.put(frame(1), size)
    first = q.next()
    q.put_aside(q.next())
    assert returned == []
    q.done(first, 1)
    assert returned == [10, 20]


def test_a_slow_frame_does_not_hold_up_the_credit_of_others_for_ever() -> None:
    q, returned = queue()
    for size in (10, 20, 30):
        q.put(frame(1), size)
    slow = q.next()
    q.done(q.next(), 1)
    q.relieve(25, 100)
    assert returned == []
    q.done(q.next(), 1)
    q.relieve(25, 100)
    assert returned == [10, 20, 30]
    assert q.counts.in_tuples == 1, "it is still being processed"
    q.done(slow, 1)
    assert returned == [10, 20, 30] and q.counts.in_tuples == 0


def capacity(expected: int = 8, maximum: int = 128) -> TunedCapacity:
    return TunedCapacity(expected, maximum, weight=0.8, sample_s=0.1)


def test_it_starts_at_half_halves_above_and_grows_below() -> None:
    queue = capacity()
    assert queue.current == 64
    assert queue.sample(100, 0.0) and queue.current == 32
    assert not queue.sample(100, 0.05), "between samples nothing changes"
    for now in range(1, 10):
        queue.sample(100, float(now))
    assert queue.current == 1
    for now in range(10, 12 + GROWTH_STEPS):
        queue.sample(0, float(now))
    assert queue.current == 128


def test_the_newest_sample_weighs_most() -> None:
    queue = capacity()
    queue.sample(10, 0.0)
    assert queue.average == 8.0 and queue.current == 66, "8 on average is what is expected"
    queue.sample(11, 1.0)
    assert queue.current == 33


def test_it_recovers_in_less_than_seven_seconds() -> None:
    queue = TunedCapacity(8192, 65536, 0.8, 0.1)
    for now in range(20):
        queue.sample(65536, now / 10)
    assert queue.current == 1
    now = 2.0
    while queue.current < 0.9 * 65536:
        now += 0.1
        queue.sample(0, now)
    assert now < 9.0


@given(st.integers(-5, 100), st.integers(1, 1000), st.lists(st.integers(0, 10_000), max_size=200))
def test_it_stays_within_its_bounds(expected: int, maximum: int, lengths: list[int]) -> None:
    queue = TunedCapacity(expected, maximum, 0.8, 0.1)
    for now, length in enumerate(lengths):
        queue.sample(length, float(now))
        assert 1 <= queue.current <= maximum


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
