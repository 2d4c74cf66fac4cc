"""What `heron status` says of the Spark sinks of a topology: rows, batches, time per batch, lag."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from heronpy.cli import exits
from heronpy.cli.look.figures import Combined
from heronpy.clusters.session import Session
from heronpy.common.errors import HeronError
from heronpy.common.setting_types import SparkSettings
from heronpy.common.settings import settings_for
from heronpy.common.units import format_duration
from heronpy.connectors.spark import needs_spark
from heronpy.proto import control_pb2

ASK_S = 1.0
GATEWAY = "spark-gateway"
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
    found: defaultdict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(_NAMES.values(), 0.0))
    times: dict[tuple[str, str], Combined] = {}
    ui = ""
    for sample in (sample for report in reply.reports for sample in report.samples):
        if sample.name == _PORT and sample.value:
            ui = f"http://{host}:{sample.value:.0f}"
        elif sample.label and sample.name in _NAMES:
            found[sample.label][_NAMES[sample.name]] += sample.value
        elif sample.name in _TIMES:
            key = (sample.label, _TIMES[sample.name])
            times.setdefault(key, Combined("", sample.name, "", sample.type)).add(sample)
    # A gateway that was killed has not told its last counts, nor may a topology master know those of all.
    least = reply.resumed_s > 0 or any(report.at_least for report in reply.reports)
    sinks = []
    for component, values in sorted(found.items()):
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
                **{name: _quantiles(times.get((component, name))) for name in _TIMES.values()},
            }
        )
    return {"sinks": sinks, "ui": ui}


def _quantiles(times: Combined | None) -> dict[str, float | bool | None] | None:
    """Seconds at the median and at 99 %, and whether they are lower bounds. None without a batch."""
    if times is None or not times.count:
        return None
    found: dict[str, float | bool | None] = {}
    for name, part in (("p50", 0.5), ("p99", 0.99)):
        one = times.quantile(part)
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
