"""Turns outlets into frames with payload, roots and edges. Pure.

A frame stays far below the limit of a link: a batch that turns out too large is cut in two, so no tuple
that was accepted at emit can break the link.

Only `send`, which accepts finished frames and never blocks or calls back, and `bits`, the source of edges, are impure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import Any, Protocol

import numpy as np

from heronpy.common.errors import TopologyError
from heronpy.common.setting_types import InstanceSettings
from heronpy.wire import codec
from heronpy.wire.arrow_values import encode_batch
from heronpy.wire.frames import DATA, REGISTER, Array64, Frame, derived_edges, pack16, pack32, pack64

from .outlets import ArrowOutlet, Mark, Outlet, OutStream, Traced
from .roots import PendingRoots, anchored
from .tuples import HeronTuple, InFrame, Places

_frame_of = attrgetter("frame")
_index_of = attrgetter("index")
_JUST_TUPLES = {HeronTuple}
#: Maximum size of a frame without its payload and roots.
FRAME_HEAD_BYTES = 4096
_MASK = 0xFFFFFFFFFFFFFFFF

#: send(dest_task, frame_bytes, tuples); `tuples` is 0 for a control frame
Send = Callable[[int, bytes, int], None]


class TracedCall(Protocol):
    """A call to user code that processes a traced tuple."""

    def leaving(self, outlet: Outlet) -> Traced | None:
        """Return the traced tuple in an outlet that is about to be sent during the call, or None."""


class Copy:
    """The mark of one copy of a tracked spout tuple: the tuple's number among the unsent tuples with copies."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class Batches:
    """Builds and sends the frames of one task.

    `tracked` is None (no acking), "spout" or "bolt".
    """

    def __init__(
        self,
        component: str,
        task_id: int,
        streams: list[OutStream],
        settings: InstanceSettings,
        send: Send,
        bits: Callable[[], int],
        tracked: str | None,
        pending: PendingRoots | None,
        codec_id: int,
        frame_max_bytes: int,
    ) -> None:
        self.component = component
        self.task_id = task_id
        self.streams = streams
        self.tracked = tracked
        self.pending = pending
        #: The attempt that this process writes into its frames; 0 if no checkpoints are taken.
        self.attempt = 0
        self.now = 0.0
        #: The latency mark of tuples emitted now, and that of the outlet being sent. Whether a marked outlet was sent
        #: since the mark was set. See tracing.py.
        self.origin_ns = self._origin_ns = 0
        self.marked = False
        #: The mark that each outlet gets after it was sent; 0: none.
        self.renewed_ns = 0
        #: The traced call in progress, and the traced tuple in the outlet being sent; see tracing.py.
        self.tracing: TracedCall | None = None
        self._trace: Traced | None = None
        #: With acking: whether tuples outside of any tuple tree were sent.
        self.untracked = False
        #: Maps a slow task to the maximum number of tuples in a frame for it.
        self.limits: dict[int, int] = {}
        #: Number of sends of all outlets.
        self.flushes = 0
        #: Number of tuples after which every outlet is flushed; adapts to the size of the tuples.
        self.limit: int = settings.batch_tuples
        self._limit_max: int = settings.batch_tuples
        self._batch_tuples: int = settings.batch_tuples
        self._batch_bytes: int = settings.batch_bytes
        #: Size in bytes above which a batch of tuples is cut. Acks of a batch may need a third more than its roots.
        self._cut_above = frame_max_bytes // 3
        self._frame_max = frame_max_bytes - FRAME_HEAD_BYTES
        self._send = send
        self._bits = bits
        self._codec = codec_id
        #: Ids of spout tuples whose copies are not all sent yet, and the outlets that hold copies.
        self._copied: list[Mark] = []
        self._copied_stream = 0
        self._copied_base = 0
        self._touched: list[Outlet] = []

    def limit_to(self, tuples: int) -> None:
        """Send an outlet when it has this number of tuples, or earlier if they are large."""
        self._limit_max = min(tuples, self._batch_tuples)
        self.limit = min(self.limit, self._limit_max)

    # ---- batches ------------------------------------------------------------------------------

    def flush(self, outlet: Outlet) -> None:
        """Send the tuples of an outlet, and all tuples that must be sent together with them."""
        if outlet.copies:
            self.flush_copies()
        else:
            self._flush(outlet)

    def _flush(self, outlet: Outlet) -> None:
        """Send one frame per destination and run of tuples with the same kind of tracking."""
        total = len(outlet)
        if not total:
            return
        self.flushes += 1
        self._origin_ns = outlet.origin_ns or self.origin_ns
        if self._origin_ns:
            self.marked = True
        self._trace = outlet.trace
        if self.tracing is not None:
            self._trace = self.tracing.leaving(outlet) or self._trace
        if self.tracked == "bolt":
            self.settle(outlet)
        flat, marks, kinds = outlet.flat, outlet.marks, outlet.kinds
        if kinds is None:
            self.streams[outlet.stream].emitted += total
        else:
            for kind in set(kinds):
                self.streams[kind].emitted += kinds.count(kind)
        start = 0
        for dest, size in outlet.shares(total, self.limits):
            end = start + size
            values, streams = (flat, kinds) if size == total else self._part(outlet, flat, kinds, start, end)
            if not self.tracked:
                self._send_run(outlet, dest, values, streams, size, None, start)
            else:
                self._send_runs(outlet, dest, values, streams, marks[start:end], start)
            start += size
        outlet.clear()
        if self.renewed_ns:
            outlet.origin_ns = self.renewed_ns

    def _send_runs(
        self,
        outlet: Outlet,
        dest: int,
        values: list[Any],
        kinds: list[int] | None,
        marks: list[Mark],
        start: int,
    ) -> None:
        """Send tracked tuples, untracked tuples and copies in separate frames."""
        if None not in marks and not self._copied_base:
            self._send_run(outlet, dest, values, kinds, len(marks), marks, start)
            return
        place = 0
        for kind, run in groupby(marks, key=_kind_of):
            run_marks = list(run)
            end = place + len(run_marks)
            part, part_kinds = self._part(outlet, values, kinds, place, end)
            self._send_run(outlet, dest, part, part_kinds, end - place, run_marks if kind else None, start + place)
            place = end

    def _part(
        self, outlet: Outlet, values: list[Any], kinds: list[int] | None, low: int, high: int
    ) -> tuple[list[Any], list[int] | None]:
        """Return the values and streams of the tuples from `low` to `high` - 1."""
        if kinds is None:
            return values[low * outlet.width : high * outlet.width], None
        streams = self.streams
        before = sum(streams[kind].width for kind in kinds[:low])
        part_kinds = kinds[low:high]
        return values[before : before + sum(streams[kind].width for kind in part_kinds)], part_kinds

    def _send_run(
        self,
        outlet: Outlet,
        dest: int,
        values: list[Any],
        kinds: list[int] | None,
        size: int,
        marks: list[Mark] | None,
        start: int,
    ) -> None:
        frame = self._new_frame(outlet.stream, dest, size)
        if type(outlet) is ArrowOutlet:
            payload = encode_batch(values)
            frame.codec = codec.ARROW
        else:
            payload = codec.encode(values)
        heavy = len(payload)
        if marks is not None and self.tracked == "bolt":
            self._put_roots(frame, marks)
            heavy = max(heavy, len(frame.roots) + len(frame.root_tasks))
            if heavy > self._cut_above and size == 1 and heavy != len(payload):
                raise TopologyError(
                    f"component {self.component} emitted a tuple anchored to {len(frame.roots) // 8} spout "
                    "tuples, more than a frame can contain; anchor it to fewer tuples"
                )
        if size == 1 and len(payload) + len(frame.roots) + len(frame.root_tasks) > self._frame_max:
            # Sizes are checked at emit, except for numbers of millions of digits and for anchors.
            raise TopologyError(
                f"component {self.component} emitted a tuple of {len(payload)} bytes, which, with its anchors, exceeds"
                f" a frame; the limit is {self._frame_max} (heron.stmgr.frame_max_bytes)"
            )
        if heavy > self._cut_above and size > 1:
            middle = size // 2
            for low, high in ((0, middle), (middle, size)):
                part, part_kinds = self._part(outlet, values, kinds, low, high)
                part_marks = None if marks is None else marks[low:high]
                self._send_run(outlet, dest, part, part_kinds, high - low, part_marks, start + low)
            return
        if kinds is not None:
            frame.stream = kinds[0]
            if kinds.count(kinds[0]) != size:
                frame.streams = pack16(kinds)
        if marks is not None:
            frame.tracked = True
            if self.tracked == "spout":
                self._put_spout_roots(frame, outlet, marks, start)
            else:
                frame.edge = (outlet.seed + start) & _MASK
                frame.derived_edges = True
        elif self.tracked:
            self.untracked = True
        frame.payload = payload
        # Aim at batch_bytes per frame, so that the buffers stay bounded for tuples of any size.
        limit = self._batch_bytes * size // (len(payload) + 1)
        self.limit = min(self._limit_max, max(16, limit))
        traced = self._trace
        if traced is not None and start <= traced.place < start + size:
            of_spout = marks is not None and self.tracked == "spout"
            self._send(dest, traced.seal(frame, start, of_spout), size)
            return
        self._send(dest, frame.SerializeToString(), size)

    def _new_frame(self, stream: int, dest: int, size: int) -> Any:
        # A new message each time, because a cleared message keeps the memory of all its payloads (upb's arena).
        frame = Frame()
        frame.kind = DATA
        frame.source_task = self.task_id
        frame.dest_task = dest
        frame.stream = stream
        frame.count = size
        frame.codec = self._codec
        if self.attempt:
            frame.attempt = self.attempt
        if self._origin_ns:
            frame.origin_ns = self._origin_ns
        return frame

    # ---- tracked spout tuples with several copies -----------------------------------------------

    def add_copies(self, stream: OutStream, outlets: list[Outlet], mark: Mark) -> Copy:
        """Return the marks of a tracked spout tuple, for each outlet that gets a copy of it."""
        if self._copied and (self._copied_stream != stream.index or len(self._copied) >= self._limit_max):
            self.flush_copies()
        self._copied_stream = stream.index
        self._copied.append(mark)
        for outlet in outlets:
            if not outlet.copies:
                outlet.copies = True
                self._touched.append(outlet)
        return Copy(len(self._copied) - 1)

    def begin_copies(self, stream: OutStream, marks: list[Mark]) -> list[Mark]:
        """Return the marks of at most `batch_tuples` tuples with several copies; call `send` before adding more."""
        self.flush_copies()
        return [None if mark is None else self.add_copies(stream, [], mark) for mark in marks]

    def send(self, outlets: list[ArrowOutlet], copied: bool) -> None:
        """Send these outlets; `copied` means that their marks come from `begin_copies`."""
        if copied and self._copied:
            self._touched += outlets
            self.flush_copies()
            return
        for outlet in outlets:
            self.flush(outlet)

    def flush_copies(self) -> None:
        """Send all outlets with copies, after a REGISTER of their roots.

        The acker must have the XOR of all copies of a tuple before the first copy can be acked, or a quick
        ack would complete the tree while other copies are still in flight.
        """
        if not self._copied or self.pending is None:
            return
        copied, self._copied = self._copied, []
        touched, self._touched = self._touched, []
        self._copied_base = self.pending.add(copied, self.now, self._copied_stream)
        totals = np.zeros(len(copied), dtype=np.uint64)
        for outlet in touched:
            outlet.copies = False
            outlet.seed = self._bits() or 1
            places = [place for place, mark in enumerate(outlet.marks) if type(mark) is Copy]
            edges = derived_edges(outlet.seed, len(outlet.marks))[places]
            np.bitwise_xor.at(totals, [outlet.marks[place].number for place in places], edges)
        register = Frame(
            kind=REGISTER, source_task=self.task_id, dest_task=self.task_id, count=len(copied),
            root_base=self._copied_base, root_task=self.task_id, values=pack64(totals),
        )  # fmt: skip
        self._send(self.task_id, register.SerializeToString(), 0)
        for outlet in touched:
            self._flush(outlet)

    def _put_spout_roots(self, frame: Any, outlet: Outlet, marks: list[Mark], start: int) -> None:
        frame.root_task = self.task_id
        if type(marks[0]) is Copy:
            frame.registered = frame.derived_edges = True
            frame.edge = (outlet.seed + start) & _MASK
            roots = [self._copied_base + copy.number for copy in marks]
            frame.root_base = roots[0]
            if roots[-1] - roots[0] != len(roots) - 1:
                frame.roots = pack64(roots)
        elif self.pending is not None:
            frame.root_base = self.pending.add(marks, self.now, frame.stream)
            frame.edge = self._bits() or 1

    # ---- anchors ------------------------------------------------------------------------------

    def settle(self, outlet: Outlet) -> None:
        """XOR the edges of the buffered anchored tuples into the tuples they are anchored to."""
        marks, first = outlet.marks, outlet.settled
        if first == len(marks):
            return
        if not outlet.seed:
            outlet.seed = self._bits() or 1
        edges = derived_edges(outlet.seed + first, len(marks) - first)
        outlet.settled = len(marks)
        fresh = marks[first:] if first else marks
        frames = _frames_of_single_roots(fresh)
        if frames is None:
            _settle_many(fresh, edges)
            return
        place = 0
        for frame, indices in _runs(fresh, frames):
            np.bitwise_xor.at(_touch(frame).values_, indices, edges[place : place + len(indices)])
            place += len(indices)

    def _put_roots(self, frame: Any, marks: list[Mark]) -> None:
        """Add the union of the anchors' roots for each tuple."""
        frames = _frames_of_single_roots(marks)
        if frames is not None:
            roots, tasks = _single_roots(marks, frames)
        else:
            found = anchored(marks)
            frame.root_counts = pack32(found.counts(len(marks)).astype(np.uint32))
            roots, tasks = found.roots, found.tasks
        frame.roots = pack64(roots)
        if len(tasks) and (tasks == tasks[0]).all():
            frame.root_task = int(tasks[0])
        else:
            frame.root_tasks = pack32(tasks)


