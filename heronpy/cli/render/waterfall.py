"""A trace as text: a line per call, with a bar for each part of the way there."""

from __future__ import annotations

from heronpy.cli.output import clean
from heronpy.common.units import format_duration
from heronpy.views.traces import Trace, TraceSpan

WIDTH = 48
#: Parts of the way, and how they are drawn: a letter each, so that nothing depends on colour.
LETTERS = {"batch": "b", "queue": "q", "wire": "w", "in-queue": "i", "process": "P", "ack": "a"}
NOTES = {
    "ends": "",
    "goes_on": "",
    "held": "held here, or filtered out",
    "joined": "not followed: in one frame with another traced tuple",
    "acked": "acked",
    "failed": "FAILED",
}
SPANS_SHOWN = 40


def waterfall(trace: Trace, width: int = WIDTH) -> str:
    """The spans of a trace below each other on one time line."""
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
    """What is not exact about the way of a span; "" if all of it is."""
    if span.exact:
        return ""
    if span.error_s is None:
        return "at least: between hosts the wire is not known"
    return f"between hosts the wire is +- {format_duration(span.error_s)}"


def bar(span: TraceSpan, total_s: float, width: int) -> str:
    """The parts of a span as letters; what took any time has at least one."""
    cells = [" "] * width
    at = span.start_s
    for part in span.parts:
        first = min(width - 1, int(at / total_s * width)) if total_s else 0
        at += part.took_s
        last = min(width, max(first + 1, round(at / total_s * width))) if total_s else 1
        if part.took_s > 0:
            # A part that is too short to be seen does not hide the one before it.
            keep = last == first + 1 and cells[first] != " "
            cells[first:last] = cells[first:last] if keep else [LETTERS.get(part.hop, "?")] * (last - first)
    return "".join(cells)
