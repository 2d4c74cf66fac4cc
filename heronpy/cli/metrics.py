"""`heron metrics` and `heron exceptions`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from heronpy.cli import complete, exits
from heronpy.cli.output import clean, clean_block, moment, print_json, print_table, say
from heronpy.cli.reading import Reading, reading_target
from heronpy.cli.target import Common, Target, common_flags, json_flag, topology_argument
from heronpy.proto import components_of

if TYPE_CHECKING:
    from heronpy.cli.exception_groups import Group
    from heronpy.cli.session import Session
    from heronpy.proto import control_pb2 as control

QUANTILES = (0.5, 0.99)

component_argument = click.argument("what", required=False, metavar="[COMPONENT]", shell_complete=complete.components)


@click.command("metrics", cls=Reading)
@reading_target
@topology_argument
@component_argument
@click.option("--component", metavar="NAME", help="Only this component.", shell_complete=complete.components)
@click.option("--instance", "instances", multiple=True, metavar="ID", help="Only this instance or process; repeatable.",
              shell_complete=complete.instances)  # fmt: skip
@click.option("--name", "names", multiple=True, metavar="METRIC", help="This metric or NAME/LABEL only; repeatable.",
              shell_complete=complete.metrics)  # fmt: skip
@click.option("--interval", "interval", metavar="TIME", help="Count what was added in the last so long, such as 5m.")
@click.option("--by-instance", is_flag=True, help="A row per instance instead of per component.")
@click.option("--all", "everything", is_flag=True, help="Every metric of every process, a row each.")
@json_flag
@common_flags
def metrics_command(
    target: Target,
    topology: str,
    what: str | None,
    component: str | None,
    instances: tuple[str, ...],
    names: tuple[str, ...],
    interval: str | None,
    by_instance: bool,
    everything: bool,
    as_json: bool,
    common: Common,
) -> None:
    """Show metrics, summed by component or for each instance.

    Without --all, --name and --instance it is what one looks at first: counts, latency, queue, CPU and memory.
    Latency is that of whole tuple trees at an acking spout, else that of one call of process or next_tuple.
    Counters and distributions are totals since the start unless --interval is given; --json has every metric.
    """
    from heronpy.cli.session import Session
    from heronpy.cli.silent_tasks import add_zeros
    from heronpy.common.units import format_duration, parse_duration_s
    from heronpy.proto import control_pb2 as control

    session = Session(target, common)
    component = one_component(what, component)
    check_component(session, topology, component)
    request = control.GetMetrics(
        component=component or "",
        names=list(names),
        instances=list(instances),
        interval_s=parse_duration_s(interval) if interval else 0.0,
    )
    reply = session.ask(topology, request)
    add_zeros(reply, session.packing_plan(topology), component or "", instances)
    if as_json:
        print_json(_metrics_json(topology, reply))
        return
    over = f" in the last {format_duration(reply.interval_s)}" if interval else ""
    if not (everything or names or instances) and _show_short(topology, reply, by_instance, over):
        return
    rows = combine(reply, by_instance or bool(instances))
    if not rows:
        say(_nothing(names, reply))
        return
    columns = ("instance" if by_instance or instances else "component", "metric", "label", "value", "median", "99 %")
    cells = [
        (row.owner, row.name, row.label or None, _shown(row), *(_time(row, row.quantile(q)) for q in QUANTILES))
        for row in rows
    ]
    print_table(columns, cells, f"Metrics of '{clean(topology)}'{over}", right=columns[3:])


def _show_short(topology: str, reply: control.MetricsReply, by_instance: bool, over: str) -> bool:
    """The table of first figures; False when no task has reported any."""
    from heronpy.cli.metrics_short import COLUMNS, figures
    from heronpy.common.units import format_bytes, format_duration

    rows = []
    for row in figures(reply.reports, by_instance):
        latency = _merged(row.latency())
        rows.append(
            (
                row.owner,
                *map(_whole, (row.emitted, row.executed, row.acked, row.failed)),
                _time(latency, latency.sum / latency.count) if latency is not None else None,
                _time(latency, latency.quantile(0.99)) if latency is not None else None,
                _whole(row.queue),
                None if row.cpu_s is None else f"{row.cpu_s:,.1f}s",
                None if row.memory_bytes is None else format_bytes(int(row.memory_bytes)),
            )
        )
    if rows:
        columns = ("instance" if by_instance else "component", *COLUMNS)
        print_table(columns, rows, f"Metrics of '{clean(topology)}'{over}", right=COLUMNS)
        apart = f"tasks have reported up to {format_duration(reply.apart_s)} apart; " if reply.apart_s >= 0.05 else ""
        say(f"{apart}'--all' shows every metric; 'heron top' has the counts of one moment")
    return bool(rows)


def _whole(count: float | None) -> int | None:
    return None if count is None else int(count)


def _merged(samples: list[control.Sample]) -> Combined | None:
    """One distribution of several; None for none."""
    if not samples:
        return None
    merged = Combined("", samples[0].name, "", samples[0].type)
    for sample in samples:
        merged.add(sample)
    return merged


def one_component(argument: str | None, option: str | None) -> str | None:
    """The component that was named as an argument or with --component."""
    if argument is not None and option is not None and argument != option:
        raise click.UsageError(f"two components are named, {argument} and {option}; name one")
    return argument or option


def check_component(session: Session, topology: str, component: str | None) -> None:
    """A Failure that names the nearest component when there is none of that name."""
    session.find(topology)
    if component is None:
        return
    definition = session.topology(topology)
    known = [part.comp.name for part in components_of(definition)]
    if component not in known:
        hint = exits.nearest(component, known, f"; it has {', '.join(known)}")
        raise exits.Failure(f"topology '{topology}' has no component '{component}'{hint}", exits.USAGE)


def _nothing(names: tuple[str, ...], reply: control.MetricsReply) -> str:
    if names:
        return f"No process reports {', '.join(names)}; run without --name to see what there is"
    return "No process has reported metrics yet" if not reply.reports else "No metric of that kind was reported"


@dataclass(slots=True)
class Combined:
    """One metric of one owner, over all its processes."""

    owner: str
    name: str
    label: str
    type: int
    value: float = 0.0
    sum: float = 0.0
    count: int = 0
    buckets: dict[float, int] = field(default_factory=dict)

    def add(self, sample: control.Sample) -> None:
        self.value += sample.value
        self.sum += sample.sum
        self.count += sample.count
        for bucket in sample.buckets:
            self.buckets[bucket.le] = self.buckets.get(bucket.le, 0) + bucket.count

    def quantile(self, part: float) -> float | None:
        """Upper bound of the bucket that holds this part of the observations; None when there are none."""
        if not self.buckets or not self.count:
            return None
        wanted = part * self.count
        for le in sorted(self.buckets):
            if self.buckets[le] >= wanted:
                return le
        return float("inf")


def combine(reply: control.MetricsReply, by_instance: bool) -> list[Combined]:
    """Sum the samples of all processes of a component, or keep each process apart."""
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
    from heronpy.metrics.names import find

    found = find(name)
    return found[0].unit if found else ""


def _time(row: Combined, value: float | None) -> str | None:
    from heronpy.common.units import format_duration

    if value is None:
        return None
    if not math.isfinite(value):
        return "more"  # beyond the last bucket
    if _unit(row.name) in _TIME_UNITS:
        seconds = value * _TIME_UNITS[_unit(row.name)]
        return f"{seconds * 1e9:.0f}ns" if 0 < seconds < 1e-6 else format_duration(seconds)
    return f"{value:,.0f}" if value == int(value) else f"{value:,.3f}"


_TIME_UNITS = {"ns": 1e-9, "ms": 1e-3, "seconds": 1.0}


def _shown(row: Combined) -> str:
    """A counter's or gauge's value, a distribution's mean with its number of observations."""
    from heronpy.common.units import format_bytes
    from heronpy.proto import control_pb2 as control

    if row.type == control.Sample.HISTOGRAM:
        mean = _time(row, row.sum / row.count) if row.count else "-"
        return f"{mean} (mean of {row.count:,})"
    if _unit(row.name) == "bytes":
        return format_bytes(int(row.value))
    return _time(row, row.value) or "-"


