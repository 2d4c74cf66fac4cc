"""MetricsReports as a page for Prometheus.

A series is located by the labels topology, container, process, instance_id, component and
task; never by `instance`, which Prometheus sets itself. Times are in seconds and sizes in bytes, whatever the unit
of the metric. One name has one type, and the page holds at most `SERIES_MAX` series;
`heron_executor_series_discarded` says how many were left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import cache

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from heronpy.metrics.names import Kind, Metric, find
from heronpy.proto import control_pb2

CONTENT_TYPE = CONTENT_TYPE_LATEST
#: Series on one page; more would overload Prometheus.
SERIES_MAX = 20_000

_KINDS = {
    control_pb2.Sample.COUNTER: Kind.COUNTER,
    control_pb2.Sample.GAUGE: Kind.GAUGE,
    control_pb2.Sample.HISTOGRAM: Kind.HISTOGRAM,
}
_UNFIT = re.compile(r"[^a-zA-Z0-9_]+")
#: The base unit of each of our units, which ends the name, and how many of ours it has.
_BASE_UNITS = {
    "ns": ("seconds", 1e9),
    "us": ("seconds", 1e6),
    "ms": ("seconds", 1e3),
    "seconds": ("seconds", 1.0),
    "bytes": ("bytes", 1.0),
}
#: Units within a name, and Heron's word for a number, which Prometheus keeps for histograms.
_UNIT_WORDS = {"ns", "usec", "ms", "sec", "secs", "seconds", "byte", "bytes"}
_COUNT = "count"


def exposition(topology: str, reports: Iterable[control_pb2.MetricsReport]) -> str:
    """The page for these reports."""
    return generate_latest(_Reports(topology, reports)).decode()


class _Reports(Collector):
    """The reports of one container as metric families, sorted by name."""

    def __init__(self, topology: str, reports: Iterable[control_pb2.MetricsReport]) -> None:
        self._topology = topology
        self._reports = reports
        self._families: dict[str, Family] = {}

    def collect(self) -> Iterable[Family]:
        """See `Collector`."""
        series = discarded = 0
        for report in self._reports:
            place = _place(self._topology, report)
            for sample in report.samples:
                if series >= SERIES_MAX:
                    discarded += 1
                    continue
                series += 1
                self._add(sample, place)
        if discarded:
            sample = control_pb2.Sample(
                name="__executor/__series_discarded", type=control_pb2.Sample.GAUGE, value=discarded
            )
            self._add(sample, {"topology": self._topology})
        return [self._families[name] for name in sorted(self._families)]

    def _add(self, sample: control_pb2.Sample, place: dict[str, str]) -> None:
        found = find(sample.name)
        kind = _KINDS.get(sample.type, Kind.GAUGE)
        if found is None:
            # A user's own metric: a prefix keeps it from colliding with ours.
            metric, rest = Metric(sample.name, kind, "", "key", f"Metric {sample.name} of the topology."), ""
            name = f"heron_user_{_fit(sample.name)}"
        else:
            metric, rest = found
            name = own_name(metric)
            if Kind.HISTOGRAM not in (kind, metric.kind):
                kind = metric.kind
        shown = f"{name}_total" if kind is Kind.COUNTER else name
        family = self._families.get(shown)
        if family is None:
            family = self._families[shown] = Family(name, metric.help, kind.value)
        elif family.type != kind.value:
            return  # Two tasks disagree about a user's metric; one name has one type.
        labels = place | _label(metric, sample.label or rest)
        per_base = _BASE_UNITS.get(metric.unit, ("", 1.0))[1]
        if kind is Kind.HISTOGRAM:
            _add_histogram(family, sample, labels, per_base)
        else:
            family.add_sample(shown, labels, sample.value / per_base)


def _place(topology: str, report: control_pb2.MetricsReport) -> dict[str, str]:
    place = {"topology": topology, "container": str(report.container), "process": report.process}
    if report.task_id:
        place |= {"instance_id": report.process, "component": report.component, "task": str(report.task_id)}
    return place


def _add_histogram(family: Family, sample: control_pb2.Sample, labels: dict[str, str], per_base: float) -> None:
    bounds = {bucket.le / per_base: bucket.count for bucket in sample.buckets}
    for bound, count in {**bounds, math.inf: bounds.get(math.inf, sample.count)}.items():
        le = "+Inf" if math.isinf(bound) else repr(bound).removesuffix(".0")
        family.add_sample(f"{family.name}_bucket", {**labels, "le": le}, count)
    family.add_sample(f"{family.name}_sum", labels, sample.sum / per_base)
    family.add_sample(f"{family.name}_count", labels, sample.count)


@cache
def own_name(metric: Metric) -> str:
    """The name of one of our metrics on the page, without `_total`: the unit, a base unit, comes last."""
    words = _fit(metric.name.replace("-", "_")).split("_")
    if metric.unit:
        words = [word for word in words if word not in _UNIT_WORDS]
        words.append(_BASE_UNITS[metric.unit][0])
    elif metric.kind is Kind.GAUGE and words[-1] == _COUNT:
        del words[-1]
    return "_".join(("heron", *words))


def _fit(name: str) -> str:
    fitted = _UNFIT.sub("_", name).strip("_") or "unnamed"
    return re.sub("__+", "_", fitted)


def _label(metric: Metric, label: str) -> dict[str, str]:
    if not label:
        return {}
    if metric.label == "source":
        component, slash, stream = label.rpartition("/")
        return {"source_component": component, "stream": stream} if slash else {"stream": label}
    return {metric.label or "key": label}
