"""MetricsReports as a page of text that Prometheus reads (format 0.0.4).

The place of a series is told by the labels topology, container, process, instance_id, component and
task; never by `instance`, which Prometheus sets itself. Invariants: one HELP and TYPE line per name,
all series of a name together, at most `SERIES_MAX` series.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from heronpy.metrics.names import Kind, Metric, find
from heronpy.proto import control_pb2 as control

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: Series on one page; more would only hurt the reader.
SERIES_MAX = 20_000

_KINDS = {
    control.Sample.COUNTER: Kind.COUNTER,
    control.Sample.GAUGE: Kind.GAUGE,
    control.Sample.HISTOGRAM: Kind.HISTOGRAM,
}
_UNFIT = re.compile(r"[^a-zA-Z0-9_]+")
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_UNIT_SUFFIX = {"ns": "_ns", "us": "_usec", "ms": "_ms", "bytes": "_bytes", "seconds": "_seconds"}
#: A name that says its unit already gets no suffix.
_UNIT_WORDS = {"ns", "usec", "ms", "sec", "secs", "seconds", "byte", "bytes"}


@dataclass(slots=True)
class _Family:
    name: str
    kind: Kind
    help: str
    lines: list[str] = field(default_factory=list)


def exposition(topology: str, reports: Iterable[control.MetricsReport]) -> str:
    """The page for these reports."""
    families: dict[str, _Family] = {}
    series = discarded = 0
    for report in reports:
        place = _place(topology, report)
        for sample in report.samples:
            if series >= SERIES_MAX:
                discarded += 1
                continue
            series += 1
            _add(families, sample, place)
    if discarded:
        _add(families, control.Sample(
            name="__executor/__series_discarded", type=control.Sample.GAUGE, value=discarded
        ), [("topology", topology)])
    parts = []
    for name in sorted(families):
        family = families[name]
        parts.append(f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.kind.value}\n")
        parts.extend(family.lines)
    return "".join(parts)


def _place(topology: str, report: control.MetricsReport) -> list[tuple[str, str]]:
    place = [("topology", topology), ("container", str(report.container)), ("process", report.process)]
    if report.task_id:
        place += [
            ("instance_id", report.process),
            ("component", report.component),
            ("task", str(report.task_id)),
        ]
    return place


def _add(families: dict[str, _Family], sample: control.Sample, place: list[tuple[str, str]]) -> None:
    found = find(sample.name)
    kind = _KINDS.get(sample.type, Kind.GAUGE)
    if found is None:
        # A metric of the user's own: a prefix keeps it from colliding with ours.
        metric, rest = Metric(sample.name, kind, "", "key", f"Metric {sample.name} of the topology."), ""
        name = f"heron_user_{_fit(sample.name)}"
    else:
        metric, rest = found
        name = _own_name(metric)
        if Kind.HISTOGRAM not in (kind, metric.kind):
            kind = metric.kind
    if kind is Kind.COUNTER:
        name += "_total"
    family = families.get(name)
    if family is None:
        text = metric.help.replace("\\", r"\\").replace("\n", r"\n")
        family = families[name] = _Family(name, kind, text)
    elif family.kind is not kind:
        return  # Two tasks disagree about a user's metric; one name has one type.
    labels = [*place, *_label(metric, sample.label or rest)]
    if kind is Kind.HISTOGRAM:
        _histogram(family, sample, labels)
    else:
        family.lines.append(f"{name}{_braces(labels)} {_number(sample.value)}\n")


def _own_name(metric: Metric) -> str:
    base = _fit(metric.name.replace("-", "_"))
    if _UNIT_WORDS & set(base.split("_")):
        return f"heron_{base}"
    return f"heron_{base}{_UNIT_SUFFIX.get(metric.unit, '')}"


def _fit(name: str) -> str:
    fitted = _UNFIT.sub("_", name).strip("_") or "unnamed"
    return re.sub("__+", "_", fitted)


def _label(metric: Metric, label: str) -> list[tuple[str, str]]:
    if not label:
        return []
    if metric.label == "source":
        component, slash, stream = label.rpartition("/")
        return [("source_component", component), ("stream", stream)] if slash else [("stream", label)]
    return [(metric.label or "key", label)]


def _histogram(family: _Family, sample: control.Sample, labels: list[tuple[str, str]]) -> None:
    infinite = False
    for bucket in sample.buckets:
        infinite = infinite or math.isinf(bucket.le)
        le = [*labels, ("le", _number(bucket.le))]
        family.lines.append(f"{family.name}_bucket{_braces(le)} {bucket.count}\n")
    if not infinite:
        le = [*labels, ("le", "+Inf")]
        family.lines.append(f"{family.name}_bucket{_braces(le)} {sample.count}\n")
    family.lines.append(f"{family.name}_sum{_braces(labels)} {_number(sample.sum)}\n")
    family.lines.append(f"{family.name}_count{_braces(labels)} {sample.count}\n")


def _braces(labels: list[tuple[str, str]]) -> str:
    return "{" + ",".join(f'{key}="{value.translate(_ESCAPES)}"' for key, value in labels) + "}"


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