def _metrics_json(topology: str, reply: control.MetricsReply) -> dict[str, Any]:
    from heronpy.proto import control_pb2 as control

    return {
        "topology": topology,
        "interval_s": reply.interval_s,
        "apart_s": reply.apart_s,
        "processes": [
            {
                "process": report.process,
                "component": report.component,
                "task_id": report.task_id,
                "container": report.container,
                "pid": report.pid,
                "metrics": [
                    {
                        "name": sample.name,
                        "label": sample.label,
                        "type": control.Sample.Type.Name(sample.type).lower(),
                        **(
                            {
                                "count": sample.count,
                                "sum": sample.sum,
                                "buckets": [
                                    {"le": bucket.le if bucket.le != float("inf") else "+Inf", "count": bucket.count}
                                    for bucket in sample.buckets
                                ],
                            }
                            if sample.type == control.Sample.HISTOGRAM
                            else {"value": sample.value}
                        ),
                    }
                    for sample in report.samples
                ],
            }
            for report in reply.reports
        ],
    }


@click.command("exceptions", cls=Reading)
@reading_target
@topology_argument
@component_argument
@click.option("--component", metavar="NAME", help="Only this component.", shell_complete=complete.components)
@click.option("--task", type=click.IntRange(min=1), metavar="ID", help="Only the task with this id.",
              shell_complete=complete.tasks)  # fmt: skip
