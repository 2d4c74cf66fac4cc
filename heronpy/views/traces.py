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

HOPS = ("batch", "queue", "wire", "in-queue", "process", "ack")


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
    #: Error of a wire time between two hosts, from the comparison of their clocks; 0 within one clock.
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
    #: Error of that wire time; null: the time is unknown, and counts as 0.
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
