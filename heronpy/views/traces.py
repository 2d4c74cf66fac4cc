"""The time of traced tuples, divided into the parts of their path from one call to the next. Pure.

| hop | from | to |
|---|---|---|
| batch | the end of the call that emitted the tuple | the tuple's buffer becomes a frame |
| queue | the frame waits for credit, in the sender's out-queue or in a stream manager | the frame leaves |
| wire | the frame leaves a process | the next stream manager takes the frame |
| in-queue | the stream manager of the task has sent the frame | the call begins |
| process | the call begins | the call ends |
| ack | the end of the last call | the spout is notified that the tuple's tree is complete |

Frames that a busy task has not yet read from its socket count as part of its in-queue. Executors compare the clocks of
two hosts; the wire time between the hosts is as precise as this comparison (`error_s`). Without a comparison the time
counts as 0. `exact` is false in both cases.
"""

from __future__ import annotations

from msgspec import Struct

HOPS = ("batch", "queue", "wire", "in-queue", "process", "ack")


class Hop(Struct, kw_only=True):
    """A part of the path from one component to the next, over all traces; `heron trace --help` explains the hops."""

    #: Stream of the tuple, as `component/stream`; empty for a spout's own tuple.
    source: str
    #: Component that received the tuple.
    target: str
    #: batch, queue, wire, in-queue, process or ack
    hop: str
    count: int
    p50_s: float
    p99_s: float
    max_s: float
    #: Maximum error of a wire time between two hosts, from the comparison of their clocks; 0 on one host.
    error_s: float


class TracePart(Struct, kw_only=True):
    """A bar of the waterfall chart."""

    hop: str
    took_s: float


class TraceSpan(Struct, kw_only=True):
    """A call for a tuple in the trace, and the tuple's path to this call."""

    number: str
    #: The call that emitted the tuple; null for the spout itself.
    parent: str | None
    component: str
    instance_id: str
    source: str
    source_task: int
    #: Seconds from the start of the trace to the first part.
    start_s: float
    parts: list[TracePart]
    #: How the path continues: goes_on, ends, held, joined, acked or failed.
    end: str
    #: Number of tuples of the call.
    tuples: int
    #: False if the wire connects two hosts, so that no single clock measures its time.
    exact: bool
    #: Error of that wire time; null if the time is unknown, so that it counts as 0.
    error_s: float | None


class Trace(Struct, kw_only=True):
    """One spout tuple, and the tuples emitted for it."""

    id: str
    at: float
    #: Seconds from the start of next_tuple to the end of the last call.
    took_s: float
    spans: list[TraceSpan]


class Traces(Struct, kw_only=True):
    """`GET /traces?since&min_ms&limit`: the slowest first."""

    at: float
    hops: list[Hop]
    traces: list[Trace]
    #: Number of matching traces, and quantiles of their durations.
    matching: int
    p50_s: float | None
    p99_s: float | None
    kept: int
    #: Spans that the topology master discarded.
    discarded: int
    #: Traces with a tuple that has not arrived or whose call has not ended: their known duration is a lower bound.
    under_way: int
