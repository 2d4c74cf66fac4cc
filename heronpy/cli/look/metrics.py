"""Metrics of a topology, by component or instance."""

from __future__ import annotations

from typing import Any

from heronpy.cli import exits
from heronpy.cli.look.figures import COLUMNS, LINK_METRICS, Combined, Link, add_zeros, figures, links
from heronpy.cli.output import clean, console, print_json, print_table, say, table
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common.nearest import suggestion
from heronpy.common.units import counted, format_bytes, format_duration, parse_duration_s
from heronpy.metrics.names import METRICS, find
from heronpy.proto import control_pb2

QUANTILES = (0.5, 0.99)
#: Width that the short table needs; on a narrower terminal it is drawn compactly.
WIDE = 140
#: Rows of the table of links.
LINKS_SHOWN = 10
#: Period over which frames per second of links are averaged when the table covers the whole run.
RECENT_S = 10.0


def show_metrics(
    target: Target,
    topology: str,
    component: str | None,
    instances: tuple[str, ...],
    names: tuple[str, ...],
    interval: str | None,
    by_instance: bool,
    everything: bool,
    as_json: bool,
    common: Common,
) -> None:
    """Print metrics of a topology, as tables or JSON."""
    session = Session(target, common)
    session.check_component(topology, component)
    request = control_pb2.GetMetrics(
        component=component or "",
        names=list(names),
        instances=list(instances),
        interval_s=parse_duration_s(interval) if interval else 0.0,
    )
    reply = session.ask(topology, request)
    _check_names(session, topology, names, reply)
    add_zeros(reply, session.packing_plan(topology), component or "", instances)
    if as_json:
        print_json(_metrics_json(topology, reply))
        return
    over = f" in the last {format_duration(reply.interval_s)}" if interval else ""
    if not (everything or names or instances):
        found = links(reply.reports)
        late = control_pb2.GetMetrics(names=list(LINK_METRICS), interval_s=RECENT_S)
        recent = session.ask(topology, late) if found and not interval else reply
        if _show_short(topology, reply, by_instance, over, _link_rows(found, recent)):
            return
    rows = combine(reply, by_instance or bool(instances))
    if not rows:
        say(_nothing(names, reply))
        return
    columns = ("instance" if by_instance or instances else "component", "metric", "label", "value", "median", "99 %")
    cells = [
        (row.owner, row.name, row.label or None, _shown(row), *(_quantile(row, q) for q in QUANTILES)) for row in rows
    ]
    print_table(columns, cells, f"Metrics of '{clean(topology)}'{over}", right=columns[3:])


def _check_names(session: Session, topology: str, names: tuple[str, ...], reply: control_pb2.MetricsReply) -> None:
    """Raise a Failure for a metric that heronpy does not define and no process of the topology reports."""
    unknown = {*names} - {sample.name for report in reply.reports for sample in report.samples}
    if not (unknown := {name for name in unknown if find(name) is None}):
        return
    everything = session.ask(topology, control_pb2.GetMetrics())
    reported = {sample.name for report in everything.reports for sample in report.samples}
    if wrong := sorted(unknown - reported):
        otherwise = "; 'heron metrics' with --all lists all metrics"
        hint = suggestion(wrong[0], {*reported, *METRICS}, otherwise)
        raise exits.Failure(f"topology '{topology}' has no metric {wrong[0]!r}{hint}", exits.USAGE)


def _show_short(
    topology: str, reply: control_pb2.MetricsReply, by_instance: bool, over: str, link_rows: list[tuple[object, ...]]
) -> bool:
    """Print the short table; returns False when no task has reported figures."""
    rows = []
    for row in figures(reply.reports, by_instance):
        latency = _merged(row.latency())
        frames, tuples = row.frames()
        rows.append(
            (
                row.owner,
                *map(_whole, (row.emitted, row.executed, row.acked, row.failed)),
                _time(latency, latency.sum / latency.count) if latency is not None else None,
                _quantile(latency, 0.99) if latency is not None else None,
                _whole(row.queue),
                None if row.cpu_s is None else f"{row.cpu_s:,.1f}s",
                None if row.memory_bytes is None else format_bytes(int(row.memory_bytes)),
                None if frames is None else f"{frames:,.0f}",
                None if tuples is None else f"{tuples:,.1f}",
            )
        )
    if rows:
        columns = ("instance" if by_instance else "component", *COLUMNS)
        screen, short = console(), table(columns, rows, f"Metrics of '{clean(topology)}'{over}", right=COLUMNS)
        if screen.width < WIDE:
            short.padding = (0, 0, 0, 0)
        screen.print(short)
        if link_rows:
            heads = ("link", "frames", "frames/s", "tuples", "tuples/frame")
            more = f", the {LINKS_SHOWN} busiest of {len(link_rows)}" if len(link_rows) > LINKS_SHOWN else ""
            print_table(heads, link_rows[:LINKS_SHOWN], f"Between stream managers{more}", right=heads[1:])
        apart = f"reports of tasks are up to {format_duration(reply.apart_s)} apart; " if reply.apart_s >= 0.05 else ""
        samples = (sample for report in reply.reports for sample in report.samples)
        if discarded := round(sum(one.value for one in samples if one.name == "__tuples_dropped_by_compid")):
            say(f"{counted(discarded, 'tuple')} discarded on purpose because tasks were full")
        if end_to_end := _end_to_end(reply):
            say(end_to_end)
        if reply.resumed_s and not over:
            say(
                f"the topology master was replaced {format_duration(reply.resumed_s)} ago, so counts of processes that"
                " had ended by then may be missing here; 'heron top' shows them"
            )
        if (least := _at_least(reply)) and not over:
            say(least)
        say(f"{apart}'--all' shows every metric; 'heron top' shows all counts at one moment")
    return bool(rows)


