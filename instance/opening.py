"""From a frame to its tuples, and what happens to those that cannot be read.

A value that cannot be decoded costs its own tuple only: the frame is decoded again value by value, and the
tuple keeps its place in it with DamagedValues, and goes to the dead letters when its turn comes. A frame
that cannot be split into values is given up as a whole: its tuples are counted and, at least once, acked,
because the same bytes would come again. A frame of a task that the plan does not have yet waits; one that
cannot wait, or has waited in vain, is counted and, at least once, failed, because it can be read when it is
sent again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from heronpy.common.errors import WireError
from heronpy.plan.emit_rules import declared
from heronpy.proto import frame_pb2, plan_pb2
from heronpy.wire import codec
from heronpy.wire.arrow_values import decode_batch, flat_values
from heronpy.wire.frames import ACK, BARRIER, COUNT_MAX, DATA, FAIL, unpack16

from .acks import BoltAcks
from .in_queue import EarlyFrames, Entry, InQueue, Sized
from .progress import Progress
from .routing import arrow_inputs, schemas_of
from .tuples import Arrived, HeronTuple, InBatch, InFrame, Part, make_mixed_tuples, make_tuples, mark_damaged, parts_of

if TYPE_CHECKING:
    import pyarrow

log = logging.getLogger("heron.instance")

#: Name and fields of a stream.
Schema = tuple[str, list[str]]


class Opened(NamedTuple):
    """The content of a frame: its values one after the other, and how they belong together."""

    flat: list[Any]
    frame: InFrame
    #: The streams of its source, by number; that of the frame, and that of each tuple when they differ.
    streams: list[Schema]
    stream: int
    kinds: list[int] | None


class FrameOpener:
    """Opens the frames of one bolt task, for its thread."""

    def __init__(
        self,
        acks: BoltAcks,
        queue: InQueue,
        progress: Progress,
        count: Callable[[str, str, float], None],
        report_exception: Callable[[Exception], None],
        watch_decoding: Callable[[str, str, int], codec.Watch | None],
        *,
        may_wait: bool,
        deserialize: Callable[[bytes], Any] | None,
        allow_pickle: bool,
    ) -> None:
        self._acks = acks
        self._queue = queue
        self._progress = progress
        self._count = count
        self._report_exception = report_exception
        self._watch_decoding = watch_decoding
        self._may_wait = may_wait
        self._decode = codec.decoder(deserialize, allow_pickle)
        self._salvage = codec.salvager(deserialize, allow_pickle)
        self.early_frames = EarlyFrames()
        self._components: dict[int, str] = {}
        self._schemas: dict[str, list[Schema]] = {}
        #: Component and stream to the serialised Arrow schema.
        self._arrow: dict[str, dict[str, bytes]] = {}
        #: The frame that was opened last may hold damaged tuples.
        self.damaged = False

    def take_plan(self, plan: plan_pb2.PhysicalPlan, components: dict[int, str]) -> list[Sized]:
        """Read frames by a new plan; returns those that were waiting for it."""
        self._schemas = schemas_of(plan.topology)
        self._arrow = arrow_inputs(plan.topology)
        # Frames of a task that a rescale removed may still be in flight.
        self._components.update(components)
        return self.early_frames.take_known(self._components)

    def withholds(self, entry: Entry, now: float) -> bool:
        """Whether an open frame of the queue cannot be read yet: it waits here, or is given up if there is no room."""
        frame, size = entry.frame, entry.size
        if frame.source_task in self._components or not self._may_wait:
            return False
        self._queue.put_aside(entry)
        if not self.early_frames.hold(frame, size, now):
            self._lose([(frame, size)], "there is no room for more frames that wait for the plan with their source")
        return True

    def open(self, frame: frame_pb2.Frame, now: float) -> list[HeronTuple]:
        """The tuples of a frame that are still to be processed; any error for a frame that cannot be opened."""
        if frame.codec == codec.ARROW:
            batch, inner, fields = self._read_arrow(frame, now)
            tuples = make_tuples(flat_values(batch), len(fields), inner)
            return tuples[frame.skip :] if frame.skip else tuples
        flat, inner, streams, stream, kinds = self._read(frame, now)
        if kinds is None:
            tuples = make_tuples(flat, len(streams[stream][1]), inner)
        else:
            tuples = make_mixed_tuples(flat, [len(streams[kind][1]) for kind in kinds], inner)
        if self.damaged:
            mark_damaged(tuples)
        return tuples[frame.skip :] if frame.skip else tuples

    def open_batches(self, frame: frame_pb2.Frame, now: float) -> list[Part]:
        """Like `open`, for a bolt that takes batches."""
        if frame.codec == codec.ARROW:
            return self._open_arrow(frame, now)
        flat, inner, streams, stream, kinds = self._read(frame, now)
        kinds = [stream] if kinds is None else kinds
        parts = parts_of(flat, inner, streams, kinds, frame.skip, self.damaged)
        schemas = self._arrow.get(inner.component)
        if schemas:
            for part in parts:
                if isinstance(part, InBatch) and part.stream in schemas:
                    part.schema = declared(schemas[part.stream])
        return parts

    def _open_arrow(self, frame: frame_pb2.Frame, now: float) -> list[Part]:
        batch, inner, fields = self._read_arrow(frame, now)
        if frame.skip >= frame.count:
            return []
        numbers = range(frame.skip, frame.count)
        return [InBatch(inner, inner.stream, fields, None, numbers, arrow=batch.slice(frame.skip))]

    def _read_arrow(self, frame: frame_pb2.Frame, now: float) -> tuple[pyarrow.RecordBatch, InFrame, list[str]]:
        component = self._components.get(frame.source_task, "")
        streams = self._schemas.get(component, [])
        name, fields = streams[frame.stream] if frame.stream < len(streams) else ("", [])
        schema = self._arrow.get(component, {}).get(name)
        if schema is None or frame.streams:
            raise WireError(f"frame of task {frame.source_task} has Arrow values of stream number {frame.stream}")
        self.damaged = False
        batch = decode_batch(frame.payload, declared(schema), frame.count)
        inner = InFrame(component, name, frame.source_task, frame.count, now)
        inner.origin_ns = frame.origin_ns
        if frame.trace:
            inner.trace = Arrived(frame, f"{component}/{name}")
        if frame.tracked and self._acks.acking:
            inner.track(frame)
        return batch, inner, fields

    def _read(self, frame: frame_pb2.Frame, now: float) -> Opened:
        component = self._components.get(frame.source_task, "")
        streams = self._schemas.get(component, [])
        kinds = unpack16(frame.streams) if frame.streams else None
        if (frame.stream if kinds is None else max(kinds)) >= len(streams):
            raise WireError(f"frame of task {frame.source_task} has unknown stream number {frame.stream}")
        name, fields = streams[frame.stream]
        self.damaged = False
        watch = self._watch_decoding(component, name, frame.source_task)
        if watch is not None:
            flat = self._salvage(frame.payload, frame.codec, watch)
            self.damaged = any(type(value) is codec.Undecodable for value in flat)
        else:
            try:
                flat = self._decode(frame.payload, frame.codec)
            except (Exception, SystemExit, KeyboardInterrupt, GeneratorExit):
                self.damaged = True
            if self.damaged:  # not in the handler: what is raised now is shown without the runtime's first attempt
                flat = self._salvage(frame.payload, frame.codec, None)
        expected = (len(fields) or 1) * frame.count
        if kinds is not None:
            expected = sum(len(streams[kind][1]) or 1 for kind in kinds)
        if len(flat) != expected or (kinds is not None and len(kinds) != frame.count):
            raise WireError(
                f"frame of {frame.count} tuples on {component}/{name} holds {len(flat)} values, expected {expected}"
            )
        inner = InFrame(component, name, frame.source_task, frame.count, now)
        inner.origin_ns = frame.origin_ns
        if frame.tracked and self._acks.acking:
            inner.track(frame)
        if kinds is not None:
            inner.streams = [streams[kind][0] for kind in kinds]
        if frame.trace:
            own = name if not inner.streams or frame.trace_index >= frame.count else inner.streams[frame.trace_index]
            inner.trace = Arrived(frame, f"{component}/{own}")
        return Opened(flat, inner, streams, frame.stream, kinds)

    # ---- what cannot be opened ----------------------------------------------------------------

    def refuse(self, frame: frame_pb2.Frame, error: Exception) -> None:
        """Give up a frame that cannot be split into values: the same bytes would come again."""
        tuples = frame.count - frame.skip
        log.error("dropped a frame of %d tuples: %s: %s", tuples, type(error).__name__, error)
        if not isinstance(error, WireError):
            self._report_exception(error)
        self._count_malformed(tuples)
        self._acks.give_up(frame, ACK)

    def refuse_misfit(self, frame: frame_pb2.Frame, size: int) -> None:
        """Refuse a frame whose arrays must not be read; only its credit is returned."""
        self._count("__malformed-frames", "", 1)
        if frame.kind in (DATA, BARRIER):
            tuples = max(0, min(frame.count, COUNT_MAX) - frame.skip)
            log.error("refused a frame of task %d: its counts and arrays do not fit each other", frame.source_task)
            self._count_malformed(tuples)
            self._queue.refuse(size, tuples)

    def _count_malformed(self, tuples: int) -> None:
        self._count("__malformed-tuples", "", tuples)
        self._progress.lost += tuples

    def give_up_late(self, now: float) -> None:
        """Give up the frames whose plan did not arrive in time."""
        self._lose(self.early_frames.take_late(now), "no plan with their source came in time")

    def give_up_all(self) -> None:
        """The task ends; the stream manager has the credit of the frames that wait here."""
        self._lose(self.early_frames.take_all(), "the task ended before the plan with their source came")

    def _lose(self, frames: list[Sized], why: str) -> None:
        for frame, size in frames:
            tuples = frame.count - frame.skip
            log.warning("gave up %d tuples of task %d: %s", tuples, frame.source_task, why)
            self._queue.drop(frame, size)
            self._count("__gateway-lost-tuples", "unknown source", tuples)
            if frame.tracked and self._acks.acking:
                # When they are sent again, the receiver may know their source.
                self._acks.give_up(frame, FAIL)
            else:
                self._progress.lost += tuples
