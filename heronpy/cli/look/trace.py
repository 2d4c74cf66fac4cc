"""`heron trace` and `heron slow`: traces of tuples, and slow tuples."""

from __future__ import annotations

import time

import msgspec

from heronpy.cli.look.otlp import address, headers, send
from heronpy.cli.output import clean, moment, print_json, print_table, say, say_labelled
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common.units import format_duration
from heronpy.proto import control_pb2
from heronpy.views.past import Slow, SlowTuple
from heronpy.views.traces import Hop, Trace, Traces, TraceSpan

#: Interval at which the request for more traces is renewed, and its lifetime after the last renewal.
RENEW_S, LEASE_S = 1.0, 3.0
#: How long the last traces take to arrive: tasks and executors each report every second.
LATE_S = 3.0
TRACES_MAX = 1000
#: Timeout for the figures, which may cover a thousand traces.
ASK_S = 10.0
WIDTH = 48
#: The letter that draws each part of a tuple's path; letters need no colours.
LETTERS = {"batch": "b", "queue": "q", "wire": "w", "in-queue": "i", "process": "P", "ack": "a"}
NOTES = {
    "ends": "",
    "goes_on": "",
    "held": "held here, or filtered out",
    "joined": "not followed: it shared a frame with another traced tuple",
    "acked": "acked",
    "failed": "FAILED",
}
SPANS_SHOWN = 40


def show_slow(
    target: Target, topology: str, component: str | None, task: int | None, as_json: bool, common: Common
) -> None:
    """Print the slow tuples as a table or as JSON."""
    session = Session(target, common)
    session.check_component(topology, component)
    found = session.look(topology, control_pb2.GetSlow(component=component or "", task_id=task or 0), Slow)
    if as_json:
        print_json({"topology": topology, **msgspec.to_builtins(found)})
    elif not found.tuples:
        say(f"No slow tuples in topology '{topology}' (see heron.instance.slow_ms)")
    else:
        rows = [
            (format_duration(one.took_s), one.instance_id, one.source, moment(one.at), _value(one))
            for one in found.tuples
        ]
        print_table(("took", "task", "from", "at", "value"), rows, right=("took",))


def _value(one: SlowTuple) -> str:
    if one.value is None:
        return f"unknown: one of {one.tuples:,} tuples"
    return one.value if one.tuples == 1 else f"{one.value} (the first of {one.tuples:,} in one call)"


def waterfall(trace: Trace, width: int = WIDTH) -> str:
    """Return the spans of a trace as lines of text on one time line."""
    total = max([one.start_s + sum(part.took_s for part in one.parts) for one in trace.spans], default=0.0)
    depth: dict[str, int] = {}
    lines = []
    shown = trace.spans[:SPANS_SHOWN]
    names = []
    for one in shown:
        depth[one.number] = 0 if one.parent is None else depth.get(one.parent, 0) + 1
        names.append("  " * min(depth[one.number], 8) + clean(one.instance_id))
    column = max(map(len, names), default=0)
    for name, one in zip(names, shown):
        took = sum(part.took_s for part in one.parts)
        notes = [NOTES.get(one.end, ""), wire_note(one)]
        text = "; ".join(note for note in notes if note)
        lines.append(
            f"{name:<{column}} |{bar(one, total, width)}| {format_duration(one.start_s + took):>6}  {text}".rstrip()
        )
    if len(trace.spans) > SPANS_SHOWN:
        lines.append(f"and {len(trace.spans) - SPANS_SHOWN} more calls; see --json")
    return "\n".join(lines)


def wire_note(span: TraceSpan) -> str:
    """Return a note on times of a span that are not exact; "" if all are exact."""
    if span.exact:
        return ""
    if span.error_s is None:
        return "at least this long: the time on the wire between the hosts is unknown"
    return f"the time on the wire between the hosts is accurate to +- {format_duration(span.error_s)}"


