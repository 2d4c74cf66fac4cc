"""Emit: groups tuples at the sender into one flat buffer per (stream, destination) (data-plane.md).

The usual streams (one consumer, fields grouping on one field, shuffle, or a single destination) get
a compiled `push` closure with everything bound; all else takes the general path. A fields grouping
keeps a memo from key to the destination's bound `extend`, so the stable hash is paid once per
distinct key. Values are frozen at emit (wire/codec.py); the size of every tuple is checked at emit,
so one that is too large is refused there and never harms the link (H35).

Pure but for `send`, which takes finished frames, and `bits`, the source of edges.

Invariants: in every outlet `len(flat) == width * tuples`, and `marks` (ids of a tracked spout,
anchors of a tracked bolt) has one entry per tuple. Tuples from this task to one destination leave in
the order of their emits: a stream is flushed before another stream that shares a consumer is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np

from heronpy.common.errors import TopologyError
from heronpy.plan.grouping import Direct, Fields, Lowest, Shuffle
from heronpy.wire import codec
from heronpy.wire.frames import DATA, REGISTER, Array64, Frame, derived_edges, pack32, pack64

from .compiled import compile_emit
from .pending import PendingRoots
from .tuples import HeronTuple, InFrame

#: Text and bytes up to this many characters are small: a batch of them is bounded by its tuple count.
SMALL = 1024
_FIXED = codec.FIXED
_frame_of = attrgetter("frame")

#: send(dest_task, frame_bytes, tuples)
Send = Callable[[int, bytes, int], None]
Mark = Any


class Outlet:
    """A buffer of tuples of one stream for one destination, or for several that share it (shuffle)."""

    __slots__ = ("stream", "dests", "width", "flat", "marks", "big_bytes", "seed", "settled", "turn")

    def __init__(self, stream: int, dests: list[int], width: int) -> None:
        self.stream = stream
        self.dests = dests
        self.width = width
        self.flat: list[Any] = []
        self.marks: list[Mark] = []
        self.big_bytes = 0
        #: Edges of anchored tuples are splitmix64(seed + position); drawn when the first one comes.
        self.seed = 0
        self.settled = 0
        self.turn = 0

    def __len__(self) -> int:
        return len(self.flat) // self.width


class OutStream:
    """One declared output stream with its consumers."""

    def __init__(self, name: str, index: int, fields: Sequence[str], direct: bool) -> None:
        self.name = name
        self.index = index
        self.fields = list(fields)
        self.width = max(1, len(self.fields))
        self.direct = direct
        self.choosers: list[Any] = []
        self.outlets: dict[int, Outlet] = {}
        self.shared: Outlet | None = None
        #: Shares a consumer with another stream of this component: order across streams matters.
        self.ordered = False
        self.emitted = 0
        #: "field", "buffer" or "general", see Emitter._shape.
        self.shape = "general"
        #: Key of a fields grouping -> the bound `extend` (and `append` for marks) of its outlet.
        self.memo: dict[Any, Any] = {}
        self.left = 0

    def outlet(self, task: int) -> Outlet:
        found = self.outlets.get(task)
        if found is None:
            found = self.outlets[task] = Outlet(self.index, [task], self.width)
        return found

    def share(self, dests: list[int]) -> None:
        """One buffer for all tuples; it stays the same object over plans."""
        if self.shared is None:
            self.shared = Outlet(self.index, dests, self.width)
        else:
            self.shared.dests = dests

    def all_outlets(self) -> Iterable[Outlet]:
        if self.shared is not None:
            yield self.shared
        yield from self.outlets.values()

    def buffered(self) -> int:
        return sum(map(len, self.all_outlets()))


class Emitter:
    """All output streams of one task.

    `tracked` is None (no acking), "spout" or "bolt". `serialize` is the topology's own serializer.
    """

    def __init__(
        self,
        component: str,
        task_id: int,
        streams: list[OutStream],
        settings: Any,
        send: Send,
        bits: Callable[[], int],
        tracked: str | None = None,
        pending: PendingRoots | None = None,
        serialize: Callable[[Any], bytes] | None = None,
    ) -> None:
        self.component = component
        self.task_id = task_id
        self.streams = {stream.name: stream for stream in streams}
        self.settings = settings
        self.tracked = tracked
        self.pending = pending
        self.now = 0.0
        self._send = send
        self._bits = bits
        self._serialize = serialize
        self._codec = codec.USER if serialize else codec.MSGPACK
        self._frame = Frame()
        self._last_ordered: OutStream | None = None
        #: Flush every outlet after this many tuples; adapts to the size of the tuples.
        self._limit = settings.batch_tuples
        #: Ids of tracked tuples that no task takes: complete at once.
        self.unrouted: list[Any] = []

    # ---- plan -------------------------------------------------------------------------------

    def route(self, choosers: dict[str, list[Any]]) -> None:
        """Take (new) choosers per stream and compile the streams again; nothing buffered is lost."""
        self.flush()
        tasks_of: dict[str, set[int]] = {}
        for name, stream in self.streams.items():
            stream.choosers = choosers.get(name, [])
            stream.outlets.clear()
            tasks_of[name] = {task for chooser in stream.choosers for task in chooser.tasks}
        for name, stream in self.streams.items():
            others = (tasks for other, tasks in tasks_of.items() if other != name)
            stream.ordered = any(tasks & tasks_of[name] for tasks in others)
        for stream in self.streams.values():
            stream.shape = self._shape(stream)
            stream.memo.clear()
            if stream.shape == "buffer":
                chooser = stream.choosers[0]
                dests = chooser.tasks if isinstance(chooser, Shuffle) else chooser.tasks[:1]
                stream.share(list(dests))
            stream.left = self._refill(stream)
        self._last_ordered = None

    def _shape(self, stream: OutStream) -> str:
        """How a stream is emitted: by one field, into one buffer, or by the general path.

        It depends on the topology only, not on numbers of tasks, so it holds for the life of the task.
        """
        if len(stream.choosers) != 1 or stream.ordered or self._serialize or not stream.fields or stream.direct:
            return "general"
        chooser = stream.choosers[0]
        if isinstance(chooser, Fields):
            return "field" if len(chooser.indices) == 1 else "general"
        return "buffer" if isinstance(chooser, Shuffle | Lowest) else "general"

    def compile_emit(self, kind: str, special: Callable[..., Any], context: Any, immediate: Callable[[Any], None]) -> Any:
        """The public `emit` of the task, with its default stream's fast path; None when it has none.

        `special` takes every call that is out of the ordinary; `immediate` gets ids that are acked at once.
        """
        stream = self.streams.get("default")
        if stream is None or self._shape(stream) == "general":
            return None
        env: dict[str, Any] = {
            "FIXED": _FIXED,
            "SMALL": SMALL,
            "special": special,
            "context": context,
            "immediate": immediate,
            "mark_of": mark_of,
            "wrong_width": partial(self._wrong_width, stream),
            "slow": partial(self._slow_one, stream),
            "refill": partial(self._refill, stream),
            "flush": partial(self._flush_and_refill, stream),
        }
        index = None
        if stream.shared is not None:
            env["extend"], env["mark_append"] = stream.shared.flat.extend, stream.shared.marks.append
        else:
            index = stream.choosers[0].indices[0]
            env["memo"], env["miss"] = stream.memo, partial(self._miss, stream)
        return compile_emit(
            kind, tracked=self.tracked is not None, width=len(stream.fields), field_index=index, env=env
        )

    def _refill(self, stream: OutStream) -> int:
        """Tuples that may be emitted before the stream is flushed."""
        fan = len(stream.shared.dests) if stream.shared is not None else len(stream.outlets)
        return self._limit * min(8, max(1, fan))

    def _flush_and_refill(self, stream: OutStream) -> int:
        self._flush_stream(stream)
        return self._refill(stream)

    def _miss(self, stream: OutStream, tup: Sequence[Any]) -> Any:
        """A key that the memo does not hold; None when it is not plain or too large to be remembered."""
        self._check_sequence(stream, tup)
        chooser = stream.choosers[0]
        key = tup[chooser.indices[0]]
        kind = type(key)
        if kind not in _FIXED and (kind is not str and kind is not bytes or len(key) > SMALL):
            return None
        outlet = stream.outlet(chooser.target(tup))
        found = (outlet.flat.extend, outlet.marks.append) if self.tracked else outlet.flat.extend
        memo = stream.memo
        if len(memo) >= self.settings.route_memo_keys:
            memo.clear()
        memo[key] = found
        return found

    def _slow_one(self, stream: OutStream, tup: Sequence[Any], mark: Mark) -> None:
        """A tuple of a fast stream whose values need a closer look."""
        self._check_sequence(stream, tup)
        outlet = stream.shared or stream.outlet(stream.choosers[0].target(tup))
        self._slow(stream, [outlet], tup, mark)

    def _check_sequence(self, stream: OutStream, tup: Any) -> None:
        if isinstance(tup, str | bytes | dict | set):
            raise TopologyError(
                f"component {self.component} emitted a {type(tup).__name__} on stream {stream.name!r}; "
                "emit a list of values, such as [value]"
            )

    def push(self, stream: OutStream, tup: Sequence[Any], mark: Mark) -> None:
        """Emit on any stream; the compiled `emit` takes the default stream's ordinary tuples."""
        if len(stream.choosers) != 1 or stream.shape == "general":
            self.emit_to(stream, tup, mark, None)
            return
        if len(tup) != stream.width:
            raise self._wrong_width(stream, tup)
        for value in tup:
            kind = type(value)
            if kind not in _FIXED and (kind is not str and kind is not bytes or len(value) > SMALL):
                self._slow_one(stream, tup, mark)
                return
        outlet = stream.shared
        if outlet is None:
            chooser = stream.choosers[0]
            try:
                found = stream.memo[tup[chooser.indices[0]]]
            except KeyError:
                found = self._miss(stream, tup)
            if self.tracked:
                found[0](tup)
                found[1](mark)
            else:
                found(tup)
        else:
            outlet.flat.extend(tup)
            if self.tracked:
                outlet.marks.append(mark)
        stream.left -= 1
        if stream.left <= 0:
            stream.left = self._flush_and_refill(stream)

    def emit_to(self, stream: OutStream, tup: Sequence[Any], mark: Mark, direct_task: int | None) -> list[int]:
        """The general path; returns the tasks that get the tuple."""
        self._check_sequence(stream, tup)
        if len(tup) != len(stream.fields):
            raise self._wrong_width(stream, tup)
        if stream.ordered and self._last_ordered is not stream:
            if self._last_ordered is not None:
                self._flush_stream(self._last_ordered)
            self._last_ordered = stream
        if stream.shared is not None and len(stream.shared):
            self._flush_stream(stream)
        tasks: list[int] = []
        for chooser in stream.choosers:
            if isinstance(chooser, Direct):
                tasks.extend(self._direct(stream, chooser, direct_task))
            elif direct_task is None:
                tasks.extend(chooser.targets(tup))
        if direct_task is not None and not tasks:
            raise TopologyError(
                f"component {self.component} emitted to task {direct_task} on stream {stream.name!r}, "
                "which no consumer takes by direct grouping; declare the input with Grouping.DIRECT"
            )
        self._slow(stream, [stream.outlet(task) for task in tasks], tup, mark)
        return tasks

    def _direct(self, stream: OutStream, chooser: Any, direct_task: int | None) -> list[int]:
        if direct_task is None:
            raise TopologyError(
                f"component {self.component} emitted on direct stream {stream.name!r} without a task; "
                "pass direct_task="
            )
        return [direct_task] if direct_task in chooser.tasks else []

    def _slow(self, stream: OutStream, outlets: list[Outlet], tup: Sequence[Any], mark: Mark) -> None:
        """Freeze, measure and append one tuple to each outlet."""
        if self._serialize is not None:
            frozen = [self._serialize(value) for value in tup]
        else:
            frozen = [codec.freeze(value, self.settings.allow_pickle) for value in tup]
        size = sum(map(codec.size_of, frozen))
        if size > self.settings.tuple_max_bytes:
            raise TopologyError(
                f"component {self.component} emitted a tuple of {size} bytes on stream {stream.name!r}; the limit "
                f"is {self.settings.tuple_max_bytes} (heron.instance.tuple_max_bytes)"
            )
        if not frozen and not stream.fields:
            frozen = [None]
        if self.tracked == "spout" and mark is not None and len(outlets) != 1:
            self._push_group(stream, outlets, frozen, mark)
            return
        stream.emitted += not outlets
        if not outlets and self.tracked == "spout" and mark is not None:
            self.unrouted.append(mark)
        for outlet in outlets:
            outlet.flat.extend(frozen)
            if self.tracked:
                outlet.marks.append(mark)
            outlet.big_bytes += size
            if outlet.big_bytes >= self.settings.batch_bytes or len(outlet) >= self.settings.batch_tuples:
                self.flush_outlet(stream, outlet)

    # ---- tracked spout tuples with several copies -----------------------------------------------

    def _push_group(self, stream: OutStream, outlets: list[Outlet], frozen: list[Any], mark: Mark) -> None:
        """A tracked tuple with several copies (or none) is sent at once, behind its REGISTER.

        The acker must know the XOR of all copies before the first copy can be acked, or a quick ack
        would complete the tree while other copies are still on their way.
        """
        assert self.pending is not None
        if not outlets:
            stream.emitted += 1
            self.unrouted.append(mark)
            return
        for outlet in outlets:
            self.flush_outlet(stream, outlet)
        base = self.pending.add([mark], self.now, stream.index)
        edges = [self._bits() or 1 for _ in outlets]
        total = 0
        for edge in edges:
            total ^= edge
        if not total:
            edges[0] ^= 1
            total = 1
        register = Frame(
            kind=REGISTER, source_task=self.task_id, dest_task=self.task_id, count=1, root_base=base,
            root_task=self.task_id, edge=total,
        )  # fmt: skip
        self._send(self.task_id, register.SerializeToString(), 0)
        payload = codec.encode(frozen)
        stream.emitted += 1
        for outlet, edge in zip(outlets, edges, strict=True):
            frame = self._new_frame(stream.index, outlet.dests[0], 1)
            frame.tracked = frame.registered = True
            frame.root_base, frame.root_task, frame.edge = base, self.task_id, edge
            frame.payload = payload
            self._send(outlet.dests[0], frame.SerializeToString(), 1)

    # ---- flush --------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send everything that is buffered."""
        for stream in self.streams.values():
            self._flush_stream(stream)

    def _flush_stream(self, stream: OutStream) -> None:
        shared = stream.shared
        if shared is not None and shared.flat:
            self.flush_outlet(stream, shared)
        for outlet in stream.outlets.values():
            if outlet.flat:
                self.flush_outlet(stream, outlet)

    def dirty(self) -> bool:
        """Is anything buffered?"""
        for stream in self.streams.values():
            if stream.shared is not None and stream.shared.flat:
                return True
            for outlet in stream.outlets.values():
                if outlet.flat:
                    return True
        return False

    def emitted(self) -> int:
        """Tuples emitted so far on all streams, buffered ones included."""
        return sum(s.emitted + s.buffered() for s in self.streams.values())

    def flush_outlet(self, stream: OutStream, outlet: Outlet) -> None:
        """Send what an outlet holds: one frame per destination (and per run of tracked tuples)."""
        total = len(outlet)
        if not total:
            return
        stream.emitted += total
        if self.tracked == "bolt":
            self._settle_outlet(outlet)
        flat, marks, width = outlet.flat, outlet.marks, outlet.width
        dests = outlet.dests
        start = 0
        for dest, size in _shares(total, dests, outlet):
            values = flat if size == total else flat[start * width : (start + size) * width]
            if not self.tracked:
                self._send_run(outlet, dest, values, size, None, start)
            else:
                self._send_runs(outlet, dest, values, marks[start : start + size], start)
            start += size
        flat.clear()
        marks.clear()
        outlet.big_bytes = outlet.seed = outlet.settled = 0

    def _send_runs(self, outlet: Outlet, dest: int, values: list[Any], marks: list[Mark], start: int) -> None:
        """Tracked and untracked tuples go in frames of their own."""
        if None not in marks:
            self._send_run(outlet, dest, values, len(marks), marks, start)
            return
        width, place = outlet.width, 0
        for untracked, run in groupby(marks, key=_is_none):
            run_marks = list(run)
            size = len(run_marks)
            part = values[place * width : (place + size) * width]
            self._send_run(outlet, dest, part, size, None if untracked else run_marks, start + place)
            place += size

    def _new_frame(self, stream: int, dest: int, size: int) -> Any:
        frame = self._frame
        frame.Clear()
        frame.kind = DATA
        frame.source_task = self.task_id
        frame.dest_task = dest
        frame.stream = stream
        frame.count = size
        frame.codec = self._codec
        return frame

    def _send_run(
        self, outlet: Outlet, dest: int, values: list[Any], size: int, marks: list[Mark] | None, start: int
    ) -> None:
        payload = codec.encode(values)
        frame = self._new_frame(outlet.stream, dest, size)
        if marks is not None:
            frame.tracked = True
            if self.tracked == "spout":
                assert self.pending is not None
                frame.root_base = self.pending.add(marks, self.now, outlet.stream)
                frame.root_task = self.task_id
                frame.edge = self._bits() or 1
            else:
                frame.edge = (outlet.seed + start) & 0xFFFFFFFFFFFFFFFF
                frame.derived_edges = True
                self._put_roots(frame, marks)
        frame.payload = payload
        # Aim at batch_bytes per frame, so that the buffers stay bounded whatever the tuples weigh.
        limit = self.settings.batch_bytes * size // (len(payload) + 1)
        self._limit = max(16, min(self.settings.batch_tuples, limit))
        self._send(dest, frame.SerializeToString(), size)

    # ---- anchors ------------------------------------------------------------------------------

    def settle(self) -> None:
        """XOR the edges of all buffered anchored tuples into the tuples they are anchored to."""
        for stream in self.streams.values():
            for outlet in stream.all_outlets():
                if outlet.marks:
                    self._settle_outlet(outlet)

    def _settle_outlet(self, outlet: Outlet) -> None:
        marks, first = outlet.marks, outlet.settled
        if first == len(marks):
            return
        if not outlet.seed:
            outlet.seed = self._bits() or 1
        edges = derived_edges(outlet.seed + first, len(marks) - first)
        outlet.settled = len(marks)
        fresh = marks[first:] if first else marks
        if any(type(mark) is not HeronTuple for mark in fresh):
            for mark, edge in zip(fresh, edges, strict=True):
                for anchor in _anchors(mark):
                    _touch(anchor.frame).values_[anchor.index] ^= edge
            return
        place = 0
        for frame, run in groupby(fresh, key=_frame_of):
            indices = [anchor.index for anchor in run]
            np.bitwise_xor.at(_touch(frame).values_, indices, edges[place : place + len(indices)])
            place += len(indices)

    def _put_roots(self, frame: Any, marks: list[Mark]) -> None:
        """The union of the anchors' roots of each tuple."""
        if all(type(mark) is HeronTuple for mark in marks) and all(
            f.envelope is not None and not f.envelope.root_counts for f in {id(m.frame): m.frame for m in marks}.values()
        ):
            roots, tasks = _single_roots(marks)
        else:
            pairs = [sorted({pair for anchor in _anchors(mark) for pair in anchor.frame.roots_at(anchor.index)}) for mark in marks]
            frame.root_counts = pack32([len(p) for p in pairs])
            tasks = np.array([task for p in pairs for task, _ in p], dtype=np.uint32)
            roots = np.array([root for p in pairs for _, root in p], dtype=np.uint64)
        frame.roots = pack64(roots)
        if len(tasks) and (tasks == tasks[0]).all():
            frame.root_task = int(tasks[0])
        else:
            frame.root_tasks = pack32(tasks)

    def _wrong_width(self, stream: OutStream, tup: Sequence[Any]) -> TopologyError:
        return TopologyError(
            f"component {self.component} emitted {len(tup)} values on stream {stream.name!r}, which declares "
            f"{len(stream.fields)}: {', '.join(stream.fields) or '(none)'}"
        )


