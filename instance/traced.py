"""A traced tuple on its way: in a frame that leaves, and in one that has come. See tracing.py. Pure."""

from __future__ import annotations

from typing import Any

from heronpy.proto import control_pb2, frame_pb2

Span = control_pb2.Span
#: Times of two stream managers are four; a frame that was sent again may have more.
HOPS_MAX = 16


class TracedFrame(bytes):
    """The bytes of a frame with a traced tuple, so that a queue can tell it from others."""

    def left(self, now_ns: int) -> TracedFrame:
        """The frame when it leaves the out-queue of its sender: of a field that comes twice the last one counts."""
        return TracedFrame(self + frame_pb2.Frame(trace_left=now_ns).SerializeToString())


class Arrived:
    """A traced tuple that has come: its place in the payload, and among the tuples that are still to be processed."""

    __slots__ = ("index", "place", "span")

    def __init__(self, frame: frame_pb2.Frame, source: str) -> None:
        self.index = frame.trace_index
        self.place = frame.trace_index - frame.skip
        #: What is known of it so far.
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
        """What to process next of the tuples from `place` on, and whether it is the traced one, by itself."""
        before = self.place - place
        if before > 0:
            return part[:before], False
        return (part[:1], True) if before == 0 else (part, False)
