"""Joins spans from tasks into traces, and compares the clocks of hosts. Pure.

Spans arrive in any order. A trace is shown once the span of its spout is known; spans below a missing span are omitted.
Invariants: at most the `TRACES_MAX` latest traces are kept, with at most `SPANS_MAX` spans each; a span counts once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct, field

from heronpy.common.clock import KEPT_NS, Offset
from heronpy.proto import control_pb2
from heronpy.views.traces import HOPS, Hop, Trace, TracePart, Traces, TraceSpan

TRACES_MAX = 1000
SPANS_MAX = 200
#: Limits of requests.
RATE_MAX, LEASE_MAX_S = 1000.0, 10.0
#: Seconds for which a trace is omitted because a call may still be in progress.
SETTLE_S = 2.0

CLOCKS_MAX: Final = 10_000

Span = control_pb2.Span
ENDS = {
    control_pb2.SPAN_GOES_ON: "goes_on",
    control_pb2.SPAN_ENDS: "ends",
    control_pb2.SPAN_HELD: "held",
    control_pb2.SPAN_JOINED: "joined",
    control_pb2.SPAN_ACKED: "acked",
    control_pb2.SPAN_FAILED: "failed",
}


# ---- the path of a tuple ---------------------------------------------------------------------


class Way(Struct, frozen=True):
    """The path of a tuple to a call and through the call, as parts in order, with the seconds of each."""

    parts: tuple[tuple[str, float], ...]
    #: Whether one clock measured all parts; False if a part is between two hosts.
    exact: bool
    #: Maximum error of the part between hosts in seconds; None if that part is unknown.
    error_s: float | None = 0.0

    @property
    def took_s(self) -> float:
        return sum(took for _, took in self.parts)

    def sums(self) -> dict[str, float]:
        """Return the seconds of each hop. A hop may have several parts."""
        found: dict[str, float] = {}
        for hop, took in self.parts:
            found[hop] = found.get(hop, 0.0) + took
        return found


def way_of(span: Span) -> Way:
    """Return the path of one span. A spout's span has only the call, and an ack has an empty path."""
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
    # With two stream managers, the first is on the sender's host and the second is on the receiver's host.
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
    """A span on the timeline of its trace, with the seconds from the start of next_tuple to the span's first part."""

    span: Span
    start_s: float
    way: Way

    @property
    def end_s(self) -> float:
        return self.start_s + self.way.took_s


def placed(spans: list[Span]) -> list[Placed]:
    """Return the spans of a trace in chronological order, beginning with the spout.

    Spans below a missing span are omitted. A span begins when its parent's call ends, or earlier if the tuple was sent
    earlier.
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
    """Convert a span to the form used in answers."""
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


# ---- clocks and stored traces ----------------------------------------------------------------


class Clocks:
    """Offsets of the hosts' monotonic clocks, which executors compare with the topology master's clock.

    Times are nanoseconds; `now_ns` is the time of the topology master's clock, which has the number `own`.

    Invariant: the `CLOCKS_MAX` most recently reported clocks are kept.
    """

    def __init__(self, own: int) -> None:
        self._own = own
        #: By clock: the time and the offset of the best sample.
        self._known: OrderedDict[int, tuple[int, Offset]] = OrderedDict()

    def take(self, told: control_pb2.ClockOffset, now_ns: int) -> None:
        """Record an executor's sample of its host's clock; for each host, the most precise sample is used."""
        if not told.clock or told.clock == self._own or not told.error:
            return
        new, known = Offset(told.offset, told.error), self.offset(told.clock, now_ns)
        if known is None or new.error <= known.error:
            self._known[told.clock] = now_ns, new
            self._known.move_to_end(told.clock)
            if len(self._known) > CLOCKS_MAX:
                self._known.popitem(last=False)

    def offset(self, clock: int, now_ns: int) -> Offset | None:
        """Return the offset from this clock to the topology master's clock; None if there is no recent sample."""
        if clock == self._own:
            return Offset(0, 0)
        at_ns, offset = self._known.get(clock, (0, None))
        age_ns = now_ns - at_ns
        return offset.aged(age_ns) if offset is not None and age_ns <= KEPT_NS else None

    def relate(self, span: control_pb2.Span, now_ns: int) -> None:
        """In a span between two hosts, store the offset between the hosts' clocks if both are known."""
        span.clock_shift = span.clock_error = 0  # only this master sets these fields
        if span.source_clock == span.clock or not span.source_clock:
            return
        source, own = self.offset(span.source_clock, now_ns), self.offset(span.clock, now_ns)
        if source is not None and own is not None:
            span.clock_shift = own.offset - source.offset
            span.clock_error = own.error + source.error