def bar(span: TraceSpan, total_s: float, width: int) -> str:
    """Return a span as a bar of `width` letters, one letter per kind of hop; a very short hop may not be drawn."""
    cells = [" "] * width
    at = span.start_s
    for part in span.parts:
        first = min(width - 1, int(at / total_s * width)) if total_s else 0
        at += part.took_s
        last = min(width, max(first + 1, round(at / total_s * width))) if total_s else 1
        if part.took_s > 0:
            # A part too short to be drawn must not hide the part before it.
            keep = last == first + 1 and cells[first] != " "
            cells[first:last] = cells[first:last] if keep else [LETTERS.get(part.hop, "?")] * (last - first)
    return "".join(cells)


def show_traces(
    target: Target,
    topology: str,
    seconds: float,
    per_s: float,
    min_ms: float,
    otlp: str | None,
    as_json: bool,
    common: Common,
) -> None:
    """Trace for some seconds, print the traces, and send them to a collector if one is given."""
    collector, told = (address(otlp), headers()) if otlp is not None else (None, {})
    found = traced(Session(target, common), topology, seconds, per_s, min_ms)
    sent = send(collector, topology, found.traces, told) if collector is not None else None
    if as_json:
        print_json({"topology": topology, **msgspec.to_builtins(found)})
        return
    if not found.matching:
        held = "" if min_ms or found.under_way else "; if backpressure holds spouts back, heron doctor names the cause"
        which = f" that took at least {format_duration(min_ms / 1000)}" if min_ms else ""
        say(f"No tuple of topology '{topology}' was traced{which}{held}")
    else:
        _print(found)
    if found.under_way:
        say()
        say_labelled("under way", _under_way(found.under_way))
    if found.discarded:
        say(f"\n{found.discarded:,} calls were not kept, because their traces have too many calls")
    if sent is not None:
        say(f"\n{sent:,} spans were sent to {collector}")


def traced(session: Session, topology: str, seconds: float, per_s: float, min_ms: float) -> Traces:
    """Trace tuples for some seconds, and return the traces."""
    request = control_pb2.GetTraces(per_s=per_s, lease_s=LEASE_S)
    since = session.look(topology, request, Traces).at
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(RENEW_S, left))
        if left > RENEW_S:
            session.look(topology, request, Traces)
    # The figures are requested after the last spans have arrived.
    time.sleep(LATE_S)
    # The spouts continue to trace until the lease ends; traces begun after `seconds` are not complete yet.
    chosen = control_pb2.GetTraces(since=since, until=since + seconds, min_s=min_ms / 1000, limit=TRACES_MAX)
    return session.look(topology, chosen, Traces, ASK_S)


def _under_way(number: int) -> str:
    """Return the sentence about unfinished tuples, which may be the slowest ones but are not part of the figures."""
    tuples, where = ("1 traced tuple has", "is") if number == 1 else (f"{number:,} traced tuples have", "are")
    return (
        f"{tuples} not arrived everywhere yet, or {where} in a call; the figures above do not include that time. A slow"
        " task may be holding them (see heron doctor, heron top)"
    )


def _hop(hop: Hop) -> str:
    """Return the name of the hop; for a hop between hosts, with the error of the clock comparison."""
    return f"{hop.hop} +- {format_duration(hop.error_s)}" if hop.error_s else hop.hop


def _print(found: Traces) -> None:
    ways: dict[tuple[str, str], list[Hop]] = {}
    for hop in found.hops:
        ways.setdefault((hop.source, hop.target), []).append(hop)
    rows = [
        (
            source if number == 0 else "", target if number == 0 else "", _hop(hop), hop.count,
            *(format_duration(value) for value in (hop.p50_s, hop.p99_s, hop.max_s)),
        )
        for (source, target), hops in ways.items()
        for number, hop in enumerate(hops)
    ]  # fmt: skip
    p50, p99 = format_duration(found.p50_s or 0.0), format_duration(found.p99_s or 0.0)
    least = "at least " if found.under_way else ""
    say(f"{found.matching:,} tuples: p50 {least}{p50}, p99 {least}{p99} from next_tuple to the end of the last call\n")
    print_table(("from", "to", "hop", "count", "p50", "p99", "max"), rows, right=("count", "p50", "p99", "max"))
    slowest = found.traces[0]
    say(f"\nthe slowest, {format_duration(slowest.took_s)}, trace {slowest.id}:\n{waterfall(slowest)}")
    say("\n" + ", ".join(f"{letter} {hop}" for hop, letter in LETTERS.items()))
