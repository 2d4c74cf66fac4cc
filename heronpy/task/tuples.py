"""Tuples and batches as a bolt sees them, and the frame that contained them. Pure.

A tuple holds its values, its frame and its position in the frame; everything else (component, stream, task,
roots, edges) belongs to the frame and is looked up on demand. Creating a tuple costs about 60 ns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, groupby, repeat
from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from heronpy.api.batch import Batch
from heronpy.proto import control_pb2, frame_pb2
from heronpy.wire.codec import Undecodable
from heronpy.wire.frames import Array32, Array64, root_tasks_of, roots_of, spread, values_of

if TYPE_CHECKING:
    import pyarrow


Span = control_pb2.Span
#: Number of timestamps that two stream managers append; a frame that was sent again may have more.
HOPS_MAX = 16


class TracedFrame(bytes):
    """The bytes of a frame with a traced tuple, so that a queue can recognise it."""

    def left(self, now_ns: int) -> TracedFrame:
        """Return the frame as it leaves the out-queue of its sender; in protobuf, the last value of a field wins."""
        return TracedFrame(self + frame_pb2.Frame(trace_left=now_ns).SerializeToString())


class Arrived:
    """A traced tuple that has arrived: its place in the payload and among the tuples still to be processed."""

    __slots__ = ("index", "place", "span")

    def __init__(self, frame: frame_pb2.Frame, source: str) -> None:
        self.index = frame.trace_index
        self.place = frame.trace_index - frame.skip
        #: The fields of the span that are known so far.
        self.span = Span(
            trace=frame.trace,
            parent=frame.trace_parent,
            source_clock=frame.trace_clock,
            emitted=frame.trace_emitted,
            sealed=frame.trace_sealed,
            left=frame.trace_left,
            hops=frame.trace_hops[:HOPS_MAX],
            source=source,
            source_task=frame.source_task,
        )

    def next_part(self, part: list[Any], place: int) -> tuple[list[Any], bool]:
        """Return the next tuples to process from `place` on, and whether they consist of only the traced tuple."""
        before = self.place - place
        if before > 0:
            return part[:before], False
        return (part[:1], True) if before == 0 else (part, False)


_numbers = count(1)
#: Numbers of tuples in their frame, counted from 0.
Places = NDArray[np.int64]


class InFrame:
    """The common data of the tuples of one received frame, with the acking state of a tracked frame.

    Invariants: `values_` has one entry per root of each tuple: the XOR of the tuple's own edge and of the edges of
    tuples anchored to it that have been settled and count for this root. A tuple was finally acked or failed if its
    `done` bit is set, or if `whole_done` is set.
    """

    __slots__ = (
        "component",
        "count",
        "created",
        "done",
        "envelope",
        "many_roots",
        "number",
        "offsets",
        "origin_ns",
        "root_counts",
        "root_tasks",
        "roots",
        "stream",
        "streams",
        "task",
        "touched",
        "trace",
        "tracked",
        "values_",
        "whole_done",
    )  # fmt: skip

    def __init__(self, component: str, stream: str, task: int, size: int, created: float) -> None:
        #: Counts the frames of this process.
        self.number = next(_numbers)
        self.component = component
        self.stream = stream
        #: The stream of each tuple, if the streams differ.
        self.streams: list[str] | None = None
        self.task = task
        self.count = size
        self.created = created
        #: The emit time of the spout tuple behind some of its tuples, or 0 if unknown; see tracing.py.
        self.origin_ns = 0
        #: The traced tuple in this frame, until it is processed; see tracing.py.
        self.trace: Arrived | None = None
        self.tracked = False
        #: True if all tuples were acked or failed together; later acks of them are duplicates.
        self.whole_done = False
        #: True if a tuple was anchored to a tuple of this frame.
        self.touched = False
        self.envelope: frame_pb2.Frame | None = None
        #: True if some tuple has no root, or more than one.
        self.many_roots = False
        self.values_: Array64 | None = None
        self.done: NDArray[np.bool_] | None = None

    def track(self, envelope: frame_pb2.Frame) -> None:
        """Keep a tracked frame for its roots and edges, without its payload."""
        envelope.ClearField("payload")
        self.envelope = envelope
        self.many_roots = bool(envelope.root_counts)
        self.tracked = True

    def unpack(self) -> None:
        """Create the arrays that are needed for anchors, and for partial acks of a frame that is not `plain`."""
        if self.values_ is not None or self.envelope is None:
            return
        envelope = self.envelope
        self.values_ = values_of(envelope)
        self.roots: Array64 = roots_of(envelope)
        self.root_tasks: Array32 = root_tasks_of(envelope, len(self.roots))
        if envelope.root_counts:
            self.root_counts: Array32 | None = np.frombuffer(envelope.root_counts, dtype="<u4")
            self.offsets = np.concatenate(([0], np.cumsum(self.root_counts, dtype=np.int64)))
        else:
            self.root_counts = None

    def plain(self) -> bool:
        """Return whether the frame's roots are consecutive, belong to one spout task, and share one edge or seed."""
        envelope = self.envelope
        return (
            envelope is not None
            and not self.touched
            and not envelope.derived_edges
            and not envelope.roots
            and not envelope.root_counts
            and not envelope.root_tasks
            and not envelope.values
        )

    def take(self, places: Places) -> Places:
        """Mark the tuples at these distinct places as done; return the places that had not been acked or failed
        before."""
        if self.whole_done:
            return places[:0]
        if self.done is None:
            if len(places) == self.count:
                self.whole_done = True
                return places
            self.done = np.zeros(self.count, dtype=bool)
        else:
            places = places[~self.done[places]]
        self.done[places] = True
        return places

    def root_places(self, places: Places) -> Places:
        """Return the positions of the roots of these tuples in the arrays of an unpacked frame."""
        if self.root_counts is None:
            return places
        return spread(self.offsets[places], self.root_counts[places].astype(np.int64))

    def roots_at(self, index: int) -> list[tuple[int, int]]:
        """Return the (spout task, root) pairs of tuple `index`."""
        if not self.tracked:
            return []
        self.unpack()
        if self.root_counts is None:
            return [(int(self.root_tasks[index]), int(self.roots[index]))]
        low, high = self.span(index)
        return [(int(t), int(r)) for t, r in zip(self.root_tasks[low:high], self.roots[low:high], strict=True)]

    def span(self, index: int) -> tuple[int, int]:
        """Return the first and last position of the roots of tuple `index` in an unpacked frame."""
        if self.root_counts is None:
            return index, index + 1
        return int(self.offsets[index]), int(self.offsets[index + 1])


