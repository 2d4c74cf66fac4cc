"""Frames per second and tuples per frame of a link, between two reports (pure)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heronpy.metrics.names import METRICS, Kind
from instance.metrics import TaskMetrics, Traffic, gauges_between


def test_rates_are_of_the_time_between_two_reports() -> None:
    found = gauges_between(Traffic(10.0, 100, 100, 0, 0), Traffic(12.0, 300, 2100, 4, 8))
    assert found == {
        "__gateway-sent-packets-per-sec": 100.0,
        "__gateway-sent-tuples-per-packet": 10.0,
        "__gateway-consumed-packets-per-sec": 2.0,
        "__gateway-consumed-tuples-per-packet": 2.0,
    }
    assert all(METRICS[name].kind is Kind.GAUGE for name in found)


def test_a_still_link_has_zeros_and_reports_in_a_row_change_nothing() -> None:
    metrics = TaskMetrics()
    metrics.gauge_traffic(Traffic(1.0, 5, 50, 0, 0))
    assert not metrics.gauges
    metrics.gauge_traffic(Traffic(2.0, 15, 60, 0, 0))
    assert metrics.gauges["__gateway-sent-packets-per-sec", ""] == 10.0
    metrics.gauge_traffic(Traffic(2.1, 16, 61, 0, 0))
    assert metrics.gauges["__gateway-sent-packets-per-sec", ""] == 10.0
    metrics.gauge_traffic(Traffic(3.0, 16, 61, 0, 0))
    assert metrics.gauges["__gateway-sent-packets-per-sec", ""] == 1.0
    metrics.gauge_traffic(Traffic(4.0, 16, 61, 0, 0))
    assert set(metrics.gauges.values()) == {0.0}


COUNT = st.integers(0, 10**9)


@given(st.floats(0.5, 100.0), COUNT, COUNT, COUNT, COUNT)
def test_frames_times_tuples_per_frame_is_the_tuples(s: float, a: int, b: int, c: int, d: int) -> None:
    found = gauges_between(Traffic(0.0, 0, 0, 0, 0), Traffic(s, a, b if a else 0, c, d if c else 0))
    assert found is not None
    for word, tuples in (("sent", b if a else 0), ("consumed", d if c else 0)):
        product = found[f"__gateway-{word}-packets-per-sec"] * found[f"__gateway-{word}-tuples-per-packet"]
        assert abs(product * s - tuples) <= 1e-6 * max(tuples, 1)
