"""Output streams of a task, their buffers, and the steps of emitting many tuples at once. Pure.

An outlet is a *flat* list of values for one destination; the receiver regroups them by the width of the
stream. Streams of one component that share a consumer also share their outlets, because tuples from one task to another
stay in the order in which they were emitted. Such an outlet also keeps the stream of each tuple.

Invariants of an outlet: `flat` holds `width` values per tuple, or the width of each tuple's own stream
when `kinds` is kept; `marks` (ids of a tracked spout, anchors of a tracked bolt) and `kinds` have one
entry per tuple.

The tuples of an Arrow record batch are distributed without a Python object for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from heronpy.plan.emit_rules import Columns
from heronpy.plan.grouping import All, Chooser, Fields, Lowest, Shuffle
from heronpy.proto import frame_pb2
from heronpy.wire.arrow_values import arrow
from heronpy.wire.codec import FIXED, PLAIN

if TYPE_CHECKING:
    import pyarrow
    import pyarrow as pa


class Traced(Protocol):
    """A traced tuple in a buffer."""

    place: int

    def seal(self, frame: frame_pb2.Frame, start: int, of_spout: bool) -> bytes:
        """Return the bytes of a frame with the buffer's tuples from `start` on, including this tuple."""


#: No destination needs small frames.
NO_LIMITS: Mapping[int, int] = MappingProxyType({})
#: The mark of a tracked tuple: its id at a spout; its anchor or anchors at a bolt.
Mark = Any


