"""The in-queue of a bolt: its frames, the credit for them, its capacity, and the alignment of barriers. Pure.

A frame waits, is opened (its tuples are being processed), and is done when all of its tuples are done. Its credit
is returned once: when it is done, or earlier if the task must accept more than it can process. If its link
ends before that, its credit is void. A frame may also be put aside: the caller later puts it back or drops it, and
until then its tuples count as waiting here.

The stream manager treats returned credit as that of the oldest frames that it has sent. So the credit of done frames is
returned in the order in which they were opened, even if many frames are open at the same time (asynchronous bolts).

Invariants: the credit of each frame is returned at most once; `order` holds the open frames with unreturned credit,
oldest first, and never begins with a done frame; `counts` are the sums over all frames that wait, are open and not
done, or are aside. `validate` checks them.

Alignment decides when a bolt has all barriers, and which frames wait until then. Aligned: once the barrier of a source
has come out of the queue, the source's later frames are held back until the barriers of all sources have arrived; then
the task is cut (its state belongs to the checkpoint), and the frames that were held back go first. Unaligned: the task
is cut immediately, and the frames in flight ahead of their source's barrier are recorded as part of the checkpoint.
Invariants: no frame of a blocked source is processed before the cut; frames of one source keep their order; every item
given to `data` is processed or held exactly once; held and recorded items are bounded. Checkpoint numbers only grow; an
old number is ignored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable
from enum import Enum
from typing import Generic, TypeVar

from heronpy.proto import frame_pb2

from .progress import Progress

Sized = tuple[frame_pb2.Frame, int]
#: Number of samples in which the capacity regrows from one to its maximum (6.4 s at 100 ms).
GROWTH_STEPS = 64
#: Seconds of work after which the pace of a task is measured again, and after which it is first measured.
PACE_S, FIRST_PACE_S = 1.0, 0.2
#: Number of tuples that the in-queue holds, and expects, until the pace is known.
IN_QUEUE_START_BYTES, IN_QUEUE_START_TUPLES = 1 << 10, 8
#: The in-queue aims at this share of the time for which tuples may wait.
IN_QUEUE_SHARE = 1 / 8
#: Maximum number of early frames, from tasks that the plan does not contain yet.
STRANGE_FRAMES_MAX = 1000
STRANGE_BYTES_MAX = 8 << 20
STRANGE_WAIT_S = 30.0


class Entry:
    """A frame in the queue; `left` of its `tuples` are not done; if it `owes`, its credit must still be returned."""

    __slots__ = ("count", "frame", "left", "owes", "size", "tuples")

    def __init__(self, frame: frame_pb2.Frame, size: int, owes: bool) -> None:
        self.frame = frame
        self.size = size
        self.count = frame.count
        self.tuples = self.left = frame.count - frame.skip
        self.owes = owes

    @property
    def skip(self) -> int:
        """The number of done tuples, counted in the frame as it was first sent."""
        return self.count - self.left

    def rest(self) -> frame_pb2.Frame:
        """Return the frame without its done tuples."""
        rest = frame_pb2.Frame()
        rest.CopyFrom(self.frame)
        rest.skip = self.skip
        return rest


class InQueue:
    """The in-queue of a bolt. `credit(size, tuples)` returns the credit of one frame; only this class calls it."""

    def __init__(self, credit: Callable[[int, int], None], counts: Progress) -> None:
        self._credit = credit
        self.counts = counts
        #: Frames in the order in which they will be opened; always the same object.
        self.waiting: deque[Entry] = deque()
        self.order: deque[Entry] = deque()
        #: Open frames without unreturned credit, as keys of a dict, which keeps their order.
        self.free: dict[Entry, None] = {}
        #: Done tuples of the frames in `order`, and the bytes of those frames that are done.
        self._done_tuples = self._held_bytes = 0
        self._aside_tuples = self._aside_bytes = 0

    # ---- in -----------------------------------------------------------------------------------

    def put(self, frame: frame_pb2.Frame, size: int, settled: bool = False) -> None:
        """Add a frame that arrived over the link; the credit of a `settled` frame is returned immediately."""
        self._put(Entry(frame, size, not settled))
        if settled:
            self._credit(size, frame.count - frame.skip)

    def restore(self, frame: frame_pb2.Frame, size: int) -> None:
        """Add a frame from a checkpoint. No link sent it, so it has no credit."""
        self._put(Entry(frame, size, False))

    def refuse(self, size: int, tuples: int) -> None:
        """Return the credit of a frame that arrived over the link but is not accepted."""
        self._credit(size, tuples)

    def _put(self, entry: Entry) -> None:
        self.waiting.append(entry)
        self.counts.in_tuples += entry.tuples
        self.counts.in_bytes += entry.size

    def put_first(self, frames: Iterable[Sized]) -> None:
        """Return frames that were put aside to the front of the queue."""
        entries = [Entry(frame, size, False) for frame, size in frames]
        self.waiting.extendleft(reversed(entries))
        for entry in entries:
            self._aside_tuples -= entry.tuples
            self._aside_bytes -= entry.size

    # ---- through ------------------------------------------------------------------------------

    def next(self) -> Entry:
        """Open the first waiting frame."""
        entry = self.waiting.popleft()
        if entry.owes:
            self.order.append(entry)
        else:
            self.free[entry] = None
        return entry

    def done(self, entry: Entry, tuples: int) -> None:
        """Record that `tuples` more tuples of an open frame are done; the last tuple completes the frame."""
        entry.left -= tuples
        if entry.owes:
            self._done_tuples += tuples
        if entry.left <= 0:
            self.counts.in_tuples -= entry.tuples
            self.counts.in_bytes -= entry.size
            self._close(entry)

    def put_aside(self, entry: Entry) -> None:
        """Hand an open frame, of which no tuple is done, to the caller until `put_first` or `drop`."""
        self._aside_tuples += entry.tuples
        self._aside_bytes += entry.size
        if entry.owes:
            self._done_tuples += entry.left
        entry.left = 0
        self._close(entry)

    def drop(self, frame: frame_pb2.Frame, size: int) -> None:
        """Stop counting a frame that was put aside."""
        tuples = frame.count - frame.skip
        self._aside_tuples -= tuples
        self._aside_bytes -= size
        self.counts.in_tuples -= tuples
        self.counts.in_bytes -= size

    def _close(self, entry: Entry) -> None:
        if not entry.owes:
            del self.free[entry]
        elif entry is self.order[0]:
            self._settle_first()
        else:
            self._held_bytes += entry.size

    def _settle_first(self) -> None:
        """Return the credit of the oldest frame, and of done frames that waited for it."""
        order, entry = self.order, self.order.popleft()
        entry.owes = False
        self._done_tuples -= entry.tuples - max(0, entry.left)
        self._credit(entry.size, entry.tuples)
        while order and order[0].left <= 0:
            entry = order.popleft()
            entry.owes = False
            self._done_tuples -= entry.tuples
            self._held_bytes -= entry.size
            self._credit(entry.size, entry.tuples)

    # ---- early credit -------------------------------------------------------------------------

    def relieve(self, bytes_max: float, tuples_max: float) -> None:
        """Return the credit of a slow frame early if it holds up the credit of too many bytes or tuples.

        The bytes are those of later frames that are done; the tuples are all that are done, also in slow frames.
        """
        while self.order and (self._held_bytes >= bytes_max or self._done_tuples >= tuples_max):
            self.free[self.order[0]] = None
            self._settle_first()

    def settle_all(self) -> None:
        """Return the credit of all frames in this queue."""
        self._forgive(self._credit)

    def lose_link(self) -> None:
        """Handle the loss of the link: the frames that it delivered stay, but their credit is void."""
        self._forgive(lambda size, tuples: None)

    def _forgive(self, credit: Callable[[int, int], None]) -> None:
        for entry in (*self.order, *self.waiting):
            if entry.owes:
                entry.owes = False
                credit(entry.size, entry.tuples)
        self.free.update((entry, None) for entry in self.order if entry.left > 0)
        self.order.clear()
        self._done_tuples = self._held_bytes = 0

    # ---- the end ------------------------------------------------------------------------------

    def opened(self) -> list[Entry]:
        """Return the open frames that are not done."""
        return [*self.free, *(entry for entry in self.order if entry.left > 0)]

    def unreturnable(self) -> int:
        """The number of tuples that are not done and will not be sent again: their credit was returned, or is void."""
        return sum(entry.left for entry in self.free) + sum(e.tuples for e in self.waiting if not e.owes)

    def skip(self) -> int:
        """Return the number of done tuples in the oldest frame with unreturned credit."""
        return self.order[0].skip if self.order else 0

    def validate(self) -> None:
        assert all(entry.owes for entry in self.order)
        assert not any(entry.owes for entry in self.free) and all(entry.left > 0 for entry in self.free)
        assert not self.order or self.order[0].left > 0, "the oldest frame is done, but its credit was not returned"
        held = [entry for entry in self.order if entry.left <= 0]
        assert self._done_tuples == sum(entry.tuples - max(0, entry.left) for entry in self.order)
        assert self._held_bytes == sum(entry.size for entry in held)
        inside = [*self.waiting, *self.opened()]
        assert self._aside_tuples >= 0 and self._aside_bytes >= 0
        assert self.counts.in_tuples == self._aside_tuples + sum(entry.tuples for entry in inside)
        assert self.counts.in_bytes == self._aside_bytes + sum(entry.size for entry in inside)


class TunedCapacity:
    """A capacity that tunes itself, by the rule that Heron's Java instances use.

    It is the capacity of one queue, in tuples. `current` is always within [1, limit], and `limit` at most `maximum`.

    Every `sample_s` the length of a queue is sampled into an exponential moving average that gives the
    newest sample most of the weight. While the average is above the expected length, the capacity is halved, down to
    one. While the average is below it, the capacity grows by a fixed small step, up to the limit. A smaller capacity
    drops nothing: it withholds credit until the queue has drained. Pure: `now` is given.
    """

    __slots__ = (
        "_expected_max", "average", "current", "due", "expected", "limit", "maximum", "sample_s", "step", "weight",
    )  # fmt: skip

    def __init__(self, expected: int, maximum: int, weight: float, sample_s: float) -> None:
        self.expected = self._expected_max = max(1, min(expected, maximum))
        self.maximum = self.limit = maximum
        self.weight = weight
        self.sample_s = sample_s
        self.step = max(1, maximum // GROWTH_STEPS)
        #: Initially half of the maximum, as in Heron.
        self.current = max(1, maximum // 2)
        self.average = 0.0
        self.due = 0.0

    def aim(self, expected: float) -> None:
        """Expect this number of tuples, but at most the initially expected number.

        Below the initial number, the capacity is at most twice the expected number.
        """
        self.expected = max(1, min(int(expected), self._expected_max))
        self.limit = self.maximum if self.expected == self._expected_max else min(self.maximum, 2 * self.expected)
        self.step = max(1, self.limit // GROWTH_STEPS)
        self.current = min(self.current, self.limit)

    def sample(self, length: int, now: float) -> bool:
        """Take a sample if `sample_s` has passed since the last one; return whether the capacity changed."""
        if now < self.due:
            return False
        self.due = now + self.sample_s
        self.average = self.weight * length + (1.0 - self.weight) * self.average
        before = self.current
        if self.average > self.expected:
            self.current = max(1, before // 2)
        else:
            self.current = min(self.limit, before + self.step)
        return self.current != before


class Pace:
    """The number of tuples per second that a task processes while tuples wait. Pure.

    The newest second of work has half of the weight. So the rate reflects a pause of some seconds, but one slow tuple
    does not determine it.
    """

    __slots__ = ("_busy_ns", "_done", "rate")

    def __init__(self) -> None:
        #: Tuples per second; 0: unknown.
        self.rate = 0.0
        self._done = self._busy_ns = 0

    def sample(self, done: int, busy_ns: int) -> bool:
        """Update the rate from the totals of processed tuples and of busy time; return whether it has changed."""
        took_s, tuples = (busy_ns - self._busy_ns) * 1e-9, done - self._done
        if took_s < (PACE_S if self.rate else FIRST_PACE_S) or not tuples:
            return False
        self._done, self._busy_ns = done, busy_ns
        self.rate = (self.rate + tuples / took_s) / 2 if self.rate else tuples / took_s
        return True


class EarlyFrames:
    """Frames from tasks that this task's plan does not contain yet; the frames wait for the plan.

    When a component grows, its new tasks may send before every receiver has the plan with these tasks. Their frames can
    be read only with that plan, which will follow.

    Invariants: at most STRANGE_FRAMES_MAX frames and STRANGE_BYTES_MAX bytes wait, each at most STRANGE_WAIT_S seconds;
    frames of one task keep their order.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[frame_pb2.Frame, int, float]] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def hold(self, frame: frame_pb2.Frame, size: int, now: float) -> bool:
        """Keep a frame; return False if there is no space for it."""
        if len(self._waiting) >= STRANGE_FRAMES_MAX or self._bytes + size > STRANGE_BYTES_MAX:
            return False
        self._waiting.append((frame, size, now + STRANGE_WAIT_S))
        self._bytes += size
        return True

    def take_known(self, known: Container[int]) -> list[Sized]:
        """Remove and return the frames of these tasks."""
        return self._take({frame.source_task for frame, _, _ in self._waiting if frame.source_task in known})

    def take_late(self, now: float) -> list[Sized]:
        """Remove and return the frames that have waited too long."""
        late: list[Sized] = []
        while self._waiting and self._waiting[0][2] <= now:
            frame, size, _ = self._waiting.popleft()
            self._bytes -= size
            late.append((frame, size))
        return late

    def take_all(self) -> list[Sized]:
        return self._take({frame.source_task for frame, _, _ in self._waiting})

    def _take(self, tasks: set[int]) -> list[Sized]:
        if not tasks:
            return []
        taken = [(frame, size) for frame, size, _ in self._waiting if frame.source_task in tasks]
        self._waiting = deque(one for one in self._waiting if one[0].source_task not in tasks)
        self._bytes -= sum(size for _, size in taken)
        return taken


