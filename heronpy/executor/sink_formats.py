"""The output formats of metrics sinks: JSON lines and Graphite's plain text. Names and units are as in Heron. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from math import isfinite

import msgspec

from heronpy.proto import control_pb2

#: Characters that would end or split a part of Graphite's paths.
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")


def json_lines(topology: str, at: float, reports: Iterable[control_pb2.MetricsReport]) -> bytes:
    """One JSON line for each process, with its metrics by `NAME` or `NAME/LABEL`; a distribution has a sum and a count.

    `at` is in seconds since 1970. Values that are not numbers are null.
    """
    lines = []
    for report in reports:
        metrics: dict[str, float | dict[str, float]] = {}
        for sample in report.samples:
            name = f"{sample.name}/{sample.label}" if sample.label else sample.name
            if sample.type == control_pb2.Sample.HISTOGRAM:
                metrics[name] = {"count": sample.count, "sum": sample.sum}
            else:
                metrics[name] = sample.value
        line = {
            "at": round(at, 3), "topology": topology, "container": report.container, "process": report.process,
            "component": report.component, "task": report.task_id, "metrics": metrics,
        }  # fmt: skip
        lines.append(msgspec.json.encode(line) + b"\n")
    return b"".join(lines)


def graphite_lines(prefix: str, topology: str, at: float, reports: Iterable[control_pb2.MetricsReport]) -> bytes:
    """Lines `PREFIX.TOPOLOGY.PROCESS.NAME[.LABEL] VALUE TIME`; a distribution has two lines, `.sum` and `.count`.

    Values that are not numbers are omitted.
    """
    head = ".".join((*(_fit(part) for part in prefix.split(".") if part), _fit(topology)))
    lines = []
    for report in reports:
        for sample in report.samples:
            parts = [head, _fit(report.process), _fit(sample.name)]
            path = ".".join([*parts, _fit(sample.label)] if sample.label else parts)
            lines += [f"{path}{end} {value!r} {int(at)}\n" for end, value in _values(sample) if isfinite(value)]
    return "".join(lines).encode()


def _values(sample: control_pb2.Sample) -> Iterator[tuple[str, float]]:
    if sample.type == control_pb2.Sample.HISTOGRAM:
        yield ".count", sample.count
        yield ".sum", sample.sum
    else:
        yield "", sample.value


def _fit(text: str) -> str:
    return _UNFIT.sub("_", text) or "_"