class Outlet:
    """A buffer of tuples for one destination, or of one stream for several destinations that share it (shuffle)."""

    __slots__ = (
        "big_bytes", "copies", "dests", "flat", "kinds", "marks", "origin_ns", "seed", "settled", "stream", "trace",
        "turn", "width",
    )  # fmt: skip

    def __init__(self, stream: int, dests: list[int], width: int, turn: int = 0, mixed: bool = False) -> None:
        self.stream = stream
        self.dests = dests
        self.width = width
        self.flat: list[Any] = []
        self.marks: list[Mark] = []
        #: Index of each tuple's stream, in an outlet for several streams.
        self.kinds: list[int] | None = [] if mixed else None
        self.big_bytes = 0
        #: The emit time of the spout tuple behind some of its tuples, or 0 if unknown; see tracing.py.
        self.origin_ns = 0
        #: The traced tuple in this outlet; see tracing.py.
        self.trace: Traced | None = None
        #: True if it contains copies of tracked spout tuples; all outlets with copies are sent together.
        self.copies = False
        #: Edges of anchored tuples and of copies are splitmix64(seed + position); the seed is drawn when needed.
        self.seed = 0
        self.settled = 0
        self.turn = turn

    def __len__(self) -> int:
        return len(self.flat) // self.width if self.kinds is None else len(self.kinds)

    def clear(self) -> None:
        self.flat.clear()
        self.marks.clear()
        if self.kinds is not None:
            self.kinds.clear()
        self.big_bytes = self.seed = self.settled = self.origin_ns = 0
        self.trace = None

    def shares(self, total: int, limits: Mapping[int, int] = NO_LIMITS) -> list[tuple[int, int]]:
        """Cut `total` tuples into contiguous shares of nearly equal size, one per destination.

        The first destination rotates with each flush, so that small flushes spread evenly. A destination with a limit
        gets no more than its limit while another destination has no limit, and no share is larger than its limit.
        """
        dests = self.dests
        count = len(dests)
        if limits:
            return self._limited(total, limits)
        if count == 1:
            return [(dests[0], total)]
        share, rest = divmod(total, count)
        turn = self.turn % count
        self.turn = (turn + rest) % count
        return [(dests[(turn + i) % count], share + (i < rest)) for i in range(count if share else rest)]

    def _limited(self, total: int, limits: Mapping[int, int]) -> list[tuple[int, int]]:
        """Return shares within the limits of their destinations. If all have limits, a destination may get several
        shares."""
        found: list[tuple[int, int]] = []
        turn = self.turn % len(self.dests)
        # A small flush rotates the destinations. A larger flush serves the destinations with the smallest limits first,
        # and the other destinations get the rest.
        order = sorted((self.dests[turn:] + self.dests[:turn])[:total], key=lambda dest: limits.get(dest, total))
        self.turn += 1
        free = any(dest not in limits for dest in self.dests)
        while total:
            for place, dest in enumerate(order):
                share = min(-(-total // (len(order) - place)), limits.get(dest, total))
                if share:
                    found.append((dest, share))
                    total -= share
            if free:
                break
        return found


class ArrowOutlet(Outlet):
    """The tuples of one record batch, for one destination or shared by several; sent immediately, never buffered.

    `flat` is the record batch. Its width counts as 1, because one element of a slice is one tuple.
    """

    __slots__ = ()

    def __init__(self, stream: int, dests: list[int], batch: pyarrow.RecordBatch, marks: list[Mark], turn: int) -> None:
        super().__init__(stream, dests, 1, turn)
        self.flat = batch
        self.marks = marks

    def __len__(self) -> int:
        size: int = self.flat.num_rows  # type: ignore[attr-defined]
        return size

    def clear(self) -> None:
        self.flat = []
        self.marks = []


class OutStream:
    """One declared output stream with its consumers."""

    def __init__(self, name: str, index: int, fields: Sequence[str], direct: bool, schema: bytes = b"") -> None:
        self.name = name
        self.index = index
        self.fields = list(fields)
        #: The serialised Arrow schema; empty without a schema.
        self.schema = schema
        #: Values per tuple in a buffer; a stream without fields has a placeholder.
        self.width = max(1, len(self.fields))
        self.direct = direct
        self.choosers: list[Any] = []
        #: Maps a destination to its outlet; the same dict in all streams that share a consumer.
        self.outlets: dict[int, Outlet] = {}
        self.shared: Outlet | None = None
        #: True if it shares its outlets with other streams of this component.
        self.mixed = False
        #: Number of tuples that have left the buffers; each copy counts.
        self.emitted = 0
        #: "field", "buffer", "fan" or "general", see Emitter._shape.
        self.shape = "general"
        #: Per consumer: key of its fields grouping -> the function that takes the tuple (see Emitter._miss).
        self.memos: list[dict[Any, Any]] = []
        #: Key of a fields grouping -> its task, for tuples that are emitted together (see turns_of).
        self.turns: dict[Any, int] = {}
        self.left = 0

    def outlet(self, task: int) -> Outlet:
        found = self.outlets.get(task)
        if found is None:
            found = self.outlets[task] = Outlet(self.index, [task], self.width, mixed=self.mixed)
        return found

    def share(self, dests: list[int], turn: int) -> None:
        """Use one buffer for all tuples; the buffer stays the same object across plans."""
        if self.shared is None:
            self.shared = Outlet(self.index, dests, self.width, turn)
        else:
            self.shared.dests = dests

    def all_outlets(self) -> Iterable[Outlet]:
        if self.shared is not None:
            yield self.shared
        yield from self.outlets.values()


def share_outlets(streams: Iterable[OutStream], tasks_of: dict[str, set[int]]) -> list[OutStream]:
    """Give streams that share a consumer, directly or indirectly, one common dict of outlets.

    Returns one stream per set: its outlets are the outlets of the whole set.
    """
    sets: list[tuple[set[int], list[OutStream]]] = []
    for stream in streams:
        tasks, members = set(tasks_of[stream.name]), [stream]
        apart = []
        for other_tasks, other_members in sets:
            if other_tasks & tasks:
                tasks |= other_tasks
                members = other_members + members
            else:
                apart.append((other_tasks, other_members))
        sets = [*apart, (tasks, members)]
    for _, members in sets:
        outlets: dict[int, Outlet] = {}
        for stream in members:
            stream.outlets, stream.mixed = outlets, len(members) > 1
    return [members[0] for _, members in sets]


#: Per tuple, the index of its task among the tasks of a grouping.
Turns = NDArray[np.uint8] | NDArray[np.int64]

_TEXTS = frozenset((str, bytes))
_BYTE_VALUES = 256
#: For each tuple, the index of its task among the tasks of a grouping.
ArrowTurns = NDArray[np.int64]


def is_small(column: Sequence[Any], text_max: int) -> bool:
    """Return whether all values are plain scalars, with at most `text_max` characters per text."""
    kinds = set(map(type, column))
    if kinds <= FIXED:
        return True
    if kinds <= _TEXTS:
        return max(map(len, column)) <= text_max
    return kinds <= PLAIN and all(type(value) in FIXED or len(value) <= text_max for value in column)


def flat_of(columns: Columns) -> list[Any]:
    """Return the values of all tuples, one after the other."""
    values, width = columns.values, len(columns.values)
    if width == 1:
        return values[0]
    flat: list[Any] = [None] * (columns.size * width)
    for place, column in enumerate(values):
        flat[place::width] = column
    return flat


def turns_of(columns: Columns, chooser: Fields, memo: dict[Any, int], memo_max: int) -> Turns:
    """Return the task of each tuple, as its index in `chooser.tasks`.

    `memo` caches the index of each key, for at most about `memo_max` keys.
    """
    indices = chooser.indices
    single = len(indices) == 1
    keys: list[Any] = columns.values[indices[0]]
    if not single:
        keys = list(zip(*[columns.values[index] for index in indices], strict=True))
    few = len(chooser.tasks) <= _BYTE_VALUES
    try:
        return _turns(keys, memo, few)
    except KeyError:
        pass
    if len(memo) >= memo_max:
        memo.clear()
    for key in dict.fromkeys(keys):
        if key not in memo:
            memo[key] = chooser.tasks.index(chooser.of_key((key,) if single else key))
    return _turns(keys, memo, few)


def _turns(keys: list[Any], memo: dict[Any, int], few: bool) -> Turns:
    found = map(memo.__getitem__, keys)
    if few:
        return np.frombuffer(bytes(found), dtype=np.uint8)
    return np.fromiter(found, dtype=np.int64, count=len(keys))


def by_task(columns: Columns, marks: list[Any] | None, turns: Turns) -> list[tuple[int, Columns, list[Any] | None]]:
    """Return the tuples of each task with their marks, in the same order; `turns` is the result of `turns_of`."""
    if (turns == turns[0]).all():
        return [(int(turns[0]), columns, marks)]
    # A stable sort of bytes is a radix sort.
    order = np.argsort(turns, kind="stable")
    ordered = turns[order]
    cuts = [0, *(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist(), len(turns)]
    places = order.tolist()
    values = [list(map(column.__getitem__, places)) for column in columns.values]
    marks = None if marks is None else list(map(marks.__getitem__, places))
    whole = Columns(values, columns.size)
    return [
        (int(ordered[low]), whole.part(low, high), None if marks is None else marks[low:high])
        for low, high in pairwise(cuts)
    ]


def copies_of(choosers: list[Chooser]) -> int:
    """Return the number of tasks that get each tuple."""
    return sum(len(chooser.tasks) if isinstance(chooser, All) else 1 for chooser in choosers)


def outlets_of(
    stream: int, batch: pa.RecordBatch, marks: list[Mark], chooser: Chooser, memo: dict[Any, int], memo_max: int
) -> list[ArrowOutlet]:
    """Return the tuples for each task of one consumer, in order; `memo` caches the tasks of keys, as in `turns_of`."""
    if isinstance(chooser, Shuffle):
        # Slices of the record batch; the first task rotates with each batch.
        return [ArrowOutlet(stream, chooser.open, batch, marks, chooser.open.index(chooser.target()))]
    if isinstance(chooser, All | Lowest):
        return [ArrowOutlet(stream, [task], batch, marks, 0) for task in chooser.targets(())]
    assert isinstance(chooser, Fields)
    turns = arrow_turns(batch, chooser, memo, memo_max)
    present = np.unique(turns).tolist()
    if len(present) == 1:
        return [ArrowOutlet(stream, [chooser.tasks[present[0]]], batch, marks, 0)]
    outlets = []
    for turn in present:
        places = np.flatnonzero(turns == turn)
        own_marks = list(map(marks.__getitem__, places.tolist()))
        outlets.append(ArrowOutlet(stream, [chooser.tasks[turn]], batch.take(arrow().array(places)), own_marks, 0))
    return outlets


def arrow_turns(batch: pa.RecordBatch, chooser: Fields, memo: dict[Any, int], memo_max: int) -> ArrowTurns:
    """Return the task of each tuple as its index in `chooser.tasks`. The rule is the same as for single tuples,
    evaluated once per key.
    """
    columns = [batch.column(index) for index in chooser.indices]
    if any(arrow().types.is_nested(column.type) for column in columns):
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        return np.array([chooser.tasks.index(chooser.of_key(row)) for row in rows], dtype=np.int64)
    codes = np.zeros(batch.num_rows, dtype=np.int64)
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        own = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        # Map the pairs of codes to consecutive numbers again, so that they stay small.
        codes = np.unique(codes * len(encoded.dictionary) + own, return_inverse=True)[1]
    _, first = np.unique(codes, return_index=True)
    firsts = [column.take(arrow().array(first)).to_pylist() for column in columns]
    keys = firsts[0] if len(columns) == 1 else list(zip(*firsts, strict=True))
    return np.array([_turn(key, len(columns) == 1, chooser, memo, memo_max) for key in keys], dtype=np.int64)[codes]


def _turn(key: Any, single: bool, chooser: Fields, memo: dict[Any, int], memo_max: int) -> int:
    found = memo.get(key)
    if found is None:
        if len(memo) >= memo_max:
            memo.clear()
        found = memo[key] = chooser.tasks.index(chooser.of_key((key,) if single else key))
    return found
