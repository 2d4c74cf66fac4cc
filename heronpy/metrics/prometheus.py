"""Formats MetricsReports as a page for Prometheus. Pure.

A series is identified by the labels topology, container, process, instance_id, component and task; never by
`instance`, which Prometheus sets itself. Times are converted to seconds and sizes to bytes. Each name has one type,
and the page contains at most `SERIES_MAX` series; `heron_executor_series_discarded` is the number of omitted series.

"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final, NamedTuple

from heronpy.metrics.names import Kind, Metric, find
from heronpy.proto import control_pb2

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
#: Maximum number of series on one page; more would overload Prometheus.
SERIES_MAX = 20_000

_KINDS = {
    control_pb2.Sample.COUNTER: Kind.COUNTER,
    control_pb2.Sample.GAUGE: Kind.GAUGE,
    control_pb2.Sample.HISTOGRAM: Kind.HISTOGRAM,
}
_UNFIT = re.compile(r"[^a-zA-Z0-9_]+")
#: Map from unit to base unit, which ends the name, and to the number of units in a base unit.
_BASE_UNITS = {
    "ns": ("seconds", 1e9),
    "us": ("seconds", 1e6),
    "ms": ("seconds", 1e3),
    "seconds": ("seconds", 1.0),
    "bytes": ("bytes", 1.0),
}
#: Parts to remove from a name: units, and Heron's `count`, which Prometheus reserves for histograms.
_UNIT_WORDS = {"ns", "usec", "ms", "sec", "secs", "seconds", "byte", "bytes"}
_COUNT = "count"


class _Series(NamedTuple):
    """The parts of a sample that stay the same on every page: all except its numbers."""

    #: Name on the page, HELP and TYPE of its family, type.
    shown: str
    about: str
    kind: Kind
    #: The lines without their numbers.
    heads: list[str]
    #: Number of the sample's units in a base unit.
    per_base: float


#: Process, name, label, type, bounds of the buckets.
_Key = tuple[str, str, str, int, tuple[float, ...]]


class Page:
    """The reports of one container as a page, families sorted by name.

    Formatting names and labels takes nearly all of the time, so later pages for the same processes reuse these texts.
    """

    def __init__(self, topology: str) -> None:
        self._topology = topology
        #: Series of the last page.
        self._known: dict[_Key, _Series] = {}

    def text(self, reports: Iterable[control_pb2.MetricsReport]) -> str:
        chosen, discarded = self._chosen(reports)
        if discarded:
            over = control_pb2.Sample(
                name="__executor/__series_discarded", type=control_pb2.Sample.GAUGE, value=discarded
            )
            chosen.append((_key("", over), over, {"topology": self._topology}))
        known = self._known
        self._known = {key: known.get(key) or _series(sample, place) for key, sample, place in chosen}
        families: dict[str, tuple[Kind, list[str]]] = {}
        for key, sample, _ in chosen:
            shown, about, own_kind, heads, per_base = self._known[key]
            family = families.get(shown)
            if family is None:
                family = families[shown] = (own_kind, [about])
            kind, lines = family
            if kind is not own_kind:
                continue  # tasks report a user's metric with different types, but a name has one type
            if kind is Kind.HISTOGRAM:
                numbers = [*_bounds(sample).values(), sample.sum / per_base, sample.count]
                lines += [f"{head} {number_text(n)}\n" for head, n in zip(heads, numbers, strict=True)]
            else:
                lines.append(f"{heads[0]} {number_text(sample.value / per_base)}\n")
        return "".join(line for shown in sorted(families) for line in families[shown][1])

    def _chosen(
        self, reports: Iterable[control_pb2.MetricsReport]
    ) -> tuple[list[tuple[_Key, control_pb2.Sample, dict[str, str]]], int]:
        """Return the page's samples with their keys and labels, and the number of omitted samples."""
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


def about_text(name: str, about: str, kind: Kind) -> str:
    """Return a family's HELP and TYPE lines."""
    escaped = about.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {escaped}\n# TYPE {name} {kind.value}\n"


def series_text(name: str, labels: Mapping[str, str]) -> str:
    """Return a line of the page without its number."""
    if not labels:
        return name
    shown = [f'{key}="{_escaped(labels[key])}"' for key in sorted(labels)]
    return f"{name}{{{','.join(shown)}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def number_text(number: float) -> str:
    """Format a number for Prometheus."""
    return repr(float(number)) if math.isfinite(number) else {math.inf: "+Inf", -math.inf: "-Inf"}.get(number, "NaN")


def _series(sample: control_pb2.Sample, place: dict[str, str]) -> _Series:
    kind = _KINDS.get(sample.type, Kind.GAUGE)
    found = find(sample.name)
    if found is None:
        # A prefix keeps a metric of the user from colliding with heronpy's metrics.
        metric, rest = Metric(sample.name, kind, "", "key", f"Metric {sample.name} of the topology."), ""
        name = f"heron_user_{_fit(sample.name)}"
    else:
        metric, rest = found  # the rest of the sample's name after the metric's name is a label
        name, kind = own_name(metric), kind if Kind.HISTOGRAM in (kind, metric.kind) else metric.kind
    labels = place | _label(metric, sample.label or rest)
    per_base = _BASE_UNITS.get(metric.unit, ("", 1.0))[1]
    shown = f"{name}_total" if kind is Kind.COUNTER else name
    if kind is Kind.HISTOGRAM:
        bounds = ["+Inf" if math.isinf(le) else repr(le / per_base).removesuffix(".0") for le in _bounds(sample)]
        heads = [series_text(f"{name}_bucket", labels | {"le": bound}) for bound in bounds]
        heads += [series_text(f"{name}_{what}", labels) for what in ("sum", "count")]
    else:
        heads = [series_text(shown, labels)]
    return _Series(shown, about_text(shown, metric.help, kind), kind, heads, per_base)


def _key(process: str, sample: control_pb2.Sample) -> _Key:
    bounds = tuple([bucket.le for bucket in sample.buckets]) if sample.type == control_pb2.Sample.HISTOGRAM else ()
    return process, sample.name, sample.label, sample.type, bounds


def _bounds(sample: control_pb2.Sample) -> dict[float, int]:
    """Return the cumulative counts by bound, ending with infinity."""
    found = {bucket.le: bucket.count for bucket in sample.buckets}
    return {**found, math.inf: found.get(math.inf, sample.count)}


def _place(topology: str, report: control_pb2.MetricsReport) -> dict[str, str]:
    place = {"topology": topology, "container": str(report.container), "process": report.process}
    if report.task_id:
        place |= {"instance_id": report.process, "component": report.component, "task": str(report.task_id)}
    return place


@cache
def own_name(metric: Metric) -> str:
    """Return a heronpy metric's name on the page: the name ends in the base unit, and excludes `_total`."""
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
