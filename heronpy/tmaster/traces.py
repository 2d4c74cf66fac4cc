"""Traces: the spans that tasks report, joined, and how the clocks of hosts differ. Pure.

Spans come in any order. A trace is shown once the span of its spout is known; what comes from a call whose span was
lost is left out of it. Invariants: the latest traces, at most `TRACES_MAX`, with at most `SPANS_MAX` spans each; a span
counts once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from heronpy.common.clock_offset import KEPT_NS, Offset
from heronpy.proto import control_pb2
from heronpy.tmaster.trace_ways import Placed, placed, shown
from heronpy.views.traces import HOPS, Hop, Trace, Traces

TRACES_MAX = 1000
SPANS_MAX = 200
#: What people may ask for.
RATE_MAX, LEASE_MAX_S = 1000.0, 10.0
#: A trace in which something may be under way is left out for this long.
SETTLE_S = 2.0

CLOCKS_MAX: Final = 10_000

_Span = control_pb2.Span


class Clocks:
    """The monotonic clocks of the hosts, as executors compare them with the topology master's.

    Times are nanoseconds; `now_ns` is of the topology master's clock, whose number is `own`.

    Invariant: the `CLOCKS_MAX` that were heard of last.
    """

    def __init__(self, own: int) -> None:
        self._own = own
        #: By number: since when, and how it differs.
        self._known: OrderedDict[int, tuple[int, Offset]] = OrderedDict()

    def take(self, told: control_pb2.ClockOffset, now_ns: int) -> None:
        """What an executor says of its host's clock. Of several on one host the most exact one counts."""
        if not told.clock or told.clock == self._own or not told.error:
            return
        new, known = Offset(told.offset, told.error), self.offset(told.clock, now_ns)
        if known is None or new.error <= known.error:
            self._known[told.clock] = now_ns, new
            self._known.move_to_end(told.clock)
            if len(self._known) > CLOCKS_MAX:
                self._known.popitem(last=False)

    def offset(self, clock: int, now_ns: int) -> Offset | None:
        """Added to a time of this clock, it is one of the topology master's; None when that was not heard lately."""
        if clock == self._own:
            return Offset(0, 0)
        at_ns, offset = self._known.get(clock, (0, None))
        age_ns = now_ns - at_ns
        return offset.aged(age_ns) if offset is not None and age_ns <= KEPT_NS else None

    def relate(self, span: control_pb2.Span, now_ns: int) -> None:
        """Write into a span whose way goes between hosts how their clocks differ, if both are known."""
        span.clock_shift = span.clock_error = 0  # only we set it
        if span.source_clock == span.clock or not span.source_clock:
            return
        source, own = self.offset(span.source_clock, now_ns), self.offset(span.clock, now_ns)
        if source is not None and own is not None:
            span.clock_shift = own.offset - source.offset
            span.clock_error = own.error + source.error


class _Trace:
    __slots__ = ("_joined", "heard_at", "root", "spans")

    def __init__(self) -> None:
        self.spans: dict[int, _Span] = {}
        self.root: _Span | None = None
        self.heard_at = 0.0
        #: Worked out when it is asked for, until another span comes.
        self._joined: _Joined | None = None

    def add(self, span: _Span, now: float) -> bool:
        """Whether there was room for it."""
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
        """What its spans say together; there must be a root."""
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
    #: Everything that was emitted for it is known.
    whole: bool
    #: To the end of the last call, without the ack.
    took_s: float
    #: ((source, target), hop, seconds, by how many of them it may be wrong)
    hops: list[tuple[tuple[str, str], str, float, float]]


@dataclass(slots=True)
class _Figures:
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
    """The smallest value that at least this share of the values does not exceed; 0 when there are none."""
    if not ordered:
        return 0.0
    return ordered[max(0, -int(-len(ordered) * share // 1) - 1)]


class TraceStore:
    """See the module. Times are in seconds, `now` is monotonic."""

    def __init__(self, clocks: Clocks | None = None) -> None:
        """`clocks` compare those of several hosts."""
        self._clocks = clocks
        self._traces: OrderedDict[int, _Trace] = OrderedDict()
        #: Spans for which there was no room.
        self.discarded = 0

    def __len__(self) -> int:
        return len(self._traces)

    def take(self, report: control_pb2.MetricsReport, now: float) -> None:
        """Take the spans of a report."""
        for span in report.spans:
            if not span.trace or not span.number:
                continue
            kept = _Span()
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
        """Answer GetTraces; `wall_s` is now."""
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
    """Of each way between two components, each hop; in the order of a tuple's way."""
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
