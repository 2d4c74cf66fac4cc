"""Histogram of positive integers with a relative error below 1 % and little memory. Pure.

HDR style: a value's bucket is its power of two and its next seven bits, so 64-bit values need at most
7,300 buckets and nothing is ever clipped. Merging is adding; the JSON form is sparse.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

#: Number of bits kept after the leading one: 1/128 relative resolution.
SUB_BITS = 7
_SUB = 1 << SUB_BITS
PERCENTILES = (50.0, 90.0, 99.0, 99.9, 99.99)


def bucket_of(value: int) -> int:
    """Number of the bucket of a value; values below 1 count as 0."""
    if value < _SUB:
        return max(value, 0)
    shift = value.bit_length() - 1 - SUB_BITS
    return ((shift + 1) << SUB_BITS) + ((value >> shift) - _SUB)


def highest_of(bucket: int) -> int:
    """The largest value of a bucket."""
    if bucket < _SUB:
        return bucket
    shift = (bucket >> SUB_BITS) - 1
    return ((_SUB + (bucket & (_SUB - 1)) + 1) << shift) - 1


class Histogram:
    """Counts per bucket; also count, sum, smallest and largest value."""

    __slots__ = ("buckets", "count", "max", "min", "sum")

    def __init__(self) -> None:
        self.buckets: dict[int, int] = {}
        self.count = 0
        self.sum = 0
        self.min = 0
        self.max = 0

    def record(self, value: int, times: int = 1) -> None:
        """Record one value."""
        value = max(value, 0)
        self._bounds(value, value)
        bucket = bucket_of(value)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + times
        self.count += times
        self.sum += value * times

    def record_many(self, values: Sequence[int]) -> None:
        """Record many values."""
        if not len(values):
            return
        array = np.maximum(np.asarray(values, dtype=np.int64), 0)
        self._bounds(int(array.min()), int(array.max()))
        # frexp is exact up to 2**53 ns (104 days); beyond that a value may fall into a neighbouring bucket.
        exponent = np.frexp(array.astype(np.float64))[1] - 1
        shift = np.maximum(exponent - SUB_BITS, 0)
        large = array >= _SUB
        bucket = np.where(large, ((shift + 1) << SUB_BITS) + ((array >> shift) - _SUB), array)
        for number, times in zip(*np.unique(bucket, return_counts=True), strict=True):
            self.buckets[int(number)] = self.buckets.get(int(number), 0) + int(times)
        self.count += len(array)
        self.sum += int(array.sum())

    def _bounds(self, low: int, high: int) -> None:
        self.min = low if not self.count else min(self.min, low)
        self.max = max(self.max, high)

    def merge(self, other: Histogram) -> None:
        """Add the content of another histogram."""
        if not other.count:
            return
        self._bounds(other.min, other.max)
        for bucket, times in other.buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + times
        self.count += other.count
        self.sum += other.sum

    def percentile(self, percent: float) -> int:
        """The smallest value (rounded up by less than 1 %) that the given percentage does not exceed."""
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
    def from_json(cls, content: dict[str, Any]) -> Histogram:
        made = cls()
        made.buckets = {int(bucket): int(times) for bucket, times in content["buckets"]}
        made.count, made.sum = int(content["count"]), int(content["sum"])
        made.min, made.max = int(content["min"]), int(content["max"])
        return made

    @classmethod
    def merged(cls, parts: Iterable[dict[str, Any]]) -> Histogram:
        """One histogram of several in their JSON form."""
        made = cls()
        for part in parts:
            made.merge(cls.from_json(part))
        return made

    def summary(self, divisor: float = 1.0) -> dict[str, float]:
        """Percentiles, mean and maximum, each divided (1e6 turns nanoseconds into milliseconds)."""
        facts = {f"p{percent:g}": self.percentile(percent) / divisor for percent in PERCENTILES}
        return {**facts, "mean": self.mean / divisor, "max": self.max / divisor}