@click.option("--summary", is_flag=True, help="A table without tracebacks.")
@click.option("--all", "everything", is_flag=True, help="Each kind of each task by itself, with its whole traceback.")
@json_flag
@common_flags
def exceptions_command(
    target: Target,
    topology: str,
    what: str | None,
    component: str | None,
    task: int | None,
    summary: bool,
    everything: bool,
    as_json: bool,
    common: Common,
) -> None:
    """Show the exceptions that user code raised, grouped by type and line, each with one whole traceback."""
    from heronpy.cli.exception_groups import groups_of
    from heronpy.cli.session import Session
    from heronpy.proto import control_pb2 as control

    session = Session(target, common)
    component = one_component(what, component)
    check_component(session, topology, component)
    reply = session.ask(topology, control.GetExceptions(component=component or "", task_id=task or 0))
    groups = groups_of(reply.exceptions)
    if as_json:
        print_json({**_exceptions_json(topology, reply), "groups": [group.as_json() for group in groups]})
        return
    if not reply.exceptions:
        say(f"No exceptions in topology '{topology}'")
    elif summary:
        rows = [
            (
                group.type,
                group.where or None,
                group.messages[0][:200],
                group.count,
                len(group.tasks),
                moment(group.first_at),
                moment(group.last_at),
            )
            for group in groups
        ]
        print_table(("type", "where", "message", "count", "tasks", "first", "last"), rows, right=("count", "tasks"))
    elif everything:
        say("\n\n".join(exception_text(item) for item in reply.exceptions))
    else:
        say("\n\n".join(group_text(group) for group in groups))
    if reply.discarded:
        say(f"\n{reply.discarded:,} further kinds of exceptions were not kept; see the logs")


def group_text(group: Group) -> str:
    """One group for people: what, where, how often, which tasks, and the newest traceback whole."""
    from heronpy.cli.exception_groups import MESSAGES_MAX
    from heronpy.cli.waiting import listed

    times = "once" if group.count == 1 else f"{group.count:,} times"
    where = f" at {clean(group.where)}" if group.where else ""
    phase = " while it started" if group.startup else ""
    lines = [f"{clean(group.type)}{where}{phase}: {times}"]
    lines.append(f"  tasks     {clean(listed(sorted(group.tasks)))}")
    when = moment(group.last_at) if group.count == 1 else f"{moment(group.first_at)} to {moment(group.last_at)}"
    lines.append(f"  seen      {when}")
    others = [clean(message[:200]) for message in group.messages[1 : MESSAGES_MAX + 1]]
    if others:
        left = len(group.messages) - 1 - len(others)
        lines += [f"  {'also' if number == 0 else '':<9} {message}" for number, message in enumerate(others)]
        lines += [f"            and {left:,} more messages"] if left else []
    body = group.newest.traceback or f"{group.type}: {group.newest.message}"
    return "\n".join(lines) + f"\n{clean_block(body).rstrip()}"


def exception_text(item: control.ExceptionReport) -> str:
    """One exception for people, with its traceback whole."""
    where = clean(item.instance_id or item.process)
    times = "once" if item.count <= 1 else f"{item.count:,} times, first {moment(item.first_at)}, last"
    phase = " while it started" if item.startup else ""
    head = f"{where}: {clean(item.type)}{phase}, {times} {moment(item.last_at)}"
    body = item.traceback or f"{item.type}: {item.message}"
    return f"{head}\n{clean_block(body).rstrip()}"


def _exceptions_json(topology: str, reply: control.ExceptionsReply) -> dict[str, Any]:
    return {
        "topology": topology,
        "discarded": reply.discarded,
        "exceptions": [
            {
                "instance_id": item.instance_id,
                "process": item.process,
                "component": item.component,
                "task_id": item.task_id,
                "container": item.container,
                "type": item.type,
                "message": item.message,
                "traceback": item.traceback,
                "first_at": item.first_at,
                "last_at": item.last_at,
                "count": item.count,
                "startup": item.startup,
            }
            for item in reply.exceptions
        ],
    }
