"""Quantiles of distributions that several processes report (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from heronpy.metrics.names import find
from heronpy.proto import control_pb2

_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "seconds": 1.0}


def quantile(samples: Iterable[control_pb2.Sample], part: float) -> float | None:
    """Upper bound of the bucket at this quantile, in the unit of the metric; None without observations.

    Beyond the last bucket it is the bound of the last one, which is too low.
    """
    merged: dict[float, int] = {}
    count = 0
    for sample in samples:
        count += sample.count
        for bucket in sample.buckets:
            merged[bucket.le] = merged.get(bucket.le, 0) + bucket.count
    finite = sorted(le for le in merged if le != inf)
    if not count or not finite:
        return None
    return next((le for le in finite if merged[le] >= part * count), finite[-1])


def quantile_s(samples: Iterable[control_pb2.Sample], part: float) -> float | None:
    """The same in seconds; None for a metric that is no time."""
    listed = list(samples)
    registered = find(listed[0].name) if listed else None
    factor = _SECONDS.get(registered[0].unit) if registered is not None else None
    value = quantile(listed, part)
    return value * factor if value is not None and factor is not None else None
