"""The in-queue of a bolt: every credit comes back once, in order, and the counts are what is here.

Self-tuning capacities: Heron's rule. What an alignment does with each barrier; test_barriers.py has all interleavings.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from heronpy.wire.frames import DATA, Frame
from instance.in_queue import GROWTH_STEPS, Aligner, Channels, Entry, InQueue, Recorder, Sized, Step, TunedCapacity
from instance.progress import Progress


def frame(tuples: int, skip: int = 0) -> Frame:
    return Frame(kind=DATA, count=tuples + skip, skip=skip)


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
