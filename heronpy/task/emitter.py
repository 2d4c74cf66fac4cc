"""The emitter: groups tuples at the sender into one flat buffer per destination (decision D1). Pure.

The usual streams (consumers with fields groupings on one field each, or one buffer for all) have a fast path, compiled
for the default stream (compiled.py); other streams take the general path. A fields grouping keeps a memo from key to
the destination's bound `extend`, so the stable hash is computed once per distinct key. Values are frozen at emit
(wire/codec.py); the size of every tuple is checked at emit, so an oversized tuple is refused there and cannot break the
link. heronpy/plan/emit_rules.py checks each tuple and chooses its receiving tasks.

Tuples from this task to one destination are sent in the order in which they were emitted. Nothing else runs while a
frame is built and sent. When the out-queue is full, `room` waits after the buffers are consistent, so a new plan may be
applied during the wait.

Only `send`, which accepts finished frames, `room`, and `bits`, the source of edges, are impure.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from heronpy.common.setting_types import InstanceSettings
from heronpy.plan.emit_rules import ArrowColumns, Columns, EmitRules
from heronpy.plan.grouping import Fields, Lowest, Shuffle
from heronpy.wire import codec

from .batches import Batches, Send
from .compiled import compile_emit
from .outlets import (
    ArrowOutlet,
    Mark,
    Outlet,
    OutStream,
    by_task,
    copies_of,
    flat_of,
    is_small,
    outlets_of,
    share_outlets,
    turns_of,
)
from .roots import PendingRoots
from .tuples import HeronTuple, InBatch

#: Text and bytes up to this number of characters are small: the number of tuples bounds a batch of them.
SMALL = 1024
_FIXED = codec.FIXED
#: Initial limit on the tuples per emit and per frame, and the seconds for which this limit holds.
START_TUPLES, START_S = 64, 1.0
#: Maximum number of full frames that the buffers of a stream hold together.
FRAMES = 8
#: The number of tuples that may be emitted when there is no limit.
UNLIMITED = sys.maxsize


class Emitter:
    """All output streams of one task.

    `tracked` is None (no acking), "spout" or "bolt". `serialize` is the topology's own serializer.
    """

    def __init__(
        self,
        component: str,
        task_id: int,
        streams: list[OutStream],
        settings: InstanceSettings,
        send: Send,
        bits: Callable[[], int],
        tracked: str | None = None,
        pending: PendingRoots | None = None,
        serialize: Callable[[Any], bytes] | None = None,
        room: Callable[[], None] | None = None,
        frame_max_bytes: int = 64 << 20,
    ) -> None:
        self.component = component
        self.task_id = task_id
        self.streams = {stream.name: stream for stream in streams}
        self.settings = settings
        self.tracked = tracked
        self.batches = Batches(
            component,
            task_id,
            streams,
            settings,
            send,
            bits,
            tracked,
            pending,
            codec.USER if serialize else codec.MSGPACK,
            frame_max_bytes,
        )
        #: The limit of tuples per frame, see FRAMES; set it before `route`.
        self.frames = FRAMES
        self.rules = EmitRules(component, settings, frame_max_bytes, serialize)
        #: If the topology has its own serializer, the serializer sees every value, so no value has a fast path.
        self.serializes = serialize is not None
        self._room = room or _plenty
        #: One stream per set of streams that share their outlets.
        self._leaders = list(streams)
        #: Number of tuples that may be emitted before a slow task can report that it is full.
        self.burst = START_TUPLES
        #: Time of the first send; for `START_S` after that, the speed of the receiving tasks is unknown.
        self._began_at = 0.0
        self.batches.limit_to(START_TUPLES)
        #: Tasks that are full; shuffles avoid them.
        self._full: set[int] = set()
        #: Ids of tracked tuples that no task receives; they are complete immediately.
        self.unrouted: list[Any] = []

    # ---- plan -------------------------------------------------------------------------------

    def route(self, choosers: dict[str, list[Any]]) -> None:
        """Set the choosers of each stream; buffered tuples are kept. Compiled functions stay valid."""
        for outlet in self.outlets():
            self.batches.flush(outlet)
        tasks_of: dict[str, set[int]] = {}
        for name, stream in self.streams.items():
            stream.choosers = choosers.get(name, [])
            for chooser in stream.choosers:
                if isinstance(chooser, Shuffle):
                    chooser.avoid(self._full)
            tasks_of[name] = {task for chooser in stream.choosers for task in chooser.tasks}
        self._leaders = share_outlets(self.streams.values(), tasks_of)
        for stream in self.streams.values():
            stream.shape = self._shape(stream)
            for memo in stream.memos:
                memo.clear()
            # Compiled functions refer to the memos, so they stay the same objects.
            stream.memos += [{} for _ in range(len(stream.choosers) - len(stream.memos))]
            stream.turns.clear()
            if stream.shape == "buffer":
                chooser = stream.choosers[0]
                dests = chooser.open if isinstance(chooser, Shuffle) else chooser.tasks[:1]
                # Different senders begin at different tasks, so that even a few tuples spread evenly.
                stream.share(list(dests), turn=self.task_id)
            stream.left = self._refill(stream)

    def heed(self, task: int, full: bool, limit: int) -> None:
        """Record whether a task is full, and limit its frames to `limit` tuples (0: no limit)."""
        (self._full.add if full else self._full.discard)(task)
        limits = self.batches.limits
        if limit:
            limits[task] = limit
        else:
            limits.pop(task, None)
        self._go_round()

    def warm(self, now: float) -> None:
        """Remove the initial limit on frame sizes `START_S` seconds after the first tuples. Called periodically."""
        if self._began_at < 0 or not self.batches.flushes:
            return
        self._began_at = self._began_at or now
        if now >= self._began_at + START_S:
            self._began_at = -1.0
            self.batches.limit_to(self.settings.batch_tuples)
            self._go_round()

    def heed_nothing(self) -> None:
        """Treat no task as full, because the information about full tasks may be outdated."""
        self._full.clear()
        self.batches.limits.clear()
        self._go_round()

    def _go_round(self) -> None:
        """Make shuffles avoid full tasks."""
        for stream in self.streams.values():
            for chooser in stream.choosers:
                if isinstance(chooser, Shuffle):
                    chooser.avoid(self._full)
            if stream.shared is not None and isinstance(stream.choosers[0], Shuffle):
                stream.shared.dests = stream.choosers[0].open
            stream.left = min(stream.left, self._refill(stream))
        limits = self.batches.limits
        self.burst = min(map(self._refill, self.streams.values()), default=0) if limits else UNLIMITED
        if self._began_at >= 0:
            self.burst = min(self.burst, START_TUPLES)

    def _shape(self, stream: OutStream) -> str:
        """Return how a stream is emitted: by one field, into one buffer, by one field to each of several consumers, or
        on the general path.

        The result depends only on the topology and not on the number of tasks, so it holds for the life of the task.
        """
        if not stream.choosers or self.serializes or not stream.fields or stream.direct:
            return "general"
        if all(isinstance(chooser, Fields) and len(chooser.indices) == 1 for chooser in stream.choosers):
            if len(stream.choosers) == 1:
                return "field"
            # Copies of a spout's tracked tuple have separate edges (see Batches.add_copies).
            return "general" if self.tracked == "spout" else "fan"
        if len(stream.choosers) != 1:
            return "general"
        chooser = stream.choosers[0]
        return "buffer" if isinstance(chooser, Shuffle | Lowest) and not stream.mixed else "general"

    def compile_emit(
        self, kind: str, special: Callable[..., Any], context: Any, immediate: Callable[[Any], None]
    ) -> Any:
        """Return the public `emit` of the task, with its default stream's fast path; None if that stream has none.

        `special` handles every unusual call; `immediate` gets ids that are acked immediately.
        """
        stream = self.streams.get("default")
        if stream is None or stream.shape == "general" or stream.mixed:
            return None
        env: dict[str, Any] = {
            "FIXED": _FIXED,
            "SMALL": SMALL,
            "special": special,
            "context": context,
            "immediate": immediate,
            "mark_of": mark_of,
            "refuse": partial(self.rules.check, stream.name, stream.fields),
            "slow": partial(self._slow_one, stream)
            if self.tracked
            else partial(self._slow_untracked, stream, immediate),
            "refill": partial(self._refill, stream),
            "flush": partial(self._flush_and_refill, stream),
        }
        indices = []
        if stream.shared is not None:
            env["extend"], env["mark_append"] = stream.shared.flat.extend, stream.shared.marks.append
        else:
            for n, chooser in enumerate(stream.choosers):
                indices.append(chooser.indices[0])
                env[f"memo{n}"], env[f"miss{n}"] = stream.memos[n], partial(self._miss, stream, n)
        return compile_emit(
            kind, tracked=self.tracked is not None, width=len(stream.fields), field_indices=indices, env=env
        )

    def _refill(self, stream: OutStream) -> int:
        """Return the number of tuples that may be emitted before the stream is flushed."""
        fan = len(stream.shared.dests) if stream.shared is not None else len(stream.outlets)
        most, limits = self.batches.limit * min(self.frames, max(1, fan)), self.batches.limits
        if not limits:
            return most
        if stream.shared is not None:
            return min(most, sum(limits.get(dest, most) for dest in stream.shared.dests))
        # Each destination may get all of the tuples.
        return min([most, *(limits[dest] for dest in stream.outlets if dest in limits)])

    def _flush_and_refill(self, stream: OutStream) -> int:
        self._flush_stream(stream)
        self._room()
        return self._refill(stream)

    def _miss(self, stream: OutStream, consumer: int, tup: Sequence[Any]) -> Any:
        """Look up a key that a consumer's memo does not contain. Returns None if the key is not plain or is too large
        to be cached.
        """
        chooser = stream.choosers[consumer]
        key = tup[chooser.indices[0]]
        kind = type(key)
        if kind not in _FIXED and ((kind is not str and kind is not bytes) or len(key) > SMALL):
            return None
        outlet = stream.outlet(chooser.target(tup))
        found: Any = outlet.flat.extend
        if outlet.kinds is not None:
            found = (found, outlet.marks.append, outlet.kinds.append)
        elif self.tracked:
            found = (found, outlet.marks.append)
        memo = stream.memos[consumer]
        if len(memo) >= self.settings.route_memo_keys:
            memo.clear()
        memo[key] = found
        return found

    def _slow_untracked(
        self, stream: OutStream, immediate: Callable[[Any], None], tup: Sequence[Any], tup_id: Any
    ) -> None:
        self._slow_one(stream, tup, None)
        if tup_id is not None:
            immediate(tup_id)

    def _slow_one(self, stream: OutStream, tup: Sequence[Any], mark: Mark) -> None:
        """Emit a tuple of a fast stream whose values need the full check."""
        if stream.shared is not None:
            outlets = [stream.shared]
        else:
            outlets = [stream.outlet(chooser.target(tup)) for chooser in stream.choosers]
        self._slow(stream, outlets, tup, mark)

    def push(self, stream: OutStream, tup: Sequence[Any], mark: Mark) -> None:
        """Emit on any stream; the compiled `emit` handles the default stream's ordinary tuples."""
        if stream.shape == "general":
            self.emit_to(stream, tup, mark, None)
            return
        self.rules.check(stream.name, stream.fields, tup)
        for value in tup:
            kind = type(value)
            if kind not in _FIXED and ((kind is not str and kind is not bytes) or len(value) > SMALL):
                self._slow_one(stream, tup, mark)
                return
        outlet = stream.shared
        if outlet is None:
            for n, chooser in enumerate(stream.choosers):
                found = stream.memos[n].get(tup[chooser.indices[0]])
                if found is None:
                    found = self._miss(stream, n, tup)
                if stream.mixed:
                    found[0](tup)
                    found[2](stream.index)
                    if self.tracked:
                        found[1](mark)
                elif self.tracked:
                    found[0](tup)
                    found[1](mark)
                else:
                    found(tup)
            stream.left -= len(stream.choosers)
        else:
            outlet.flat.extend(tup)
            if self.tracked:
                outlet.marks.append(mark)
            stream.left -= 1
        if stream.left <= 0:
            stream.left = self._flush_and_refill(stream)

    def emit_to(self, stream: OutStream, tup: Sequence[Any], mark: Mark, direct_task: int | None) -> list[int]:
        """Emit on the general path; return the tasks that get the tuple."""
        self.rules.check(stream.name, stream.fields, tup)
        if stream.shared is not None:
            self._flush_stream(stream)
        tasks = self.rules.targets(stream.name, stream.choosers, tup, direct_task)
        self._slow(stream, [stream.outlet(task) for task in tasks], tup, mark)
        if stream.shared is not None:
            # Later tuples in the shared buffer must not overtake this one.
            self._flush_stream(stream)
        return tasks

    def _slow(self, stream: OutStream, outlets: list[Outlet], tup: Sequence[Any], mark: Mark) -> None:
        """Freeze, measure and append one tuple to each outlet."""
        frozen, size = self.rules.freeze(stream.name, tup)
        if not frozen and not stream.fields:
            frozen = [None]
        if self.tracked == "spout" and mark is not None and len(outlets) != 1:
            if outlets:
                mark = self.batches.add_copies(stream, outlets, mark)
            else:
                self.unrouted.append(mark)
        stream.emitted += not outlets
        for outlet in outlets:
            outlet.flat.extend(frozen)
            if outlet.kinds is not None:
                outlet.kinds.append(stream.index)
            if self.tracked:
                outlet.marks.append(mark)
            outlet.big_bytes += size
        for outlet in outlets:
            if outlet.big_bytes >= self.settings.batch_bytes or len(outlet) >= self.settings.batch_tuples:
                self.batches.flush(outlet)
                self._room()

    # ---- many tuples at once ------------------------------------------------------------------

    def push_columns(self, stream: OutStream, columns: Columns, marks: list[Mark] | None) -> None:
        """Emit many tuples on any stream, each with a mark or all without; the effect is that of `push` for each tuple,
        in order.
        """
        low = 0
        while low < columns.size:
            # The loop may wait for a full out-queue between two parts, and a new plan may arrive during the wait.
            high = low + max(1, self._refill(stream))
            part = columns.part(low, high)
            part_marks = None if marks is None else marks[low:high]
            if self._takes_columns(stream, part):
                self._append_columns(stream, part, part_marks)
            else:
                for row, mark in zip(part.rows(), part_marks or [None] * part.size):
                    self.push(stream, row, mark)
            low = high

    def _takes_columns(self, stream: OutStream, columns: Columns) -> bool:
        """Return whether each of these tuples goes to one outlet, and no value needs the full check."""
        if len(stream.choosers) != 1 or self.serializes or not stream.fields or stream.direct:
            return False
        if stream.shared is None and not isinstance(stream.choosers[0], Fields):
            return False
        return all(is_small(column, SMALL) for column in columns.values)

    def _append_columns(self, stream: OutStream, columns: Columns, marks: list[Mark] | None) -> None:
        if stream.shared is not None:
            self._append(stream, stream.shared, columns, marks)
        else:
            chooser = stream.choosers[0]
            turns = turns_of(columns, chooser, stream.turns, self.settings.route_memo_keys)
            for turn, own, own_marks in by_task(columns, marks, turns):
                self._append(stream, stream.outlet(chooser.tasks[turn]), own, own_marks)
        stream.left -= columns.size
        if stream.left <= 0:
            stream.left = self._flush_and_refill(stream)

    def _append(self, stream: OutStream, outlet: Outlet, columns: Columns, marks: list[Mark] | None) -> None:
        outlet.flat.extend(flat_of(columns))
        if outlet.kinds is not None:
            outlet.kinds.extend([stream.index] * columns.size)
        if self.tracked:
            outlet.marks.extend(marks or [None] * columns.size)

    def push_arrow(self, stream: OutStream, columns: ArrowColumns, marks: list[Mark] | None) -> None:
        """Emit many tuples as Arrow, each with a mark or all without; see `travels_as_arrow`."""
        low, size = 0, columns.size
        while low < size:
            # The loop may wait for a full out-queue between two parts, and a new plan may arrive during the wait.
            part = columns.part(low, low + self._arrow_rows(stream, columns))
            self._send_arrow(stream, part, marks[low : low + part.size] if marks is not None else [None] * part.size)
            self._room()
            low += part.size

    def _arrow_rows(self, stream: OutStream, columns: ArrowColumns) -> int:
        """Return the number of tuples to send together: about a full frame per task, for at most `frames` tasks."""
        tasks = max((len(chooser.tasks) for chooser in stream.choosers), default=1)
        by_size: int = self.settings.batch_bytes * columns.size // (columns.batch.nbytes + 1)
        limit = max(1, min(by_size, self.settings.batch_tuples) * min(self.frames, tasks))
        # A tuple with copies has one REGISTER, which is as large as a batch.
        return limit if copies_of(stream.choosers) <= 1 else min(limit, self.settings.batch_tuples)

    def _send_arrow(self, stream: OutStream, columns: ArrowColumns, marks: list[Mark]) -> None:
        """Send some tuples, after all buffered tuples for the same tasks."""
        self._flush_stream(stream)
        batch = columns.batch
        self.rules.check_rows(stream.name, batch)
        if not stream.choosers:
            self.unrouted += [mark for mark in marks if self.tracked == "spout" and mark is not None]
            stream.emitted += batch.num_rows
            return
        copied = self.tracked == "spout" and copies_of(stream.choosers) > 1
        if copied:
            marks = self.batches.begin_copies(stream, marks)
        outlets: list[ArrowOutlet] = []
        for chooser in stream.choosers:
            # With several consumers, each needs a separate memo.
            memo = stream.turns if len(stream.choosers) == 1 else {}
            outlets += outlets_of(stream.index, batch, marks, chooser, memo, self.settings.route_memo_keys)
        self.batches.send(outlets, copied)

    # ---- flush --------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send everything that is buffered, and wait if the out-queue is full."""
        self.send_buffered()
        self._room()

    def send_buffered(self) -> None:
        """Send everything that is buffered, and never wait."""
        for outlet in self.outlets():
            if outlet.flat:
                self.batches.flush(outlet)

    def _flush_stream(self, stream: OutStream) -> None:
        for outlet in stream.all_outlets():
            if outlet.flat:
                self.batches.flush(outlet)

    def outlets(self) -> list[Outlet]:
        """Return the buffers of all streams, each once."""
        return [outlet for stream in self._leaders for outlet in stream.all_outlets()]

    def has_consumers(self) -> bool:
        """Return whether any stream is consumed."""
        return any(stream.choosers for stream in self.streams.values())

    # At usual rates a spout calls this after each call to next_tuple, and plain loops cost a third of generators.

    def dirty(self) -> bool:
        """Return whether anything is buffered."""
        for stream in self._leaders:
            if stream.shared is not None and stream.shared.flat:
                return True
            for outlet in stream.outlets.values():
                if outlet.flat:
                    return True
        return False

    def buffered(self) -> int:
        """Return the number of tuples in the buffers."""
        total = 0
        for stream in self._leaders:
            if stream.shared is not None:
                total += len(stream.shared.flat) // stream.width
            for outlet in stream.outlets.values():
                total += len(outlet.flat) // outlet.width if outlet.kinds is None else len(outlet.kinds)
        return total

    def emitted(self) -> int:
        """Return the number of tuples emitted so far on all streams, including buffered tuples."""
        total = self.buffered()
        for stream in self.streams.values():
            total += stream.emitted
        return total

    def settle(self) -> None:
        """XOR the edges of all buffered anchored tuples into the tuples they are anchored to."""
        for outlet in self.outlets():
            if outlet.marks:
                self.batches.settle(outlet)


def mark_of(anchors: Any) -> Mark:
    """Return anchors in the emitter's form: None, one tracked tuple, or a list of several."""
    if type(anchors) is HeronTuple:
        return anchors if anchors.frame.tracked else None
    if len(anchors) == 1:
        anchor = anchors[0]
        return anchor if anchor.frame.tracked else None
    tracked = [anchor for anchor in anchors if anchor.frame.tracked]
    return tracked if len(tracked) > 1 else tracked[0] if tracked else None


def marks_of(anchors: Any, size: int) -> list[Mark]:
    """Return the anchors of each of `size` tuples in the emitter's form."""
    if type(anchors) is HeronTuple:
        return [mark_of(anchors)] * size
    if isinstance(anchors, InBatch):
        return list(anchors.marks()) if anchors.frame.tracked else [None] * size
    return [None if anchor is None else mark_of(anchor) for anchor in anchors]


def _plenty() -> None:
    """Do nothing: the `room` of an out-queue that is never full."""