class _Trace:
    __slots__ = ("_joined", "heard_at", "root", "spans")

    def __init__(self) -> None:
        self.spans: dict[int, Span] = {}
        self.root: Span | None = None
        self.heard_at = 0.0
        #: The joined trace, computed on demand and dropped when another span arrives.
        self._joined: _Joined | None = None

    def add(self, span: Span, now: float) -> bool:
        """Add a span; return False if the trace has too many spans."""
        if span.number in self.spans:
            return True
        if len(self.spans) >= SPANS_MAX:
            return False
        self.spans[span.number] = span
        self.heard_at, self._joined = now, None
        if not span.parent:
            self.root = span
        return True

    @property
    def joined(self) -> _Joined:
        """Join the spans into a trace; the spans must include a root."""
        if self._joined is None:
            spans = self.spans.values()
            parents = {span.parent for span in spans}
            found = placed(list(spans))
            self._joined = _Joined(
                found,
                whole=all(span.end != control_pb2.SPAN_GOES_ON or span.number in parents for span in spans),
                took_s=max(one.end_s for one in found if one.way.parts and one.way.parts[-1][0] == "process"),
                hops=[
                    ((one.span.source, one.span.component), hop, took_s, (one.way.error_s or 0.0) * (hop == "wire"))
                    for one in found
                    if one.span.end != control_pb2.SPAN_FAILED
                    for hop, took_s in one.way.sums().items()
                    if one.way.error_s is not None or hop != "wire"
                ],
            )
        return self._joined


class _Joined(Struct, frozen=True):
    placed: list[Placed]
    #: Whether all tuples emitted for the trace are known.
    whole: bool
    #: Seconds until the end of the last call, without the ack.
    took_s: float
    #: ((source, target), hop, seconds, maximum error in seconds)
    hops: list[tuple[tuple[str, str], str, float, float]]


class _Figures(Struct):
    values: list[float] = field(default_factory=list)
    error_s: float = 0.0

    def shown(self, source: str, target: str, hop: str) -> Hop:
        self.values.sort()
        return Hop(
            source=source,
            target=target,
            hop=hop,
            count=len(self.values),
            p50_s=quantile(self.values, 0.5),
            p99_s=quantile(self.values, 0.99),
            max_s=self.values[-1],
            error_s=self.error_s,
        )


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the quantile of these ordered values for a share from 0 to 1; 0 if there are no values."""
    if not ordered:
        return 0.0
    return ordered[max(0, -int(-len(ordered) * share // 1) - 1)]


class TraceStore:
    """The latest traces. Times are in seconds; `now` is monotonic."""

    def __init__(self, clocks: Clocks | None = None) -> None:
        """`clocks` compares the clocks of several hosts."""
        self._clocks = clocks
        self._traces: OrderedDict[int, _Trace] = OrderedDict()
        #: Number of spans that were dropped for lack of space.
        self.discarded = 0

    def __len__(self) -> int:
        return len(self._traces)

    def take(self, report: control_pb2.MetricsReport, now: float) -> None:
        """Add the spans of a report to their traces."""
        for span in report.spans:
            if not span.trace or not span.number:
                continue
            kept = Span()
            kept.CopyFrom(span)
            kept.process, kept.component = report.process, report.component
            if self._clocks is not None:
                self._clocks.relate(kept, int(now * 1e9))
            trace = self._traces.get(span.trace)
            if trace is None:
                trace = self._traces[span.trace] = _Trace()
                if len(self._traces) > TRACES_MAX:
                    self._traces.popitem(last=False)
            self.discarded += not trace.add(kept, now)

    def reply(self, asked: control_pb2.GetTraces, now: float, wall_s: float) -> Traces:
        """Return the stored traces, for a GetTraces request; `wall_s` is the current wall time in seconds."""
        begun = [
            (number, trace)
            for number, trace in self._traces.items()
            if trace.root is not None
            and asked.since <= trace.root.at
            and (not asked.until or trace.root.at < asked.until)
        ]
        found = [
            (number, trace)
            for number, trace in begun
            if (trace.joined.whole or now - trace.heard_at >= SETTLE_S) and trace.joined.took_s >= asked.min_s
        ]
        took = sorted(trace.joined.took_s for _, trace in found)
        slowest = sorted(found, key=lambda one: -one[1].joined.took_s)[: min(asked.limit, TRACES_MAX)]
        return Traces(
            at=wall_s,
            hops=_figures(trace for _, trace in found),
            traces=[
                Trace(
                    id=f"{number:016x}",
                    at=trace.root.at if trace.root is not None else 0.0,
                    took_s=trace.joined.took_s,
                    spans=[shown(one) for one in trace.joined.placed],
                )
                for number, trace in slowest
            ],
            matching=len(found),
            kept=len(self._traces),
            discarded=self.discarded,
            p50_s=quantile(took, 0.5) if took else None,
            p99_s=quantile(took, 0.99) if took else None,
            under_way=sum(not trace.joined.whole for _, trace in begun),
        )

    def validate(self) -> None:
        """Raise AssertionError when an invariant does not hold."""
        assert len(self._traces) <= TRACES_MAX
        assert all(len(trace.spans) <= SPANS_MAX for trace in self._traces.values())


def _figures(traces: Iterable[_Trace]) -> list[Hop]:
    """Return the figures of each connection between two components, in the order in which a tuple passes them."""
    found: dict[tuple[str, str], dict[str, _Figures]] = {}
    for trace in traces:
        for way, hop, took_s, error_s in trace.joined.hops:
            figures = found.setdefault(way, {}).setdefault(hop, _Figures())
            figures.values.append(took_s)
            figures.error_s = max(figures.error_s, error_s)
    return [
        figures.shown(source, target, hop)
        for (source, target), hops in found.items()
        for hop, figures in sorted(hops.items(), key=lambda one: HOPS.index(one[0]))
    ]
