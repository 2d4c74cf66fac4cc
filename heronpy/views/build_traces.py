"""Traces from messages. Pure."""

from __future__ import annotations

from heronpy.proto import control_pb2
from heronpy.views.hops import Placed, placed
from heronpy.views.traces import Hop, Trace, TracePart, Traces, TraceSpan

ENDS = {
    control_pb2.SPAN_GOES_ON: "goes_on",
    control_pb2.SPAN_ENDS: "ends",
    control_pb2.SPAN_HELD: "held",
    control_pb2.SPAN_JOINED: "joined",
    control_pb2.SPAN_ACKED: "acked",
    control_pb2.SPAN_FAILED: "failed",
}


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
