"""MetricsReports as a page for Prometheus. Pure.

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
from typing import NamedTuple

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


class _Series(NamedTuple):
    """What is the same on each page of one sample: everything but its numbers."""

    #: Name on the page, HELP and TYPE of its family, type.
    shown: str
    about: str
    kind: Kind
    #: The lines without their numbers.
    heads: list[str]
    per_base: float


#: Name and type of a sample.
_Name = tuple[str, int]
#: Additional labels of a line, besides those of its process.
_Own = tuple[tuple[str, str], ...]
#: Process, name, label, type, bounds of the buckets.
_Key = tuple[str, str, str, int, tuple[float, ...]]


class Page:
    """The reports of one container as a page, families sorted by name.

    prometheus_client takes 12 us a series, of which nearly all goes into names and labels. So it writes each family and
    each label once, and later pages of the same processes only get new numbers: of 5,000 series the first page takes
    half of the time, a later one a quarter.
    """

    def __init__(self, topology: str) -> None:
        self._topology = topology
        #: Series of the last page.
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
            shown, about, own_kind, heads, per_base = self._known[key]
            family = families.get(shown)
            if family is None:
                family = families[shown] = (own_kind, [about])
            kind, lines = family
            if kind is not own_kind:
                continue  # two tasks disagree about a user's metric; one name has one type
            if kind is Kind.HISTOGRAM:
                numbers = [*_bounds(sample).values(), sample.sum / per_base, sample.count]
                lines += [f"{head} {_shown(n)}\n" for head, n in zip(heads, numbers, strict=True)]
            else:
                lines.append(f"{heads[0]} {_shown(sample.value / per_base)}\n")
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
        """Keep all of their lines but the numbers."""
        named: dict[_Name, _Family] = {}
        for _, sample, _ in unknown:
            if (sample.name, sample.type) not in named:
                named[sample.name, sample.type] = _family(sample.name, _KINDS.get(sample.type, Kind.GAUGE))
        abouts = _abouts(named)
        # Many processes have the same samples, and many series of a process the same labels.
        rows: dict[tuple[str, str, int, tuple[float, ...]], list[tuple[str, _Own]]] = {}
        sets: dict[tuple[str, _Own], dict[str, str]] = {}
        for key, sample, place in unknown:
            lines = rows.get(key[1:])
            if lines is None:
                lines = rows[key[1:]] = _rows(named[sample.name, sample.type], sample)
            for _, own in lines:
                if (key[0], own) not in sets:
                    sets[key[0], own] = place | dict(own)
        labels = _labels({pair for one in sets.values() for pair in one.items()})
        order: dict[tuple[str, ...], list[str]] = {}
        written: dict[tuple[str, _Own], str] = {}
        for which, one in sets.items():
            names = tuple(one)
            if names not in order:
                order[names] = sorted(names)
            written[which] = ",".join([labels[name, one[name]] for name in order[names]])
        families = {name: (one.shown, abouts[name], one.kind, one.per_base) for name, one in named.items()}
        for key, sample, _ in unknown:
            shown, about, kind, per_base = families[sample.name, sample.type]
            heads = [f"{name}{{{written[key[0], own]}}}" for name, own in rows[key[1:]]]
            self._known[key] = _Series(shown, about, kind, heads, per_base)


@dataclass(frozen=True, slots=True)
class _Family:
    """What samples of one name have in common."""

    metric: Metric
    #: What follows the metric's name in that of the sample: a label.
    rest: str
    name: str
    kind: Kind

    @property
    def per_base(self) -> float:
        """How many of its units a base unit has."""
        return _BASE_UNITS.get(self.metric.unit, ("", 1.0))[1]

    @property
    def shown(self) -> str:
        """The name on the page."""
        return f"{self.name}_total" if self.kind is Kind.COUNTER else self.name


class _Families(Collector):
    """Families as prometheus_client wants them."""

    def __init__(self, families: list[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        """See `Collector`."""
        return self._families


def _lines(families: list[Family]) -> list[str]:
    """The lines in the format of prometheus_client."""
    return generate_latest(_Families(families)).decode().split("\n")[:-1]


def _abouts(named: dict[_Name, _Family]) -> dict[_Name, str]:
    """HELP and TYPE of each."""
    lines = iter(_lines([Family(one.name, one.metric.help, one.kind.value) for one in named.values()]))
    return {name: f"{next(lines)}\n{next(lines)}\n" for name in named}


def _labels(pairs: set[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Each label with its value, as it stands in a line."""
    family = Family("labels", "", "gauge")
    ordered = list(pairs)
    for name, value in ordered:
        family.add_sample("labels", {name: value}, 0)
    lines = _lines([family])[2:]
    return {pair: line[len("labels{") : line.rindex("}")] for pair, line in zip(ordered, lines, strict=True)}


def _key(process: str, sample: control_pb2.Sample) -> _Key:
    bounds = tuple([bucket.le for bucket in sample.buckets]) if sample.type == control_pb2.Sample.HISTOGRAM else ()
    return process, sample.name, sample.label, sample.type, bounds


def _family(name: str, kind: Kind) -> _Family:
    found = find(name)
    if found is None:
        # A user's own metric: a prefix keeps it from colliding with ours.
        metric = Metric(name, kind, "", "key", f"Metric {name} of the topology.")
        return _Family(metric, "", f"heron_user_{_fit(name)}", kind)
    metric, rest = found
    return _Family(metric, rest, own_name(metric), kind if Kind.HISTOGRAM in (kind, metric.kind) else metric.kind)


def _rows(family: _Family, sample: control_pb2.Sample) -> list[tuple[str, _Own]]:
    """The lines of a sample: name and labels."""
    own = tuple(_label(family.metric, sample.label or family.rest).items())
    if family.kind is not Kind.HISTOGRAM:
        return [(family.shown, own)]
    found = []
    for bound in _bounds(sample):
        le = "+Inf" if math.isinf(bound) else repr(bound / family.per_base).removesuffix(".0")
        found.append((f"{family.name}_bucket", (*own, ("le", le))))
    return [*found, (f"{family.name}_sum", own), (f"{family.name}_count", own)]


def _bounds(sample: control_pb2.Sample) -> dict[float, int]:
    """The counts by bound, with that of infinity at the end."""
    found = {bucket.le: bucket.count for bucket in sample.buckets}
    return {**found, math.inf: found.get(math.inf, sample.count)}


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
