"""Traces: the spans that tasks report, joined; the latest `TRACES_MAX` of them. Pure.

Spans come in any order. A trace is shown once the span of its spout is known; what comes from a call whose span was
lost is left out of it. Invariants: at most `TRACES_MAX` traces with at most `SPANS_MAX` spans each; a span counts once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from heronpy.proto import control_pb2
from heronpy.tmaster.clocks import Clocks
from heronpy.views.hops import HOPS, Placed, placed

TRACES_MAX = 1000
SPANS_MAX = 200
#: What people may ask for.
RATE_MAX, LEASE_MAX_S = 1000.0, 10.0
#: A trace in which something may be under way is left out for this long.
SETTLE_S = 2.0

_Span = control_pb2.Span


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

    def message(self, source: str, target: str, hop: str) -> control_pb2.HopFigures:
        self.values.sort()
        return control_pb2.HopFigures(
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

    def reply(self, asked: control_pb2.GetTraces, now: float, wall_s: float) -> control_pb2.TracesReply:
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
        return control_pb2.TracesReply(
            hops=_figures(trace for _, trace in found),
            traces=[
                control_pb2.TraceRecord(
                    trace=number,
                    at=trace.root.at if trace.root is not None else 0.0,
                    took_s=trace.joined.took_s,
                    spans=[one.span for one in trace.joined.placed],
                )
                for number, trace in slowest
            ],
            matching=len(found),
            kept=len(self._traces),
            discarded=self.discarded,
            now=wall_s,
            p50_s=quantile(took, 0.5),
            p99_s=quantile(took, 0.99),
            under_way=sum(not trace.joined.whole for _, trace in begun),
        )

    def validate(self) -> None:
        """Raise AssertionError when an invariant does not hold."""
        assert len(self._traces) <= TRACES_MAX
        assert all(len(trace.spans) <= SPANS_MAX for trace in self._traces.values())


def _figures(traces: Iterable[_Trace]) -> list[control_pb2.HopFigures]:
    """Of each way between two components, each hop; in the order of a tuple's way."""
    found: dict[tuple[str, str], dict[str, _Figures]] = {}
    for trace in traces:
        for way, hop, took_s, error_s in trace.joined.hops:
            figures = found.setdefault(way, {}).setdefault(hop, _Figures())
            figures.values.append(took_s)
            figures.error_s = max(figures.error_s, error_s)
    return [
        figures.message(source, target, hop)
        for (source, target), hops in found.items()
        for hop, figures in sorted(hops.items(), key=lambda one: HOPS.index(one[0]))
    ]
