"""Pipelines of work units in `heron status` and `heron top`: backlog, age, units, bad ranges."""

from __future__ import annotations

from typing import Any

from msgspec import to_builtins

from heronpy.clusters.session import Session
from heronpy.common.errors import HeronError
from heronpy.common.units import counted, format_bytes, format_duration
from heronpy.ingest.keys import has_units
from heronpy.metrics.names import UNIT_METRICS
from heronpy.proto import control_pb2
from heronpy.views.units import Pipeline, pipelines_of

ASK_S = 1.0
REQUEST = control_pb2.GetMetrics(names=UNIT_METRICS)


def ask(session: Session, status: control_pb2.StatusReply) -> list[Pipeline] | None:
    """Return the pipelines of a topology; None if there are none, or if there is no answer."""
    if not has_units(status.plan.topology):
        return None
    try:
        return pipelines_of(session.ask(status.topology, REQUEST, ASK_S)).pipelines
    except HeronError:
        return None  # the status is complete without it


def as_json(session: Session, status: control_pb2.StatusReply) -> dict[str, Any]:
    """Return the pipelines for `heron status --json` and `heron top --json`."""
    found = ask(session, status)
    return {"units": to_builtins(found) if found is not None else None}


def lines(pipelines: list[Pipeline] | None) -> list[str]:
    return [_line(one) for one in pipelines or ()]


def _line(one: Pipeline) -> str:
    oldest = f", the oldest byte for {format_duration(one.oldest_s)}" if one.backlog_bytes else ""
    least = "at least " if one.at_least else ""
    said = [
        f"{one.name}: {least}{one.published_rows:,} rows of {format_bytes(one.published_bytes)}"
        " published since the topology was submitted",
        f"{format_bytes(one.backlog_bytes)} wait{oldest}",
        f"units {one.ready} ready, {one.leased} in progress, {one.committed} to publish",
    ]
    if one.backups or one.attempts_in_vain:
        said.append(f"{counted(one.backups, 'backup')}, {one.backups_won} won, {one.attempts_in_vain} discarded")
    if one.bad_ranges:
        said.append(f"{counted(one.bad_ranges, 'bad range')} of {format_bytes(one.bad_bytes)}")
    if one.failed:
        said.append(f"{counted(one.failed, 'unit')} FAILED (heron units show {one.name})")
    return "; ".join(said)