class HeronTuple(msgspec.Struct, gc=False, eq=False):
    """A tuple given to `process`: `values`, `component`, `stream`, `task` (the sender's), `id`."""

    values: list[Any]
    frame: InFrame
    index: int = 0

    @property
    def component(self) -> str:
        return self.frame.component

    @property
    def stream(self) -> str:
        streams = self.frame.streams
        return self.frame.stream if streams is None else streams[self.index]

    @property
    def task(self) -> int:
        """The task that sent this tuple."""
        return self.frame.task

    @property
    def id(self) -> str:
        """An id that is unique within the task that received the tuple."""
        frame = self.frame
        # Only tuples of tracked frames have a place; all tuples of a frame are created together.
        place = self.index if frame.tracked else id(self)
        return f"{frame.task}-{frame.number:x}-{place:x}"

    @property
    def creation_time(self) -> float:
        """The time at which this task received the tuple, in monotonic seconds."""
        return self.frame.created

    @property
    def roots(self) -> list[tuple[int, int]]:
        """(spout task, root) pairs of the spout tuples that this tuple derives from."""
        return self.frame.roots_at(self.index)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.id, self.component, self.stream, self.task, self.values))

    def __repr__(self) -> str:
        return (
            f"Tuple(id={self.id!r}, component={self.component!r}, stream={self.stream!r}, "
            f"task={self.task!r}, values={self.values!r})"
        )


class DamagedValues(list[Any]):
    """The values of a tuple with an undecodable value. The tuple keeps its place, and user code never sees it."""

    @property
    def error(self) -> BaseException:
        """The exception raised by decoding the first undecodable value."""
        return next(value.error for value in self if type(value) is Undecodable)


def mark_damaged(tuples: list[HeronTuple]) -> None:
    """Give DamagedValues to each tuple with an undecodable value."""
    for tup in tuples:
        if any(type(value) is Undecodable for value in tup.values):
            tup.values = DamagedValues(tup.values)


def make_mixed_tuples(flat: list[Any], widths: list[int], frame: InFrame) -> list[HeronTuple]:
    """Regroup the values of a frame of several streams; `widths` has the width of each tuple."""
    rows, place = [], 0
    for width in widths:
        rows.append(flat[place : place + width])
        # A stream without fields has one placeholder per tuple.
        place += width or 1
    return list(map(HeronTuple, rows, repeat(frame), count()))


