"""Pipelines of work units, as reported by their keepers and workers. Pure."""

from __future__ import annotations

from collections import defaultdict

from msgspec import Struct

from heronpy.common.units import counted, format_bytes, format_duration
from heronpy.metrics.names import Kind, find
from heronpy.proto import control_pb2

#: Metric name to field; the label is the pipeline.
_FIELDS = {
    "units-backlog-bytes": "backlog_bytes",
    "units-waiting-bytes": "waiting_bytes",
    "units-oldest-seconds": "oldest_s",
    "units-unfinished-bytes": "unfinished_bytes",
    "units-ready": "ready",
    "units-leased": "leased",
    "units-committed": "committed",
    "units-failed": "failed",
    "units-bad-bytes": "bad_bytes",
    "units-bad-ranges": "bad_ranges",
    "units-published": "published_units",
    "units-published-bytes": "published_bytes",
    "units-published-rows": "published_rows",
    "units-attempts": "attempts",
    "units-tries-failed": "tries_failed",
    "units-backups": "backups",
    "units-backups-won": "backups_won",
    "units-attempts-in-vain": "attempts_in_vain",
}


class Table(Struct, kw_only=True):
    """Figures as text, for the command and the page."""

    titles: list[str]
    rows: list[list[str]]


class Pipeline(Struct, kw_only=True):
    """The progress of a pipeline from growing log files to an output. Bytes are bytes of the files."""

    name: str
    #: Unpublished bytes, and unpublished bytes that are in no unit yet.
    backlog_bytes: int
    waiting_bytes: int
    #: Age of the oldest waiting bytes; 0 if no bytes wait.
    oldest_s: float
    #: Bytes of unfinished last lines.
    unfinished_bytes: int
    #: Number of units that wait for a worker, for their commit, for publication, and for a user.
    ready: int
    leased: int
    committed: int
    failed: int
    bad_bytes: int
    bad_ranges: int
    #: Counts since the topology was submitted.
    published_units: int
    published_bytes: int
    published_rows: int
    attempts: int
    tries_failed: int
    #: Backup attempts, backup attempts that won, and attempts that another attempt made unnecessary.
    backups: int
    backups_won: int
    attempts_in_vain: int
    #: Whether these counts are lower bounds, because a process ended without reporting its last counts.
    at_least: bool = False


class Pipelines(Struct, kw_only=True):
    """`GET /units`: the pipelines of work units."""

    pipelines: list[Pipeline]
    #: The figures as a table with one row per pipeline.
    table: Table


def pipelines_of(reply: control_pb2.MetricsReply) -> Pipelines:
    """Return the answer to `GET /units`; a pipeline appears when one of its tasks has reported.

    All counts are lower bounds if the topology master lacks the counts of ended processes.
    """
    found: defaultdict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(_FIELDS.values(), 0.0))
    lacking: set[str] = set()
    resumed = reply.resumed_s > 0
    for least, sample in ((one.at_least or resumed, sample) for one in reply.reports for sample in one.samples):
        field = _FIELDS.get(sample.name)
        if field is None or not sample.label:
            continue
        values, known = found[sample.label], find(sample.name)
        if known is not None and known[0].kind is Kind.GAUGE:
            values[field] = max(values[field], sample.value)  # each keeper reports the whole pipeline
        else:
            values[field] += sample.value
            if least:
                lacking.add(sample.label)
    pipelines = [_pipeline(name, values, name in lacking) for name, values in sorted(found.items())]
    return Pipelines(pipelines=pipelines, table=Table(titles=list(_TITLES), rows=[_row(one) for one in pipelines]))


def _pipeline(name: str, values: dict[str, float], at_least: bool) -> Pipeline:
    oldest_s = values.pop("oldest_s")
    counts = {field: int(value) for field, value in values.items()}
    return Pipeline(name=name, oldest_s=oldest_s, at_least=at_least, **counts)


_TITLES = ("pipeline", "units", "published", "waits", "attempts", "problems")


def _row(one: Pipeline) -> list[str]:
    least = "at least " if one.at_least else ""
    oldest = f", the oldest byte for {format_duration(one.oldest_s)}" if one.backlog_bytes else ""
    failed = f"{counted(one.failed, 'unit')} FAILED" if one.failed else ""
    bad = f"{counted(one.bad_ranges, 'bad range')} of {format_bytes(one.bad_bytes)}" if one.bad_ranges else ""
    return [
        one.name,
        f"{one.ready:,} ready, {one.leased:,} in progress, {one.committed:,} to publish",
        f"{least}{one.published_rows:,} rows of {format_bytes(one.published_bytes)}",
        f"{format_bytes(one.backlog_bytes)}{oldest}",
        least + attempts_text(one.attempts, one.backups, one.backups_won, one.attempts_in_vain, one.tries_failed),
        ", ".join(part for part in (failed, bad) if part),
    ]


def attempts_text(
    attempts: int, backups: int = 0, won: int = 0, in_vain: int = 0, failed: int = 0, preempted: int = 0
) -> str:
    """Format the attempts, such as `2,803: 9 backups (6 won), 3 preempted`."""
    parts = [
        f"{counted(backups, 'backup')} ({won:,} won)" if backups else "",
        f"{preempted:,} preempted" if preempted else "",
        f"{in_vain:,} superseded" if in_vain else "",
        f"{failed:,} failed {'try' if failed == 1 else 'tries'}" if failed else "",
    ]
    told = ", ".join(part for part in parts if part)
    return f"{attempts:,}: {told}" if told else f"{attempts:,}"
