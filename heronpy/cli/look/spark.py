"""Spark sinks in `heron status`: rows, batches, time per batch, lag."""

from __future__ import annotations

from typing import Any

from heronpy.clusters.session import Session
from heronpy.common.errors import HeronError
from heronpy.common.setting_types import SparkSettings
from heronpy.common.settings import settings_for
from heronpy.common.units import format_duration
from heronpy.connectors.spark import needs_spark
from heronpy.metrics.quantiles import quantile
from heronpy.proto import control_pb2
from heronpy.views.saved import GATEWAY, batches_of

ASK_S = 1.0
_NAMES = (
    "spark-rows-committed", "spark-batches-committed", "spark-batches-failed", "spark-seconds", "spark-lag-seconds",
    "spark-batches-running", "spark-ui-port",
)  # fmt: skip
#: Distribution of seconds -> names of its quantiles.
_TIMES = {
    "spark-wait-seconds": "waited_s",
    "spark-run-seconds": "run_s",
    "spark-publish-seconds": "publish_s",
}


def as_json(session: Session, status: control_pb2.StatusReply) -> dict[str, Any] | None:
    """Return the Spark sinks for `heron status --json`; None if there are none, or without an answer."""
    if not needs_spark(status.plan.topology):
        return None
    try:
        request = control_pb2.GetMetrics(names=[*_NAMES, *_TIMES], instances=[GATEWAY])
        reply = session.ask(status.topology, request, ASK_S)
    except HeronError:
        return None  # the status is complete without it
    settings = settings_for(session.settings_of(session.find(status.topology)), SparkSettings)
    hosts = {executor.container: executor.host for executor in status.executors}
    # A local master serves its pages on loopback.
    host = "127.0.0.1" if settings.master.startswith("local") else hosts.get(0, "")
    return figures(reply, host)


def figures(reply: control_pb2.MetricsReply, host: str) -> dict[str, Any]:
    """Return the figures of each sink, and the address of Spark's own pages on this host ("" if they are off)."""
    found = batches_of(reply, host)
    times: dict[tuple[str, str], list[control_pb2.Sample]] = {}
    for sample in (sample for report in reply.reports for sample in report.samples):
        times.setdefault((sample.label, sample.name), []).append(sample)
    # A killed gateway did not report its last counts, and a new topology master may lack reports of ended gateways.
    least = reply.resumed_s > 0 or any(report.at_least for report in reply.reports)
    sinks = [
        {
            "component": sink.component,
            "at_least": least,
            "rows": sink.rows,
            "batches": sink.committed,
            "failed_batches": sink.failed,
            "seconds_per_batch": sink.seconds_per_batch,
            "lag_s": sink.lag_s or 0.0,
            "running": sink.running,
            **{word: _quantiles(times.get((sink.component, name), [])) for name, word in _TIMES.items()},
        }
        for sink in found.sinks
    ]
    return {"sinks": sinks, "ui": found.spark_ui or ""}


def _quantiles(times: list[control_pb2.Sample]) -> dict[str, float | bool | None] | None:
    """Return median and 99th percentile in seconds, and whether they are lower bounds; None without a batch."""
    found: dict[str, float | bool | None] = {}
    for name, part in (("p50", 0.5), ("p99", 0.99)):
        one = quantile(times, part)
        if one is not None:
            found |= {name: one.value, f"{name}_at_least": one.at_least}
    return found or None


def _times_text(sink: dict[str, Any]) -> str:
    """Return the median and the 99th percentile of the batch times as text."""
    parts = []
    for name, word in (("waited_s", "waits"), ("run_s", "runs"), ("publish_s", "publishes")):
        if sink[name] is not None:
            middle, high = (_shown(sink[name], part) for part in ("p50", "p99"))
            parts.append(f"{word} {middle} (99 %: {high})")
    return f"; {', '.join(parts)}" if parts else ""


def _shown(found: dict[str, Any], part: str) -> str:
    return ("> " if found[f"{part}_at_least"] else "") + format_duration(found[part])


def _batches(count: int) -> str:
    return f"{count:,} batch" + ("" if count == 1 else "es")


def lines(shown: dict[str, Any] | None) -> list[str]:
    """Return one line for each sink, and one for Spark's own pages."""
    if shown is None:
        return []
    found = []
    for sink in shown["sinks"]:
        each, least = sink["seconds_per_batch"], "at least " if sink["at_least"] else ""
        found.append(
            f"{sink['component']}: {least}{sink['rows']:,} rows in {_batches(sink['batches'])}"
            + (f", {format_duration(each)} each" if each is not None else "")
            + f", lag {format_duration(sink['lag_s'])}"
            + (f", {sink['running']:,} in progress" if sink["running"] else "")
            + (f", {_batches(sink['failed_batches'])} failed (see 'heron batches')" if sink["failed_batches"] else "")
            + _times_text(sink)
        )
    return found + ([f"Spark's pages: {shown['ui']}"] if shown["ui"] else [])
