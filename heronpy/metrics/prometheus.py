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
from dataclasses import dataclass
from functools import cache

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

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


@dataclass(frozen=True, slots=True)
class _Series:
    """What is the same on each page of one sample: everything but its numbers."""

    #: Name on the page, HELP and TYPE of its family, type.
    shown: str
    about: str
    kind: Kind
    #: The lines without their numbers.
    heads: tuple[str, ...]
    per_base: float


#: Process, name, label, type, bounds of the buckets.
_Key = tuple[str, str, str, int, tuple[float, ...]]


class Page:
    """The reports of one container as a page, families sorted by name.

    prometheus_client takes 12 us a series, of which nearly all goes into names and labels. So it writes these once, and
    later pages of the same processes only get new numbers: 5,000 series take a quarter of the time.
    """

    def __init__(self, topology: str) -> None:
        self._topology = topology
        #: Those of the last page.
        self._known: dict[_Key, _Series] = {}

    def text(self, reports: Iterable[control_pb2.MetricsReport]) -> str:
        """The page for these reports."""
        chosen, discarded = self._chosen(reports)
        if discarded:
            over = control_pb2.Sample(
                name="__executor/__series_discarded", type=control_pb2.Sample.GAUGE, value=discarded
            )
            chosen.append((_key("", over), over, {"topology": self._topology}))
        self._learn([one for one in chosen if one[0] not in self._known])
        self._known = {key: self._known[key] for key, _, _ in chosen}
        families: dict[str, tuple[Kind, list[str]]] = {}
        for key, sample, _ in chosen:
            series = self._known[key]
            kind, lines = families.setdefault(series.shown, (series.kind, [series.about]))
            if kind is series.kind:  # else two tasks disagree about a user's metric; one name has one type
                numbers = _numbers(sample, series)
                lines += [f"{head} {_shown(n)}\n" for head, n in zip(series.heads, numbers, strict=True)]
        return "".join(line for shown in sorted(families) for line in families[shown][1])

    def _chosen(
        self, reports: Iterable[control_pb2.MetricsReport]
    ) -> tuple[list[tuple[_Key, control_pb2.Sample, dict[str, str]]], int]:
        """The samples that go on the page with their places, and the number of the others."""
        found: list[tuple[_Key, control_pb2.Sample, dict[str, str]]] = []
        discarded = 0
        for report in reports:
            place = _place(self._topology, report)
            for sample in report.samples:
                if len(found) < SERIES_MAX:
                    found.append((_key(report.process, sample), sample, place))
                else:
                    discarded += 1
        return found, discarded

    def _learn(self, unknown: list[tuple[_Key, control_pb2.Sample, dict[str, str]]]) -> None:
        """Have prometheus_client write them, a family each, and keep all but the numbers."""
        made = [_family(sample, place) for _, sample, place in unknown]
        lines = iter(generate_latest(_Families([family for family, _, _ in made])).decode().split("\n"))
        for (key, _, _), (family, kind, per_base) in zip(unknown, made, strict=True):
            about = f"{next(lines)}\n{next(lines)}\n"
            heads = tuple(next(lines).rpartition(" ")[0] for _ in family.samples)
            shown = f"{family.name}_total" if kind is Kind.COUNTER else family.name
            self._known[key] = _Series(shown, about, kind, heads, per_base)


class _Families(Collector):
    """Families as prometheus_client wants them."""

    def __init__(self, families: list[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        """See `Collector`."""
        return self._families


def _key(process: str, sample: control_pb2.Sample) -> _Key:
    return process, sample.name, sample.label, sample.type, tuple(bucket.le for bucket in sample.buckets)


def _family(sample: control_pb2.Sample, place: dict[str, str]) -> tuple[Family, Kind, float]:
    """One sample as a family, with its type and the number of its units in a base unit."""
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
    per_base = _BASE_UNITS.get(metric.unit, ("", 1.0))[1]
    family = Family(name, metric.help, kind.value)
    labels = place | _label(metric, sample.label or rest)
    if kind is Kind.HISTOGRAM:
        for bound in _bounds(sample):
            le = "+Inf" if math.isinf(bound) else repr(bound / per_base).removesuffix(".0")
            family.add_sample(f"{name}_bucket", {**labels, "le": le}, 0)
        family.add_sample(f"{name}_sum", labels, 0)
        family.add_sample(f"{name}_count", labels, 0)
    else:
        family.add_sample(f"{name}_total" if kind is Kind.COUNTER else name, labels, 0)
    return family, kind, per_base


def _bounds(sample: control_pb2.Sample) -> dict[float, int]:
    """The counts by bound, with that of infinity at the end."""
    found = {bucket.le: bucket.count for bucket in sample.buckets}
    return {**found, math.inf: found.get(math.inf, sample.count)}


def _numbers(sample: control_pb2.Sample, series: _Series) -> list[float]:
    if series.kind is Kind.HISTOGRAM:
        return [*_bounds(sample).values(), sample.sum / series.per_base, sample.count]
    return [sample.value / series.per_base]


def _shown(number: float) -> str:
    text: str = floatToGoString(number)  # type: ignore[no-untyped-call]
    return text


def _place(topology: str, report: control_pb2.MetricsReport) -> dict[str, str]:
    place = {"topology": topology, "container": str(report.container), "process": report.process}
    if report.task_id:
        place |= {"instance_id": report.process, "component": report.component, "task": str(report.task_id)}
    return place


@cache
def own_name(metric: Metric) -> str:
    """The name of one of our metrics on the page, without `_total`: the unit, a base unit, comes last."""
    words = _fit(metric.name.replace("-", "_")).split("_")
    if metric.unit:
        words = [word for word in words if word not in _UNIT_WORDS]
        words.append(_BASE_UNITS[metric.unit][0])
    elif metric.kind is Kind.GAUGE and words[-1] == _COUNT:
        del words[-1]
    elif words[-2:] == ["per", "sec"]:
        words[-1] = "second"
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
