"""Histogram of positive integers with a relative error below 1 % and little memory. Has no side effects.

HDR style: a value's bucket is its power of two and its next seven bits, so 64-bit values need at most
7,300 buckets and no value is clipped. Histograms are merged by addition; the JSON form is sparse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

#: Number of bits kept after the leading one: 1/128 relative resolution.
SUB_BITS = 7
_SUB = 1 << SUB_BITS
PERCENTILES = (50.0, 90.0, 99.0, 99.9, 99.99)


def quantile(values: Sequence[float], share: float) -> float | None:
    """Return the smallest value that at least `share` (0 to 1) of all values do not exceed; None if there are none."""
    return float(np.quantile(values, share, method="inverted_cdf")) if len(values) else None


def buckets_of(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the bucket number of each nonnegative value."""
    # frexp is exact up to 2**53 ns (104 days); beyond that a value may fall into a neighbouring bucket.
    exponent = np.frexp(values.astype(np.float64))[1].astype(np.int64) - 1
    shift = np.maximum(exponent - SUB_BITS, 0)
    return np.where(values >= _SUB, ((shift + 1) << SUB_BITS) + ((values >> shift) - _SUB), values)


def highest_of(bucket: int) -> int:
    """Return the largest value in a bucket."""
    if bucket < _SUB:
        return bucket
    shift = (bucket >> SUB_BITS) - 1
    return ((_SUB + (bucket & (_SUB - 1)) + 1) << shift) - 1


class Histogram:
    """Counts per bucket, and the count, sum, minimum and maximum of all values."""

    __slots__ = ("buckets", "count", "max", "min", "sum")

    def __init__(self) -> None:
        self.buckets: Counter[int] = Counter()
        self.count = self.sum = self.min = self.max = 0

    def record(self, values: Sequence[int]) -> None:
        """Record values; a negative value is recorded as 0."""
        if len(values):
            array = np.maximum(np.asarray(values, dtype=np.int64), 0)
            numbers, times = np.unique(buckets_of(array), return_counts=True)
            counts = dict(zip(numbers.tolist(), times.tolist(), strict=True))
            self._add(counts, len(array), int(array.sum()), int(array.min()), int(array.max()))

    def _add(self, buckets: Mapping[int, int], count: int, total: int, low: int, high: int) -> None:
        if count:
            self.min = min(self.min, low) if self.count else low
            self.max = max(self.max, high)
            self.count += count
            self.sum += total
            self.buckets.update(buckets)

    def merge(self, other: Histogram) -> None:
        self._add(other.buckets, other.count, other.sum, other.min, other.max)

    def percentile(self, percent: float) -> int:
        """Return the smallest value that `percent` % of the values do not exceed, rounded up by less than 1 %."""
        if not self.count:
            return 0
        wanted = max(1, -(-self.count * percent // 100))
        seen = 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen >= wanted:
                return min(highest_of(bucket), self.max)
        return self.max

    @property
    def mean(self) -> float:
        return self.sum / self.count if self.count else 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "sum": self.sum,
            "min": self.min,
            "max": self.max,
            "buckets": [[bucket, self.buckets[bucket]] for bucket in sorted(self.buckets)],
        }

    @classmethod
    def merged(cls, parts: Iterable[dict[str, Any]]) -> Histogram:
        """Merge several histograms in JSON form."""
        made = cls()
        for part in parts:
            made._add(dict(part["buckets"]), part["count"], part["sum"], part["min"], part["max"])
        return made

    def summary(self, divisor: float = 1.0) -> dict[str, float]:
        """Return percentiles, mean and maximum, each divided by `divisor` (1e6 turns nanoseconds into milliseconds)."""
        facts = {f"p{percent:g}": self.percentile(percent) / divisor for percent in PERCENTILES}
        return {**facts, "mean": self.mean / divisor, "max": self.max / divisor}
