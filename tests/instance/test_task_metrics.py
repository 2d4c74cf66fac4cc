"""The metrics of a task: its own, as if made again for each report, the rates of its link, and those of user code."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.api import global_metrics
from heronpy.api.metrics import MultiCountMetric
from heronpy.metrics.names import METRICS, Kind
from heronpy.proto import control_pb2
from instance.metrics import KEYS_MAX, Histogram, TaskMetrics, Traffic, UserMetrics, gauges_between

NAMES = st.sampled_from(["__emit-count", "__ack-count"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("count"), NAMES, st.integers(0, 1000)),
        st.tuples(st.just("gauge"), NAMES, st.floats(-1e9, 1e9)),
        st.tuples(st.just("observe"), NAMES, st.floats(0, 1e9)),
        st.tuples(st.just("report"), st.none(), st.none()),
    ),
    max_size=60,
)


def reported(metrics: TaskMetrics) -> dict[tuple[str, str, Any], control_pb2.Sample]:
    report = control_pb2.MetricsReport(process="p")
    metrics.fill(report)
    found = {(sample.name, sample.label, sample.type): sample for sample in report.samples}
    assert len(found) == len(report.samples), "each sample is there once"
    return found


@given(STEPS)
def test_each_report_tells_what_is_so_now(steps: list[tuple[str, Any, Any]]) -> None:
    metrics = TaskMetrics()
    for what, name, value in [*steps, ("report", None, None)]:
        if what == "count":
            metrics.count(name, "s", value)
        elif what == "gauge":
            metrics.gauge(name, "s", value)
        elif what == "observe":
            metrics.observe(name, "h", value, 2)
        else:
            found = reported(metrics)
            expected: dict[Any, Any] = {}
            for numbers, kind in (
                (metrics.counters, control_pb2.Sample.COUNTER),
                (metrics.gauges, control_pb2.Sample.GAUGE),
            ):
                for (key, label), number in numbers.items():
                    expected[key, label, kind] = control_pb2.Sample(name=key, label=label, type=kind, value=number)
            for (key, label), histogram in metrics.histograms.items():
                anew = control_pb2.Sample(name=key, label=label)
                histogram.fill(anew)
                expected[key, label, control_pb2.Sample.HISTOGRAM] = anew
            assert found == expected


def test_a_report_that_was_made_does_not_change_with_the_next_one() -> None:
    metrics = TaskMetrics()
    metrics.count("__emit-count", "s", 1)
    metrics.histograms["__x", "h"] = Histogram((1.0,))
    metrics.observe("__x", "h", 0.5, 1)
    first = control_pb2.MetricsReport()
    metrics.fill(first)
    before = first.SerializeToString()
    metrics.count("__emit-count", "s", 1)
    metrics.observe("__x", "h", 2.0, 1)
    metrics.fill(control_pb2.MetricsReport())
    assert first.SerializeToString() == before


def test_figures_move_unless_only_time_has_passed() -> None:
    metrics = TaskMetrics()
    metrics.count("__emit-count", "s", 1)
    metrics.observe("__ack-latency", "s", 5.0, 1)
    reported(metrics)
    assert metrics.moved
    for name, moves in (("__idle-time-ns", False), ("__py-user-cpu-time-secs", False), ("__emit-count", True)):
        metrics.count(name, "s", 0)
        reported(metrics)  # a name that is new is news
        reported(metrics)
        assert not metrics.moved
        metrics.count(name, "s", 1)
        reported(metrics)
        assert metrics.moved is moves, name
    metrics.gauge("load", "", 0.5)
    reported(metrics)
    assert metrics.moved
    reported(metrics)
    assert not metrics.moved
    metrics.observe("__ack-latency", "s", 5.0, 1)
    reported(metrics)
    assert metrics.moved


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


def test_keys_beyond_the_limit_are_dropped_and_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    sink = TaskMetrics()
    user, words = UserMetrics(sink), MultiCountMetric()
    user.register_metric("words", words, 1)
    for round_ in range(2):
        for number in range(KEYS_MAX + 50):
            words.incr(f"word-{number}")
        user.collect(float(round_), force=True)
    assert len(sink.counters) == KEYS_MAX + 1
    assert set(sink.counters.values()) == {2.0}, "known keys go on"
    [record] = caplog.records
    assert "metric words: the key 'word-1001' and further keys are dropped" in record.getMessage()


@pytest.mark.parametrize("own", [True, False])
def test_a_task_knows_whether_user_code_counts(own: bool) -> None:
    """User code that counts may do so outside of its calls, so a waiting task reads its metrics more often."""
    user, auto, counts = UserMetrics(TaskMetrics()), MultiCountMetric(), MultiCountMetric()
    user.register_metric(global_metrics.root_name, auto, 1)
    user.collect(0.0, force=True)
    assert not user.used
    if own:
        user.register_metric("words", counts, 1)
    else:
        auto.incr("words")
        user.collect(1.0, force=True)
    assert user.used
