"""Quantiles of distributions that several processes report (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from heronpy.metrics.names import find
from heronpy.proto import control_pb2

_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "seconds": 1.0}


def quantile(samples: Iterable[control_pb2.Sample], part: float) -> float | None:
    """Upper bound of the bucket at this quantile, in the unit of the metric; None without observations.

    Beyond the last bucket it is the bound of the last one, which is too low.
    """
    return quantiles(samples, (part,))[0]


def quantiles(samples: Iterable[control_pb2.Sample], parts: Sequence[float]) -> list[float | None]:
    """Several of them."""
    merged: dict[float, int] = {}
    count = 0
    for sample in samples:
        count += sample.count
        for bucket in sample.buckets:
            le = bucket.le
            merged[le] = merged.get(le, 0) + bucket.count
    finite = sorted(le for le in merged if le != inf)
    if not count or not finite:
        return [None] * len(parts)
    return [next((le for le in finite if merged[le] >= part * count), finite[-1]) for part in parts]


def quantiles_s(samples: Iterable[control_pb2.Sample], parts: Sequence[float]) -> list[float | None]:
    """The same in seconds; None for a metric that is no time."""
    listed = list(samples)
    registered = find(listed[0].name) if listed else None
    factor = _SECONDS.get(registered[0].unit) if registered is not None else None
    if factor is None:
        return [None] * len(parts)
    return [value * factor if value is not None else None for value in quantiles(listed, parts)]
