"""Metrics of user code in a batch run."""

from __future__ import annotations

import pytest

from heronpy.api.metrics import AssignableMetrics, CountMetric, IMetric, MultiCountMetric
from heronpy.batch.metrics import RunMetrics, UnitMetrics


def test_objects_that_come_and_go_are_one_metric() -> None:
    known: dict[str, IMetric] = {}
    run = RunMetrics(lambda name, metric, bucket_s: known.update({name: metric}))
    units = [UnitMetrics("count", run), UnitMetrics("count", run), UnitMetrics("store", run)]
    counts, pages, gauges = CountMetric(), MultiCountMetric(), AssignableMetrics(4)
    units[0].register_metric("lines", counts, 1)
    counts.incr(3)
    units[0].close()
    counts.incr(7)  # it is closed
    units[1].register_metric("lines", pages, 1)
    pages.incr("home", 2)
    units[2].register_metric("lines", gauges, 1)
    assert known["lines"].get_value_and_reset() == {"count": 3, "count/home": 2}
    assert known["lines"].get_value_and_reset() == {"count": 0, "count/home": 0}
    assert known["store/lines"].get_value_and_reset() == {"store": 4}
    with pytest.raises(ValueError, match="already registered"):
        units[2].register_metric("lines", gauges, 1)


def test_a_metric_that_raises_is_left_out() -> None:
    known: dict[str, IMetric] = {}
    unit = UnitMetrics("count", RunMetrics(lambda name, metric, bucket_s: known.update({name: metric})))
    unit.register_metric("broken", IMetric(), 1)
    unit.close()
    assert known["broken"].get_value_and_reset() == {}
