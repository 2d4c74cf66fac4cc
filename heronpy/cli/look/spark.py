"""What `heron status` says of the Spark sinks of a topology: rows, batches, time per batch, lag."""

from __future__ import annotations

from typing import Any

from heronpy.cli import exits
from heronpy.clusters.session import Session
from heronpy.common.errors import HeronError
from heronpy.common.setting_types import SparkSettings
from heronpy.common.settings import settings_for
from heronpy.common.units import format_duration
from heronpy.connectors.spark import needs_spark
from heronpy.metrics.quantiles import quantiles
from heronpy.proto import control_pb2
from heronpy.views.saved import GATEWAY, of_sinks

ASK_S = 1.0
_NAMES = {
    "spark-rows-committed": "rows",
    "spark-batches-committed": "batches",
    "spark-batches-failed": "failed_batches",
    "spark-seconds": "seconds",
    "spark-lag-seconds": "lag_s",
    "spark-batches-running": "running",
}
#: Distributions of seconds, and what their quantiles are called.
_TIMES = {
    "spark-wait-seconds": "waited_s",
    "spark-run-seconds": "run_s",
    "spark-publish-seconds": "publish_s",
}
_PORT = "spark-ui-port"


def as_json(session: Session, status: control_pb2.StatusReply) -> dict[str, Any] | None:
    """The documented part of `heron status --json`; None without a Spark sink, or without an answer."""
    if not needs_spark(status.plan.topology):
        return None
    try:
        request = control_pb2.GetMetrics(names=[*_NAMES, *_TIMES, _PORT], instances=[GATEWAY])
        reply = session.ask(status.topology, request, ASK_S)
    except (HeronError, exits.Failure):
        return None  # the status stands without it
    settings = settings_for(session.settings_of(session.find(status.topology)), SparkSettings)
    hosts = {executor.container: executor.host for executor in status.executors}
    # The pages of a local master are on loopback.
    host = "127.0.0.1" if settings.master.startswith("local") else hosts.get(0, "")
    return figures(reply, host)


def figures(reply: control_pb2.MetricsReply, host: str) -> dict[str, Any]:
    """Figures of each sink by component, and the address of Spark's own pages on this host ("" when off)."""
    found, times = of_sinks(reply)
    port = found.pop("", {}).get(_PORT)
    # A gateway that was killed has not told its last counts, nor may a topology master know those of all.
    least = reply.resumed_s > 0 or any(report.at_least for report in reply.reports)
    sinks = []
    for component, told in sorted(found.items()):
        values = {name: told.get(metric, 0.0) for metric, name in _NAMES.items()}
        took = times.get(component, {})
        ended = values["batches"] + values["failed_batches"]
        sinks.append(
            {
                "component": component,
                "at_least": least,
                "rows": int(values["rows"]),
                "batches": int(values["batches"]),
                "failed_batches": int(values["failed_batches"]),
                "seconds_per_batch": values["seconds"] / ended if ended else None,
                "lag_s": values["lag_s"],
                "running": int(values["running"]),
                **{name: _quantiles(took.get(metric, [])) for metric, name in _TIMES.items()},
            }
        )
    return {"sinks": sinks, "ui": f"http://{host}:{port:.0f}" if port else ""}


def _quantiles(samples: list[control_pb2.Sample]) -> dict[str, float | bool | None] | None:
    """Seconds at the median and at 99 %, and whether they are lower bounds. None without a batch."""
    if not any(sample.count for sample in samples):
        return None
    found: dict[str, float | bool | None] = {}
    for name, one in zip(("p50", "p99"), quantiles(samples, (0.5, 0.99)), strict=True):
        found[name], found[f"{name}_at_least"] = (one.value, one.at_least) if one is not None else (None, False)
    return found


def _times_text(sink: dict[str, Any]) -> str:
    """What the batches took, median and 99 %."""
    parts = []
    for name, word in (("waited_s", "waits"), ("run_s", "runs"), ("publish_s", "publishes")):
        if sink[name] is not None:
            middle, high = (_shown(sink[name], part) for part in ("p50", "p99"))
            parts.append(f"{word} {middle} (99 %: {high})")
    return f"; {', '.join(parts)}" if parts else ""


def _shown(found: dict[str, Any], part: str) -> str:
    if found[part] is None:
        return "-"
    return ("> " if found[f"{part}_at_least"] else "") + format_duration(found[part])


def _batches(count: int) -> str:
    return f"{count:,} batch" + ("" if count == 1 else "es")


def lines(shown: dict[str, Any] | None) -> list[str]:
    """A line for each sink, and one for Spark's own pages."""
    if shown is None:
        return []
    found = []
    for sink in shown["sinks"]:
        each, least = sink["seconds_per_batch"], "at least " if sink["at_least"] else ""
        found.append(
            f"{sink['component']}: {least}{sink['rows']:,} rows in {_batches(sink['batches'])}"
            + (f", {format_duration(each)} each" if each is not None else "")
            + f", lag {format_duration(sink['lag_s'])}"
            + (f", {sink['running']:,} in work" if sink["running"] else "")
            + (f", {_batches(sink['failed_batches'])} FAILED" if sink["failed_batches"] else "")
            + _times_text(sink)
        )
    return found + ([f"its pages: {shown['ui']}"] if shown["ui"] else [])