T = TypeVar("T")


class Step(Enum):
    """The action for an offered frame or barrier."""

    #: A frame for the task.
    PROCESS = "process"
    #: A frame from a blocked source, kept here.
    HELD = "held"
    #: A frame from a blocked source, and no space for it: decline the checkpoint.
    FULL = "full"
    #: A barrier of a checkpoint that is over, or from an unknown source.
    IGNORED = "ignored"
    #: A barrier that is not the last.
    NOTED = "noted"
    #: The last barrier: cut now, then call `end`.
    CUT = "cut"
    #: A barrier of a newer checkpoint: call `end`, process what was held, and offer the barrier again.
    OVERTAKEN = "overtaken"


class Aligner(Generic[T]):
    """Aligns the barriers of one bolt task.

    `sources` are the tasks that send to it. `checkpoint` is the checkpoint being aligned, or 0.
    """

    def __init__(self, sources: Iterable[int], bytes_max: int) -> None:
        self.sources = frozenset(sources)
        self.bytes_max = bytes_max
        self.checkpoint = 0
        #: The highest checkpoint that is complete or abandoned.
        self.ended = 0
        self.blocked: set[int] = set()
        self.held_bytes = 0
        self._held: list[T] = []

    def data(self, source: int, item: T, size: int) -> Step:
        """Return the action for a frame from the queue; if the frame is held, `end` later returns `item`."""
        if source not in self.blocked:
            return Step.PROCESS
        if self.held_bytes + size > self.bytes_max:
            return Step.FULL
        self._held.append(item)
        self.held_bytes += size
        return Step.HELD

    def barrier(self, source: int, checkpoint: int) -> Step:
        """Return the action for a barrier from the queue."""
        if checkpoint <= self.ended or checkpoint < self.checkpoint or source not in self.sources:
            return Step.IGNORED
        if self.checkpoint and checkpoint > self.checkpoint:
            return Step.OVERTAKEN
        self.checkpoint = checkpoint
        self.blocked.add(source)
        return Step.CUT if self.blocked == self.sources else Step.NOTED

    def end(self) -> list[T]:
        """End the alignment, after a cut, a decline or a newer checkpoint. Returns the held items, in order."""
        self.ended = max(self.ended, self.checkpoint)
        self.checkpoint = 0
        self.blocked.clear()
        self.held_bytes = 0
        held, self._held = self._held, []
        return held

    def abort(self, checkpoint: int) -> list[T]:
        """End this checkpoint and older checkpoints; return the released items."""
        released = self.end() if 0 < self.checkpoint <= checkpoint else []
        self.ended = max(self.ended, checkpoint)
        return released


