"""Quantiles of distributions that processes report, the same for every view (pure).

Within a bucket values are taken as evenly spread, as Prometheus's `histogram_quantile` does. In the bucket without an
upper bound nothing is known but its lower one: the quantile is at least that, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf, isfinite
from typing import NamedTuple

from heronpy.metrics.names import find
from heronpy.proto import control_pb2

_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "seconds": 1.0}


class Quantile(NamedTuple):
    """The value, or what it is at least."""

    value: float
    at_least: bool

    def times(self, factor: float) -> Quantile:
        """In another unit."""
        return Quantile(self.value * factor, self.at_least)


def quantile_in(bounds: Sequence[float], each: Sequence[float], part: float) -> Quantile | None:
    """The value below which this part of the values lies; None without values.

    `bounds` are the upper bounds of the buckets, ascending, and `each` how many values are in each: not cumulative.
    """
    rank = part * sum(each)
    if rank <= 0:
        return None
    lower = passed = 0.0
    for bound, count in zip(bounds, each, strict=True):
        if count and passed + count >= rank and isfinite(bound):
            return Quantile(lower + (bound - lower) * (rank - passed) / count, False)
        passed += count
        lower = bound if isfinite(bound) else lower
    return Quantile(lower, True)


def quantile(samples: Iterable[control_pb2.Sample], part: float) -> Quantile | None:
    """Of what several samples have counted, in the unit of the metric; None without observations."""
    return quantiles(samples, (part,))[0]


def quantiles(samples: Iterable[control_pb2.Sample], parts: Sequence[float]) -> list[Quantile | None]:
    """Several of them."""
    merged: dict[float, float] = {}
    for sample in samples:
        before = 0
        for bucket in sample.buckets:
            merged[bucket.le] = merged.get(bucket.le, 0.0) + max(0, bucket.count - before)
            before = max(before, bucket.count)
        if sample.buckets and sample.count > before:
            merged[inf] = merged.get(inf, 0.0) + sample.count - before
    bounds = sorted(merged)
    each = [merged[bound] for bound in bounds]
    return [quantile_in(bounds, each, part) for part in parts]


def quantiles_s(samples: Iterable[control_pb2.Sample], parts: Sequence[float]) -> list[Quantile | None]:
    """The same in seconds; None for a metric that is no time."""
    listed = list(samples)
    registered = find(listed[0].name) if listed else None
    factor = _SECONDS.get(registered[0].unit) if registered is not None else None
    if factor is None:
        return [None] * len(parts)
    return [found.times(factor) if found is not None else None for found in quantiles(listed, parts)]