def _link_rows(found: list[Link], recent: control_pb2.MetricsReply) -> list[tuple[object, ...]]:
    """Return one row per link: the traffic in the period of the table, and the frames per second in `recent`."""
    of_late = {(one.sender, one.receiver): one.frames for one in links(recent.reports)}
    return [
        (
            f"{link.sender} to {link.receiver}",
            _whole(link.frames),
            f"{of_late.get((link.sender, link.receiver), 0.0) / (recent.interval_s or RECENT_S):,.0f}",
            _whole(link.tuples),
            f"{link.tuples / link.frames:,.1f}",
        )
        for link in found
    ]


def _at_least(reply: control_pb2.MetricsReply) -> str:
    """Return the sentence about components whose counts are lower bounds; "" if all counts are exact."""
    lacking = sorted({report.component or report.process for report in reply.reports if report.at_least})
    if not lacking:
        return ""
    return (
        f"the counts of {clean(', '.join(lacking))} are lower bounds: a process ended before it reported its last"
        " counts"
    )


def _end_to_end(reply: control_pb2.MetricsReply) -> str:
    """Return how long tuples take from their spout to the end of their path; "" without measurements."""
    samples, ends = [], set()
    for report in reply.reports:
        for sample in report.samples:
            if sample.name == "__end-to-end-latency" and sample.count:
                samples.append(sample)
                ends.add(report.component)
    merged = _merged(samples)
    if merged is None:
        return ""
    median, high = (_quantile(merged, part) for part in QUANTILES)
    where = clean(", ".join(sorted(ends)))
    return f"from the spout to the end of the path, which is in {where}: median {median}, 99 % {high}"


def _whole(count: float | None) -> int | None:
    return None if count is None else int(count)


def _merged(samples: list[control_pb2.Sample]) -> Combined | None:
    """Return several distributions merged into one; None for an empty list."""
    if not samples:
        return None
    merged = Combined("", samples[0].name, "", samples[0].type)
    for sample in samples:
        merged.add(sample)
    return merged


def _nothing(names: tuple[str, ...], reply: control_pb2.MetricsReply) -> str:
    if names:
        return f"No process has reported {', '.join(names)} yet; run with --all instead of --name to list all metrics"
    return "No process has reported metrics yet" if not reply.reports else "No such metric was reported"


def combine(reply: control_pb2.MetricsReply, by_instance: bool) -> list[Combined]:
    """Sum the samples of all processes of a component, or keep processes separate."""
    rows: dict[tuple[str, str, str], Combined] = {}
    for report in reply.reports:
        owner = report.process if by_instance or not report.component else report.component
        for sample in report.samples:
            key = (owner, sample.name, sample.label)
            if key not in rows:
                rows[key] = Combined(owner, sample.name, sample.label, sample.type)
            rows[key].add(sample)
    return [rows[key] for key in sorted(rows)]


def _unit(name: str) -> str:
    found = find(name)
    return found[0].unit if found else ""


def _quantile(row: Combined, part: float) -> str | None:
    """Return the quantile as text, such as `> 1m40s` if only a lower bound is known; None without observations."""
    found = row.quantile(part)
    return None if found is None else ("> " if found.at_least else "") + (_time(row, found.value) or "")


def _time(row: Combined, value: float | None) -> str | None:
    if value is None:
        return None
    if _unit(row.name) in _TIME_UNITS:
        seconds = value * _TIME_UNITS[_unit(row.name)]
        return f"{seconds * 1e9:.0f}ns" if 0 < seconds < 1e-6 else format_duration(seconds)
    return f"{value:,.0f}" if value == int(value) else f"{value:,.3f}"


_TIME_UNITS = {"ns": 1e-9, "ms": 1e-3, "seconds": 1.0}


def _shown(row: Combined) -> str:
    """Return the value of a counter or gauge, or the mean of a distribution with its number of observations."""
    if row.type == control_pb2.Sample.HISTOGRAM:
        mean = _time(row, row.sum / row.count) if row.count else "-"
        return f"{mean} (mean of {row.count:,})"
    if _unit(row.name) == "bytes":
        return format_bytes(int(row.value))
    return _time(row, row.value) or "-"


def _metrics_json(topology: str, reply: control_pb2.MetricsReply) -> dict[str, Any]:
    return {
        "topology": topology,
        "interval_s": reply.interval_s,
        "apart_s": reply.apart_s,
        "resumed_s": reply.resumed_s,
        "processes": [
            {
                "process": report.process,
                "component": report.component,
                "task_id": report.task_id,
                "container": report.container,
                "pid": report.pid,
                "at_least": report.at_least,
                "metrics": [
                    {
                        "name": sample.name,
                        "label": sample.label,
                        "type": control_pb2.Sample.Type.Name(sample.type).lower(),
                        **(
                            {
                                "count": sample.count,
                                "sum": sample.sum,
                                "buckets": [
                                    {"le": bucket.le if bucket.le != float("inf") else "+Inf", "count": bucket.count}
                                    for bucket in sample.buckets
                                ],
                            }
                            if sample.type == control_pb2.Sample.HISTOGRAM
                            else {"value": sample.value}
                        ),
                    }
                    for sample in report.samples
                ],
            }
            for report in reply.reports
        ],
    }