def _kind_of(mark: Mark) -> int:
    """Return the kind of tracking: untracked, tracked, or one of several copies."""
    return 0 if mark is None else 2 if type(mark) is Copy else 1


def _frames_of_single_roots(marks: list[Mark]) -> set[InFrame] | None:
    """Return the frames of the anchors, if each tuple is anchored to exactly one tuple, which has exactly one root."""
    if set(map(type, marks)) != _JUST_TUPLES:
        return None
    frames: set[InFrame] = set(map(_frame_of, marks))
    return None if any([frame.many_roots for frame in frames]) else frames


def _runs(marks: list[HeronTuple], frames: set[InFrame]) -> Iterator[tuple[InFrame, Places]]:
    """Yield runs of tuples of the same frame: the frame, and the tuples' places in it."""
    if len(frames) == 1:
        yield marks[0].frame, np.fromiter(map(_index_of, marks), dtype=np.int64, count=len(marks))
        return
    for frame, run in groupby(marks, key=_frame_of):
        yield frame, np.array([anchor.index for anchor in run], dtype=np.int64)


def _touch(frame: InFrame) -> Any:
    frame.unpack()
    frame.touched = True
    return frame


def _settle_many(marks: list[Mark], edges: Array64) -> None:
    """XOR the edge of each tuple into its anchors; for each root, exactly one anchor gets the edge.

    The tuple's own ack will XOR its edge once into every root, so the acks of its anchors must do so
    once, too; anchors that share a root would cancel each other out.
    """
    found = anchored(marks)
    for frame, rows in found.by_frame():
        np.bitwise_xor.at(_touch(frame).values_, found.places[rows], edges[found.owners[rows]])


def _single_roots(marks: list[HeronTuple], frames: set[InFrame]) -> tuple[Array64, Any]:
    """Return the roots of tuples that have one anchor with one root, and the spout tasks of the roots."""
    roots, tasks = [], []
    for frame, indices in _runs(marks, frames):
        frame.unpack()
        roots.append(frame.roots[indices])
        tasks.append(frame.root_tasks[indices])
    return np.concatenate(roots), np.concatenate(tasks)