def mark_of(anchors: Any) -> Mark:
    """Anchors as the emitter keeps them: None, one tracked tuple, or a list of several."""
    if type(anchors) is HeronTuple:
        return anchors if anchors.frame.tracked else None
    if len(anchors) == 1:
        anchor = anchors[0]
        return anchor if anchor.frame.tracked else None
    tracked = [anchor for anchor in anchors if anchor.frame.tracked]
    return tracked if len(tracked) > 1 else tracked[0] if tracked else None


def _is_none(mark: Mark) -> bool:
    return mark is None


def _anchors(mark: Mark) -> Sequence[HeronTuple]:
    if mark is None:
        return ()
    return (mark,) if type(mark) is HeronTuple else mark


def _touch(frame: InFrame) -> Any:
    frame.unpack()
    frame.touched = True
    return frame


def _single_roots(marks: list[HeronTuple]) -> tuple[Array64, Any]:
    """Roots and their tasks of tuples with one anchor that has one root."""
    roots, tasks = [], []
    for frame, run in groupby(marks, key=_frame_of):
        indices = [anchor.index for anchor in run]
        frame.unpack()
        roots.append(frame.roots[indices])
        tasks.append(frame.root_tasks[indices])
    return np.concatenate(roots), np.concatenate(tasks)


def _shares(total: int, dests: list[int], outlet: Outlet) -> list[tuple[int, int]]:
    """Cut `total` tuples into contiguous shares, one per destination, that differ by one at most.

    The destination that comes first moves on with each flush, so that small flushes spread evenly.
    """
    count = len(dests)
    if count == 1:
        return [(dests[0], total)]
    share, rest = divmod(total, count)
    turn = outlet.turn
    outlet.turn = (turn + (rest or 0)) % count
    shares = []
    for i in range(count if share else rest):
        shares.append((dests[(turn + i) % count], share + (1 if i < rest else 0)))
    return shares