class Recorder:
    """The data in flight at an unaligned cut: per source, the frames before its barrier."""

    def __init__(self, checkpoint: int, sources: Iterable[int], bytes_max: int) -> None:
        self.checkpoint = checkpoint
        self.open = set(sources)
        self.bytes_max = bytes_max
        self.frames: list[bytes] = []
        self.tuples = 0
        #: Number of bytes that arrived while recording, recorded or not, because all of them are in memory.
        self.bytes = 0

    def wants(self, source: int) -> bool:
        """Return whether the barrier of this source is still missing."""
        return source in self.open

    def data(self, frame: bytes, tuples: int) -> None:
        """Record a frame from a source whose barrier has not arrived."""
        self.frames.append(frame)
        self.tuples += tuples

    def arrived(self, size: int) -> bool:
        """Count an arrived frame; return False if there is no space for more."""
        self.bytes += size
        return self.bytes <= self.bytes_max

    def barrier(self, source: int) -> None:
        self.open.discard(source)

    @property
    def complete(self) -> bool:
        return not self.open


class Channels:
    """Compares the number of data frames from each source with the number that the barriers state."""

    def __init__(self) -> None:
        self._received: dict[int, int] = {}

    def count(self, source: int) -> None:
        self._received[source] = self._received.get(source, 0) + 1

    def difference(self, source: int, sent: int) -> int:
        """Return the number of missing frames when a barrier of the source arrives; negative for duplicated frames."""
        return sent - self._received.get(source, 0)