def make_tuples(flat: list[Any], width: int, frame: InFrame) -> list[HeronTuple]:
    """Regroup a flat list of values into tuples of `width` values each."""
    if width == 1:
        rows: Any = [[value] for value in flat]
    elif width == 0:
        # The stream has no fields: the flat list holds one placeholder per tuple.
        rows = [[] for _ in flat]
    else:
        rows = map(list, zip(*[iter(flat)] * width, strict=True))
    if frame.tracked:
        return list(map(HeronTuple, rows, repeat(frame), count()))
    return list(map(HeronTuple, rows, repeat(frame)))


#: The values of a tuple that only serves as an anchor.
_UNSEEN: list[Any] = []
#: Name and fields of a stream.
Schema = tuple[str, list[str]]


class InBatch(Batch):
    """A `Batch` of tuples of one frame; `numbers` are the positions of its tuples in the frame.

    A frame becomes one batch, or one per run of tuples of the same stream, in the order of its tuples. A batch keeps
    the decoded values, and their positions in the frame; tuple objects are created on demand.
    """

    __slots__ = ("_made", "frame", "numbers")

    def __init__(
        self,
        frame: InFrame,
        stream: str,
        fields: Sequence[str],
        flat: list[Any] | None,
        numbers: Sequence[int],
        of: tuple[Batch, list[int]] | None = None,
        arrow: pyarrow.RecordBatch | None = None,
    ) -> None:
        super().__init__(frame.component, stream, frame.task, fields, flat, len(numbers), of, arrow)
        self.frame = frame
        self.numbers = numbers
        self._made: list[HeronTuple] | None = None

    def tuples(self) -> list[HeronTuple]:
        """The tuples of the batch; always the same objects."""
        if self._made is None:
            self._made = list(map(HeronTuple, self._values(), repeat(self.frame), self.numbers))
        return self._made

    def _tuples(self) -> list[HeronTuple]:
        return self.tuples()

    def marks(self) -> list[HeronTuple]:
        """The tuples as anchors, without values unless the tuple objects already exist."""
        if self._made is not None:
            return self._made
        return list(map(HeronTuple, repeat(_UNSEEN), repeat(self.frame), self.numbers))

    def _part(self, places: list[int]) -> Self:
        numbers = list(map(self.numbers.__getitem__, places))
        return type(self)(self.frame, self.stream, self.fields, None, numbers, (self, places))

    def singles(self) -> list[InBatch]:
        """Each tuple as a separate batch."""
        return [self.take([place]) for place in range(self._size)]

    def places(self) -> Places:
        """The positions of the batch's tuples in the frame, ascending and distinct."""
        if isinstance(self.numbers, range):
            return np.arange(self.numbers.start, self.numbers.stop)
        return np.unique(np.array(self.numbers, dtype=np.int64))


#: The parts of a frame: batches, and single tuples with values that could not be decoded.
Part = InBatch | HeronTuple


def parts_of(
    flat: list[Any], frame: InFrame, streams: Sequence[Schema], kinds: list[int], skip: int, damaged: bool
) -> list[Part]:
    """Return the parts of a frame, without its first `skip` tuples.

    `kinds` has each tuple's index into `streams`, or one index for all tuples; with `damaged`, some values may be
    Undecodable.
    """
    parts: list[Part] = []
    low = start = 0
    runs = [(kinds[0], frame.count)] if frame.streams is None else [(k, len(list(run))) for k, run in groupby(kinds)]
    for kind, size in runs:
        name, fields = streams[kind]
        width = len(fields) or 1
        out = min(size, max(0, skip - low))
        values = flat if len(flat) == width * size and not out else flat[start + out * width : start + size * width]
        if out < size:
            whole = InBatch(frame, name, fields, values, range(low + out, low + size))
            parts += _apart(whole, values, width) if damaged else (whole,)
        low += size
        start += size * width
    return parts


def _apart(batch: InBatch, values: list[Any], width: int) -> Iterator[Part]:
    """Yield the batch split at its damaged tuples, which are yielded singly; the order is kept."""
    bad = [any(type(v) is Undecodable for v in values[n * width : n * width + width]) for n in range(len(batch))]
    for is_damaged, run in groupby(range(len(batch)), key=bad.__getitem__):
        places = list(run)
        if not is_damaged:
            yield batch.take(places)
            continue
        for place in places:
            row = values[place * width : place * width + width]
            yield HeronTuple(DamagedValues(row), batch.frame, batch.numbers[place])
