"""The in-queue of a bolt: every credit comes back once, in order, and the counts are what is here."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from heronpy.wire.frames import DATA, Frame
from instance.in_queue import Entry, InQueue, Sized
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
