"""Computes quantiles of the distributions that processes report, in the same way for every view. Pure.

Values within a bucket are assumed to be spread evenly on both sides of their mean. If nearly all values are in one
bucket, the mean follows from the sum: if calls take 53 ms and the bucket is 50 to 100 ms, the median is 53 ms. If the
mean is unknown, the middle of the bucket is used, as in Prometheus's `histogram_quantile`. In the bucket without an
upper bound, the quantile is marked as a lower bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf, isfinite
from typing import NamedTuple

from heronpy.metrics.names import find
from heronpy.proto import control_pb2

_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "seconds": 1.0}

#: Seconds after which a call in progress counts as a latency if no other call has ended.
IN_CALL_S = 1.0
#: Maximum error of a bucket's mean due to values in other buckets, as a share of the bucket's width.
UNSURE = 0.1


class Quantile(NamedTuple):
    """A quantile, or its lower bound."""

    value: float
    at_least: bool

    def times(self, factor: float) -> Quantile:
        """Return the quantile converted to another unit."""
        return Quantile(self.value * factor, self.at_least)


def quantile_in(
    bounds: Sequence[float], each: Sequence[float], part: float, total: float | None = None
) -> Quantile | None:
    """Return the value below which the share `part` of the values lies; None if there are no values.

    `bounds` are the ascending upper bounds of the buckets. `each` contains the non-cumulative number of values in each
    bucket. `total` is the sum of all values.
    """
    rank = part * sum(each)
    if rank <= 0:
        return None
    lower = passed = 0.0
    for bound, count in zip(bounds, each, strict=True):
        if count and passed + count >= rank and isfinite(bound):
            mean, at = _mean_in(bounds, each, lower, bound, total), 2 * (rank - passed) / count
            # Assume that values above the mean may reach the bound: a high quantile must not be understated.
            value = lower + (mean - lower) * at if at <= 1 else mean + (bound - mean) * (at - 1)
            return Quantile(value, False)
        passed += count
        lower = bound if isfinite(bound) else lower
    return Quantile(lower, True)


def _mean_in(bounds: Sequence[float], each: Sequence[float], lower: float, upper: float, total: float | None) -> float:
    """Return the mean of the values of one bucket; the middle of the bucket if the mean is unknown."""
    middle = (lower + upper) / 2
    if not total or (each[-1] and not isfinite(bounds[-1])):
        return middle
    others = unsure = count = before = 0.0
    for bound, number in zip(bounds, each, strict=True):
        if bound == upper:
            count = number
        elif number:
            others += number * (before + bound) / 2
            unsure += number * (bound - before) / 2
        before = bound
    mean = (total - others) / count
    slack = UNSURE * (upper - lower)
    known = unsure <= slack * count and lower - slack <= mean <= upper + slack
    return min(max(mean, lower), upper) if known else middle


def quantile(samples: Iterable[control_pb2.Sample], part: float) -> Quantile | None:
    """Return the quantile over several samples, in the unit of the metric; None if there are no values."""
    return quantiles(samples, (part,))[0]


def quantiles(samples: Iterable[control_pb2.Sample], parts: Sequence[float]) -> list[Quantile | None]:
    """Return several quantiles over the same samples; see `quantile`."""
    merged: dict[float, float] = {}
    total = 0.0
    for sample in samples:
        before = 0
        total += sample.sum
        for bucket in sample.buckets:
            merged[bucket.le] = merged.get(bucket.le, 0.0) + max(0, bucket.count - before)
            before = max(before, bucket.count)
        if sample.buckets and sample.count > before:
            merged[inf] = merged.get(inf, 0.0) + sample.count - before
    bounds = sorted(merged)
    each = [merged[bound] for bound in bounds]
    return [quantile_in(bounds, each, part, total) for part in parts]


def quantiles_s(samples: Iterable[control_pb2.Sample], parts: Sequence[float]) -> list[Quantile | None]:
    """Return several quantiles in seconds; None for a metric that is not a time."""
    listed = list(samples)
    registered = find(listed[0].name) if listed else None
    factor = _SECONDS.get(registered[0].unit) if registered is not None else None
    if factor is None:
        return [None] * len(parts)
    return [found.times(factor) if found is not None else None for found in quantiles(listed, parts)]
