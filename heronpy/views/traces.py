"""Where the time of traced tuples went: the parts of their way from one call to the next. Pure.

| hop | from | to |
|---|---|---|
| batch | the end of the call that emitted it | the frame is made of its buffer |
| queue | it waits for credit: in the sender's out-queue and in stream managers | it leaves |
| wire | it leaves a process | the next stream manager takes it |
| in-queue | the stream manager of the task has sent it | its call begins |
| process | its call begins | its call ends |
| ack | the end of the last call | the spout hears that the tuple's tree is complete |

What a task has not yet taken from its socket, because it is busy, counts as its in-queue.
Two hosts have two clocks: the wire between them is known as well as these are compared (`error_s`), by what the
executors have measured. When they are not compared, it counts as 0. `exact` is false in both cases.
"""

from __future__ import annotations

from msgspec import Struct

from heronpy.proto import control_pb2

HOPS = ("batch", "queue", "wire", "in-queue", "process", "ack")

Span = control_pb2.Span
ENDS = {
    control_pb2.SPAN_GOES_ON: "goes_on",
    control_pb2.SPAN_ENDS: "ends",
    control_pb2.SPAN_HELD: "held",
    control_pb2.SPAN_JOINED: "joined",
    control_pb2.SPAN_ACKED: "acked",
    control_pb2.SPAN_FAILED: "failed",
}


class Hop(Struct, kw_only=True):
    """A part of the way from one component to the next, over all traces; hops are named in `heron trace --help`."""

    #: Stream that the tuple came on, `component/stream`; empty: of a spout itself.
    source: str
    #: Component that it came to.
    target: str
    #: batch, queue, wire, in-queue, process or ack
    hop: str
    count: int
    p50_s: float
    p99_s: float
    max_s: float
    #: By how much a time of a wire between two hosts may be wrong, as their clocks are compared; 0: it is one clock's.
    error_s: float


class TracePart(Struct, kw_only=True):
    """A bar of the waterfall."""

    hop: str
    took_s: float


class TraceSpan(Struct, kw_only=True):
    """A call for a tuple of the trace, and the tuple's way there."""

    number: str
    #: The call that emitted the tuple; null: of the spout itself.
    parent: str | None
    component: str
    instance_id: str
    source: str
    source_task: int
    #: From the begin of the trace to the first part.
    start_s: float
    parts: list[TracePart]
    #: How its path goes on: goes_on, ends, held, joined, acked or failed.
    end: str
    #: Tuples of the call.
    tuples: int
    #: False: the wire is between two hosts, so it is not measured by one clock.
    exact: bool
    #: By how much that wire may be wrong; null: it is not known, and counts as 0.
    error_s: float | None


class Trace(Struct, kw_only=True):
    """One spout tuple, and what was emitted for it."""

    id: str
    at: float
    #: From the begin of next_tuple to the end of the last call.
    took_s: float
    spans: list[TraceSpan]


class Traces(Struct, kw_only=True):
    """`GET /traces?since&min_ms&limit`: the slowest first."""

    at: float
    hops: list[Hop]
    traces: list[Trace]
    #: Traces that fit, and how long they took.
    matching: int
    p50_s: float | None
    p99_s: float | None
    kept: int
    #: Spans that the topology master gave up.
    discarded: int
    #: Traces of that time of which a tuple has not arrived, or its call has not ended: they took longer than is known.
    under_way: int


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


def traces_of(reply: control_pb2.TracesReply) -> Traces:
    """`GET /traces`"""
    known = reply.matching > 0
    return Traces(
        at=reply.now,
        hops=[
            Hop(
                source=one.source, target=one.target, hop=one.hop, count=one.count, p50_s=one.p50_s, p99_s=one.p99_s,
                max_s=one.max_s, error_s=one.error_s,
            )
            for one in reply.hops
        ],
        traces=[trace_of(one) for one in reply.traces],
        matching=reply.matching,
        p50_s=reply.p50_s if known else None,
        p99_s=reply.p99_s if known else None,
        kept=reply.kept,
        discarded=reply.discarded,
        under_way=reply.under_way,
    )  # fmt: skip


def trace_of(record: control_pb2.TraceRecord) -> Trace:
    """One trace."""
    return Trace(
        id=f"{record.trace:016x}",
        at=record.at,
        took_s=record.took_s,
        spans=[_span(one) for one in placed(list(record.spans))],
    )


def _span(one: Placed) -> TraceSpan:
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
