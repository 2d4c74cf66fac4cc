"""Turns a frame into its tuples.

A value that cannot be decoded affects only its own tuple: the frame is decoded again value by value, and the tuple
keeps its place in the frame with DamagedValues. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from heronpy.common.errors import WireError
from heronpy.plan.emit_rules import declared
from heronpy.proto import frame_pb2, plan_pb2
from heronpy.wire import codec
from heronpy.wire.arrow_values import decode_batch, flat_values
from heronpy.wire.frames import unpack16

from .routing import arrow_inputs, schemas_of
from .tuples import (
    Arrived,
    HeronTuple,
    InBatch,
    InFrame,
    Part,
    Schema,
    make_mixed_tuples,
    make_tuples,
    mark_damaged,
    parts_of,
)

if TYPE_CHECKING:
    import pyarrow


class Opened(NamedTuple):
    """The content of a frame: its values one after the other, and the number and stream of its tuples."""

    flat: list[Any]
    frame: InFrame
    #: The streams of its source by number. The stream of the frame. The stream of each tuple, if they differ.
    streams: list[Schema]
    stream: int
    kinds: list[int] | None


class FrameReader:
    """Reads the frames of one bolt task.

    `watch_decoding(component, stream, task)` returns a watch on the decoding of a frame from this source, or None.
    """

    def __init__(
        self,
        watch_decoding: Callable[[str, str, int], codec.Watch | None],
        *,
        acking: bool,
        deserialize: Callable[[bytes], Any] | None,
        allow_pickle: bool,
    ) -> None:
        self._watch_decoding = watch_decoding
        self._acking = acking
        self._decode = codec.decoder(deserialize, allow_pickle)
        self._salvage = codec.salvager(deserialize, allow_pickle)
        self._components: dict[int, str] = {}
        self._schemas: dict[str, list[Schema]] = {}
        #: Maps component and stream to the serialised Arrow schema.
        self._arrow: dict[str, dict[str, bytes]] = {}
        #: True if the most recently opened frame may contain damaged tuples.
        self.damaged = False

    def read_by(self, plan: plan_pb2.PhysicalPlan, components: dict[int, str]) -> None:
        """Use a new plan for reading frames; frames of removed tasks can still be read."""
        self._schemas = schemas_of(plan.topology)
        self._arrow = arrow_inputs(plan.topology)
        self._components.update(components)

    def open(self, frame: frame_pb2.Frame, now: float) -> list[HeronTuple]:
        """Return the unprocessed tuples of a frame. Errors propagate if the frame cannot be opened."""
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
        """Return the parts of a frame for a bolt that takes batches; see `open`."""
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
            raise WireError(f"frame from task {frame.source_task} has Arrow values in schemaless stream {frame.stream}")
        self.damaged = False
        batch = decode_batch(frame.payload, declared(schema), frame.count)
        inner = InFrame(component, name, frame.source_task, frame.count, now)
        inner.origin_ns = frame.origin_ns
        if frame.trace:
            inner.trace = Arrived(frame, f"{component}/{name}")
        if frame.tracked and self._acking:
            inner.track(frame)
        return batch, inner, fields

    def _read(self, frame: frame_pb2.Frame, now: float) -> Opened:
        component = self._components.get(frame.source_task, "")
        streams = self._schemas.get(component, [])
        kinds = unpack16(frame.streams) if frame.streams else None
        if (frame.stream if kinds is None else max(kinds)) >= len(streams):
            raise WireError(f"frame from task {frame.source_task} has unknown stream number {frame.stream}")
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
            # outside of the handler, so that an exception raised here does not show the runtime's first attempt
            if self.damaged:
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
        if frame.tracked and self._acking:
            inner.track(frame)
        if kinds is not None:
            inner.streams = [streams[kind][0] for kind in kinds]
        if frame.trace:
            own = name if not inner.streams or frame.trace_index >= frame.count else inner.streams[frame.trace_index]
            inner.trace = Arrived(frame, f"{component}/{own}")
        return Opened(flat, inner, streams, frame.stream, kinds)
