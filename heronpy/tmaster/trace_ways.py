"""The way of a traced tuple, from the spans of its calls: what each part of it took. Pure.

The parts are those of `heronpy.views.traces`.
"""

from __future__ import annotations

from msgspec import Struct

from heronpy.proto import control_pb2
from heronpy.views.traces import TracePart, TraceSpan

Span = control_pb2.Span
ENDS = {
    control_pb2.SPAN_GOES_ON: "goes_on",
    control_pb2.SPAN_ENDS: "ends",
    control_pb2.SPAN_HELD: "held",
    control_pb2.SPAN_JOINED: "joined",
    control_pb2.SPAN_ACKED: "acked",
    control_pb2.SPAN_FAILED: "failed",
}


class Way(Struct, frozen=True):
    """The way of a tuple to a call and through it: each part in order, in seconds."""

    parts: tuple[tuple[str, float], ...]
    #: False: a part is between two hosts, so it is not measured by one clock.
    exact: bool
    #: By how much that part may be wrong; None: it is not known at all.
    error_s: float | None = 0.0

    @property
    def took_s(self) -> float:
        return sum(took for _, took in self.parts)

    def sums(self) -> dict[str, float]:
        """Seconds of each hop; there are several parts of some."""
        found: dict[str, float] = {}
        for hop, took in self.parts:
            found[hop] = found.get(hop, 0.0) + took
        return found


def way_of(span: Span) -> Way:
    """The way of one span; only the call for that of a spout, and nothing for an ack."""
    if span.end in (control_pb2.SPAN_ACKED, control_pb2.SPAN_FAILED):
        return Way((), True)
    process = ("process", _seconds(span.began, span.ended))
    if not span.parent:
        return Way((process,), True)
    parts = [("batch", _seconds(span.emitted, span.sealed))]
    at = span.sealed
    if span.left:
        parts.append(("queue", _seconds(at, span.left)))
        at = span.left
    pairs = list(zip(span.hops[0::2], span.hops[1::2]))
    # With two stream managers, the first is on the host of the sender and the second on that of the receiver.
    crossing = len(pairs) - 1 if span.source_clock != span.clock else -1
    exact, error_s = True, span.clock_error / 1e9 if span.clock_error else None
    for number, (arrived, left) in enumerate(pairs):
        if number == crossing:
            exact = False
            parts.append(("wire", _seconds(at, arrived + span.clock_shift) if span.clock_error else 0.0))
        else:
            parts.append(("wire", _seconds(at, arrived)))
        parts.append(("queue", _seconds(arrived, left)))
        at = left
    parts.append(("in-queue", _seconds(at, span.began)))
    parts.append(process)
    return Way(tuple(parts), exact, 0.0 if exact else error_s)


def _seconds(first_ns: int, last_ns: int) -> float:
    return max(0, last_ns - first_ns) / 1e9


class Placed(Struct, frozen=True):
    """A span on the time line of its trace: seconds from the begin of next_tuple to where its first part begins."""

    span: Span
    start_s: float
    way: Way

    @property
    def end_s(self) -> float:
        return self.start_s + self.way.took_s


def placed(spans: list[Span]) -> list[Placed]:
    """The spans of a trace in their order in time, from the spout on.

    What is known to come from a call whose own span is missing is left out. A span begins where the call of its parent
    ends, or earlier when the tuple had to leave before that.
    """
    children: dict[int, list[Span]] = {}
    for span in spans:
        children.setdefault(span.parent, []).append(span)
    found: list[Placed] = []
    waiting = [Placed(span, 0.0, way_of(span)) for span in children.pop(0, [])[:1]]
    root = waiting[0].span if waiting else None
    while waiting:
        parent = waiting.pop()
        found.append(parent)
        for span in children.pop(parent.span.number, []):
            if span.end in (control_pb2.SPAN_ACKED, control_pb2.SPAN_FAILED):
                continue
            early = min(0, span.emitted - parent.span.ended) / 1e9
            waiting.append(Placed(span, max(0.0, parent.end_s + early), way_of(span)))
    found.sort(key=lambda one: (one.start_s, one.end_s))
    acked = [span for span in spans if root is not None and span.end in _SETTLED and span.parent == root.number]
    if acked and root is not None:
        end = max(one.end_s for one in found)
        heard = _seconds(root.began, acked[0].ended)
        found.append(Placed(acked[0], min(end, heard), Way((("ack", max(0.0, heard - end)),), True)))
    return found


_SETTLED = (control_pb2.SPAN_ACKED, control_pb2.SPAN_FAILED)


def shown(one: Placed) -> TraceSpan:
    """A span as it is told."""
    span = one.span
    return TraceSpan(
        number=f"{span.number:016x}",
        parent=f"{span.parent:016x}" if span.parent else None,
        component=span.component,
        instance_id=span.process,
        source=span.source,
        source_task=span.source_task,
        start_s=one.start_s,
        parts=[TracePart(hop=hop, took_s=took_s) for hop, took_s in one.way.parts],
        end=ENDS.get(span.end, "goes_on"),
        tuples=span.tuples,
        exact=one.way.exact,
        error_s=one.way.error_s,
    )
