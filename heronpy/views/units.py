"""Pipelines of work units, as their keepers and workers report them. Pure."""

from __future__ import annotations

from collections import defaultdict

from msgspec import Struct

from heronpy.metrics.names import Kind, find
from heronpy.proto import control_pb2

#: Field by name of the metric; the label is the pipeline.
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


class Pipeline(Struct, kw_only=True):
    """Growing log files on their way into an output. Bytes are those of the files."""

    name: str
    #: Bytes not published yet, and those of them that are in no unit yet.
    backlog_bytes: int
    waiting_bytes: int
    #: Age of the oldest waiting bytes; 0 without any.
    oldest_s: float
    #: Bytes of unfinished last lines.
    unfinished_bytes: int
    #: Units by what they wait for: a worker, its commit, publication, a user.
    ready: int
    leased: int
    committed: int
    failed: int
    bad_bytes: int
    bad_ranges: int
    #: Since the topology was submitted.
    published_units: int
    published_bytes: int
    published_rows: int
    attempts: int
    tries_failed: int
    #: Backup attempts, backups that won, and attempts of any kind that others made unnecessary.
    backups: int
    backups_won: int
    attempts_in_vain: int
    #: What is counted since the submit is a lower bound: a process has ended without its last counts.
    at_least: bool = False


class Pipelines(Struct, kw_only=True):
    """`GET /units`"""

    pipelines: list[Pipeline]


def pipelines_of(reply: control_pb2.MetricsReply) -> Pipelines:
    """`GET /units`: a pipeline is there once one of its tasks has reported.

    Counts are lower bounds also when the topology master does not know those of processes that have ended.
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
            values[field] = max(values[field], sample.value)  # each keeper tells of all of it
        else:
            values[field] += sample.value
            if least:
                lacking.add(sample.label)
    return Pipelines(pipelines=[_pipeline(name, values, name in lacking) for name, values in sorted(found.items())])


def _pipeline(name: str, values: dict[str, float], at_least: bool) -> Pipeline:
    oldest_s = values.pop("oldest_s")
    counts = {field: int(value) for field, value in values.items()}
    return Pipeline(name=name, oldest_s=oldest_s, at_least=at_least, **counts)
