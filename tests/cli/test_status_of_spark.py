"""What `heron status` says of Spark sinks."""

from __future__ import annotations

import pytest

from heronpy.cli.look.spark import figures, lines
from heronpy.metrics.names import METRICS, Kind
from heronpy.proto import control_pb2
from heronpy.spark.reports import Times

COUNTER, GAUGE = control_pb2.Sample.COUNTER, control_pb2.Sample.GAUGE


def reply(*samples: tuple[str, str, float]) -> control_pb2.MetricsReply:
    made = control_pb2.MetricsReply()
    report = made.reports.add(process="spark-gateway")
    for name, label, value in samples:
        report.samples.add(name=name, label=label, value=value)
    return made


def test_each_sink_has_its_rows_batches_time_and_lag() -> None:
    shown = figures(
        reply(
            ("spark-rows-committed", "store", 12000),
            ("spark-batches-committed", "store", 3),
            ("spark-batches-failed", "store", 1),
            ("spark-seconds", "store", 6.0),
            ("spark-lag-seconds", "store", 2.5),
            ("spark-lag-seconds", "other", 0.0),
            ("spark-batches-running", "store", 2),
            ("spark-ui-port", "", 4040),
        ),
        "127.0.0.1",
    )
    assert shown == {
        "sinks": [
            {"component": "other", "at_least": False, "rows": 0, "batches": 0, "failed_batches": 0, "seconds_per_batch": None, "lag_s": 0,
             "running": 0, "waited_s": None, "run_s": None, "publish_s": None},
            {"component": "store", "at_least": False, "rows": 12000, "batches": 3, "failed_batches": 1, "seconds_per_batch": 1.5, "lag_s": 2.5,
             "running": 2, "waited_s": None, "run_s": None, "publish_s": None},
        ],
        "ui": "http://127.0.0.1:4040",
    }  # fmt: skip
    other, store, pages = lines(shown)
    assert other.startswith("other: 0 rows in 0 batches, lag 0")
    assert (
        store.startswith("store: 12,000 rows in 3 batches, 1.5")
        and "lag 2.5" in store
        and "2 in progress, 1 batch failed (see" in store
    )
    assert pages == "Spark's pages: http://127.0.0.1:4040"


def test_the_times_of_batches_have_a_median_and_a_99th_percentile() -> None:
    asked = reply(("spark-batches-committed", "store", 100))
    for name, times in (
        ("spark-wait-seconds", [0.04] * 90 + [1.5] * 10),
        ("spark-run-seconds", [0.8] * 100),
        ("spark-publish-seconds", [0.003] * 98 + [5000.0] * 2),
    ):
        measured = Times()
        for seconds in times:
            measured.observe(seconds)
        asked.reports[0].samples.append(measured.sample(name, "store"))
    shown = figures(asked, "")
    [sink] = shown["sinks"]
    assert (sink["waited_s"]["p50"], sink["waited_s"]["p99"]) == pytest.approx((0.03667, 1.9), rel=1e-3)
    assert (sink["publish_s"]["p99"], sink["publish_s"]["p99_at_least"]) == (1000.0, True), "a bound, and not nothing"
    [line] = lines(shown)
    assert line.endswith("; waits 37ms (99 %: 1.9s), runs 800ms (99 %: 996ms), publishes 4ms (99 %: > 16m40s)"), line


def test_counts_are_lower_bounds_after_a_kill_of_the_gateway() -> None:
    """What the one that died had counted last was left out as if it had not been: "0 rows in 0 batches"."""
    asked = reply(("spark-rows-committed", "store", 12), ("spark-batches-committed", "store", 1))
    asked.reports[0].at_least = True
    assert lines(figures(asked, ""))[0].startswith("store: at least 12 rows in 1 batch")
    asked.reports[0].at_least, asked.resumed_s = False, 3.0
    assert figures(asked, "")["sinks"][0]["at_least"]


def test_nothing_is_said_before_spark_reports_and_of_pages_that_are_off() -> None:
    assert lines(None) == []
    assert lines(figures(control_pb2.MetricsReply(), "")) == []
    assert figures(reply(("spark-ui-port", "", 0)), "h")["ui"] == ""


def test_metrics_of_the_gateway_are_registered() -> None:
    found = [metric for name, metric in METRICS.items() if name.startswith("spark-")]
    assert {metric.kind for metric in found} == set(Kind) and len(found) == 14
