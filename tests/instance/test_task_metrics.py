"""The samples of a report: those that are kept from the last one are as if made anew."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from heronpy.proto import control_pb2
from instance.metrics import Histogram, TaskMetrics

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
