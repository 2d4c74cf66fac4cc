"""The histogram of latencies against a sorted list."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from heronpy.loadtest.histogram import Histogram, buckets_of, highest_of

VALUES = st.lists(st.integers(0, 10**13), min_size=1, max_size=300)


@given(st.integers(0, 2**53 - 1))
def test_bucket_holds_its_value_within_one_percent(value: int) -> None:
    def bucket_of(one: int) -> int:
        return int(buckets_of(np.array([one], dtype=np.int64))[0])

    highest = highest_of(bucket_of(value))
    assert value <= highest <= value * 1.008
    assert bucket_of(highest) == bucket_of(value)
    assert bucket_of(highest + 1) == bucket_of(value) + 1


@given(VALUES, st.sampled_from([0.0, 1.0, 50.0, 90.0, 99.0, 99.9, 100.0]))
def test_percentile_is_that_of_the_sorted_values(values: list[int], percent: float) -> None:
    histogram = Histogram()
    histogram.record(values)
    place = max(1, -(-len(values) * percent // 100)) - 1
    exact = sorted(values)[int(place)]
    assert exact <= histogram.percentile(percent) <= exact * 1.008


@given(VALUES, VALUES)
def test_merging_is_recording_all(first: list[int], second: list[int]) -> None:
    parts = []
    for values in (first, second):
        part = Histogram()
        part.record(values)
        parts.append(json.loads(json.dumps(part.as_json())))
    whole = Histogram()
    for value in first + second:
        whole.record([value])
    assert Histogram.merged(parts).as_json() == whole.as_json()


def test_late_clock_counts_as_zero() -> None:
    histogram = Histogram()
    histogram.record([-5, 10])
    histogram.record([-1])
    assert (histogram.count, histogram.min, histogram.percentile(50), histogram.max) == (3, 0, 0, 10)
