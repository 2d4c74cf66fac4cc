"""`heron metrics`, `trace`, `slow` and `top`, against a fake topology master."""

from __future__ import annotations

import json
import re

import pytest
from msgspec.structs import replace

from heronpy.cli.look import doctor
from heronpy.health.signals import Signals, TaskSignals
from heronpy.proto import control_pb2
from heronpy.tmaster.traces import Span, placed, shown
from heronpy.views.past import Slow, SlowTuple
from heronpy.views.traces import Hop, Trace
from tests.cli.conftest import FakeTopology, Heron
from tests.support.views import traces


def test_metrics_show_the_links_between_stream_managers(heron: Heron, wordy: FakeTopology) -> None:
    reply = control_pb2.MetricsReply(interval_s=10.0)
    task = reply.reports.add(process="container_1_word_1", component="word")
    task.samples.add(name="__emit-count", label="default", type=control_pb2.Sample.COUNTER, value=30)
    for frames, tuples, peer in ((200, 3100, "stmgr-2"), (0, 0, "stmgr-3")):
        report = next((one for one in reply.reports if one.process == "stmgr-1"), None) or reply.reports.add(
            process="stmgr-1"
        )
        for name, value in (("frames", frames), ("tuples", tuples)):
            report.samples.add(
                name=f"__{name}_to_stmgrs_by_peer", label=peer, type=control_pb2.Sample.COUNTER, value=value
            )
    wordy.answers["get_metrics"] = reply
    assert "discarded" not in heron("metrics", "local", "wordy").out
    for task, tuples in ((2, 1000), (3, 200)):
        report.samples.add(name="__tuples_dropped_by_compid", label=f"container_1_count_{task}", value=tuples)
    shown = heron("metrics", "local", "wordy", "--interval", "10s").out
    assert "1,200 tuples discarded on purpose because tasks were full" in shown
    row = next(line for line in shown.splitlines() if "stmgr-1 to stmgr-2" in line)
    assert row.replace("│", " ").split()[-4:] == ["200", "20", "3,100", "15.5"]
    assert "stmgr-3" not in shown, "nothing passes there"
    shown = heron("metrics", "local", "wordy").out.partition("Between stream managers")[2]
    assert "frames/s" in shown, "of late, beside what has passed in all"
    of_late = wordy.asked[-1][1]
    assert isinstance(of_late, control_pb2.GetMetrics)
    assert of_late.interval_s == 10
    assert list(of_late.names) == ["__frames_to_stmgrs_by_peer", "__tuples_to_stmgrs_by_peer"]


def test_metrics_are_summed_by_component(heron: Heron, wordy: FakeTopology) -> None:
    reply = control_pb2.MetricsReply()
    for task in (2, 3):
        report = reply.reports.add(process=f"container_1_count_{task}", component="count", task_id=task)
        report.samples.add(name="__execute-count", label="word/default", value=5 * task)
        report.samples.add(
            name="__execute-latency",
            label="word/default",
            type=control_pb2.Sample.HISTOGRAM,
            sum=4e6,
            count=2,
            buckets=[control_pb2.Bucket(le=1e6, count=1), control_pb2.Bucket(le=float("inf"), count=2)],
        )
    wordy.answers["get_metrics"] = reply
    result = heron("metrics", "local", "wordy", "--component", "count", "--interval", "5m", "--all")
    assert result.code == 0
    assert "25" in result.out and "2ms (mean of 4)" in result.out
    request = wordy.asked[-1][1]
    assert isinstance(request, control_pb2.GetMetrics)
    assert (request.component, request.interval_s) == ("count", 300.0)
    by_instance = heron("metrics", "local", "wordy", "--by-instance", "--all").out
    assert "container_1_count_2" in by_instance and "container_1_count_3" in by_instance
    shown = json.loads(heron("metrics", "local", "wordy", "--json").out)
    assert shown["processes"][0]["metrics"][1]["buckets"][1] == {"le": "+Inf", "count": 2}
    wrong = heron("metrics", "local", "wordy", "--component", "coun")
    assert wrong.code == 2 and "did you mean 'count'?" in wrong.err


def test_metrics_are_few_unless_all_are_wanted(heron: Heron, wordy: FakeTopology) -> None:
    reply = control_pb2.MetricsReply()
    for task in (2, 3):
        report = reply.reports.add(process=f"container_1_count_{task}", component="count", task_id=task)
        for name, value in (("__execute-count", 1000.0 * task), ("__py-user-cpu-time-secs", 1.5),
                            ("__py-sys-cpu-time-secs", 0.5), ("__py-physical-memory-byte", 10 << 20),
                            ("__gateway-in-stream-queue-size", 7), ("__fail-count", 0),
                            ("__gateway-sent-packets-per-sec", 0), ("__gateway-consumed-packets-per-sec", 100 * task),
                            ("__gateway-consumed-tuples-per-packet", task)):  # fmt: skip
            report.samples.add(name=name, type=control_pb2.Sample.GAUGE, value=value)
        latency = report.samples.add(name="__execute-latency", type=control_pb2.Sample.HISTOGRAM, sum=2e6, count=2)
        latency.buckets.add(le=1e6, count=1)
        latency.buckets.add(le=5e6, count=2)
    reply.reports[0].at_least = True
    reply.reports.add(process="stmgr-1").samples.add(name="__stmgr_garbage", value=0)
    wordy.answers["get_metrics"] = reply
    short = heron("metrics", "local", "wordy").out
    [row] = [line.split() for line in short.splitlines() if line.strip().startswith("count ")]
    assert row == ["count", "-", "5,000", "-", "0", "1ms", "5ms", "14", "4.0s", "20MB", "500", "2.6"]
    assert "stmgr" not in short and "'--all' shows every metric" in short
    assert "the counts of count are lower bounds" in short
    assert "container_1_count_3" in heron("metrics", "local", "wordy", "--by-instance").out
    everything = heron("metrics", "local", "wordy", "--all").out
    assert "__stmgr_garbage" in everything and "__execute-count" in everything
    assert "__fail-count" in heron("metrics", "local", "wordy", "--name", "__fail-count").out
    assert "__fail-count" in heron("metrics", "local", "wordy", "--instance", "container_1_count_2").out


def test_a_metric_that_does_not_exist_is_an_error(heron: Heron, wordy: FakeTopology) -> None:
    """It exited with 0, so that a script took a misspelt name for a count of 0."""
    wordy.answers["get_metrics"] = control_pb2.MetricsReply()
    refused = heron("metrics", "local", "wordy", "--name", "__emit-cuont")
    assert refused.code == 2
    assert "has no metric '__emit-cuont'; did you mean '__emit-count'?" in refused.err
    assert heron("metrics", "local", "wordy", "--name", "mine", "--json").code == 2
    assert heron("metrics", "local", "wordy", "--name", "__emit-count").code == 0, "it may come"


def test_a_rate_of_the_window_is_not_told_as_that_of_now() -> None:
    """The doctor said that a spout emits nothing for 55 s, and in the next line that spouts emit 1,576/s."""
    spout = TaskSignals("words-1", "words", True, True, emitted=1576.0)
    signals = Signals("wordy", control_pb2.LIFE_RUNNING, "", 300.0, [spout])
    assert doctor.seen(signals)[0] == "5m00s: spouts emit 1,576/s, held 0 %"
    signals.still_s = {"words": 55.0}
    assert doctor.seen(signals)[0] == "5m00s: spouts emitted 1,576/s, nothing in the last 55s, held 0 %"


def test_metrics_by_instance_show_tasks_that_have_counted_nothing(heron: Heron, wordy: FakeTopology) -> None:
    reply = control_pb2.MetricsReply()
    report = reply.reports.add(process="container_1_count_2", component="count", task_id=2)
    report.samples.add(name="__execute-count", label="word/default", value=7)
    report.samples.add(name="__pending", type=control_pb2.Sample.GAUGE, value=3)
    wordy.answers["get_metrics"] = reply
    lines = [
        line.split()
        for line in heron("metrics", "local", "wordy", "--by-instance", "--name", "__execute-count").out.splitlines()
    ]
    counts = {words[0]: words[1:4] for words in lines if "__execute-count" in words}
    assert counts == {
        "container_1_count_2": ["__execute-count", "word/default", "7"],
        "container_1_count_3": ["__execute-count", "word/default", "0"],
    }
    assert not [words for words in lines if words[:2] == ["container_1_count_3", "__pending"]], "a gauge has no zero"
    assert (
        "container_1_word_1" not in heron("metrics", "local", "wordy", "--by-instance", "--name", "__execute-count").out
    )
    shown = json.loads(heron("metrics", "local", "wordy", "count", "--json").out)["processes"]
    assert [(row["process"], row["metrics"][0]["value"]) for row in shown] == [
        ("container_1_count_2", 7.0),
        ("container_1_count_3", 0.0),
    ]


def test_slow_shows_values_as_one_line_each(heron: Heron, wordy: FakeTopology) -> None:
    wordy.answers["get_slow"] = reply = Slow(tuples=[])
    assert "No slow tuples in topology 'wordy'" in heron("slow", "local", "wordy").out
    one = SlowTuple(
        at=9.0, instance_id="container_1_count_2", component="count", task_id=2, source="word/default", source_task=1,
        took_s=1.5, value="['\x1b[31m<b>\n']", tuples=1,
    )  # fmt: skip
    reply.tuples += [one, replace(one, took_s=0.2, value=None, tuples=512)]
    out = heron("slow", "local", "wordy", "--component", "count").out
    assert "1.5s" in out and "['\\x1b[31m<b>\\n']" in out and "unknown: one of 512 tuples" in out
    asked = dict(wordy.asked)["get_slow"]
    assert isinstance(asked, control_pb2.GetSlow) and asked.component == "count"
    first, second = json.loads(heron("slow", "local", "wordy", "--json").out)["tuples"]
    assert (first["value"], first["took_s"], second["value"]) == ("['\x1b[31m<b>\n']", 1.5, None)


def test_trace_shows_hops_and_the_slowest_tuple(
    heron: Heron, wordy: FakeTopology, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heronpy.cli.look.trace.LATE_S", 0.0)
    wordy.answers["get_traces"] = reply = traces(at=50.0)
    assert (
        "No tuple of topology 'wordy' was traced that took at least 5ms"
        in heron("trace", "local", "wordy", "--seconds", "1", "--min-ms", "5").out
    )
    nothing = heron("trace", "local", "wordy", "--seconds", "1").out
    assert (
        nothing
        == "No tuple of topology 'wordy' was traced; if backpressure holds spouts back, heron doctor names the cause\n"
    )
    orders = [body for name, body in wordy.asked if isinstance(body, control_pb2.GetTraces)]
    assert (orders[0].per_s, orders[0].lease_s) == (100.0, 3.0)
    assert [(one.per_s, one.since, one.until, one.min_s) for one in orders if one.min_s] == [(0.0, 50.0, 51.0, 0.005)]
    hop = Hop(
        source="word/default", target="count", hop="wire", count=1, p50_s=0.1, p99_s=0.1, max_s=0.1, error_s=0.0
    )  # fmt: skip
    spans = [
        Span(trace=7, number=1, began=0, ended=2_000_000, process="container_1_word_1\x1b[31m", component="word"),
        Span(trace=7, number=2, parent=1, emitted=2_000_000, sealed=4_000_000, hops=[5_000_000, 6_000_000],
             began=9_000_000, ended=10_000_000, process="container_1_count_2", end=control_pb2.SPAN_HELD),
    ]  # fmt: skip
    trace = Trace(id=f"{7:016x}", at=9.0, took_s=0.01, spans=[shown(one) for one in placed(spans)])
    wordy.answers["get_traces"] = reply = traces(
        at=50.0, matching=1, kept=1, p50_s=0.01, p99_s=0.01, discarded=4, hops=[hop], traces=[trace]
    )
    out = heron("trace", "local", "wordy", "--seconds", "1").out
    assert "the slowest, 10ms, trace 0000000000000007" in out and "4 calls were not kept" in out
    first, second = [line for line in out.splitlines() if line.lstrip().startswith("container_1")]
    assert "\\x1b[31m" in first and "|PPPPPPPPPP " in first
    assert re.search(r"\| +b{9,11}w{4,6}q{4,6}i{13,16}P{4,6}\|", second) and "held here" in second
    assert out.startswith("1 tuples: p50 10ms, p99 10ms from") and "under way" not in out
    reply.under_way = 3
    out = heron("trace", "local", "wordy", "--seconds", "1").out
    assert out.startswith("1 tuples: p50 at least 10ms, p99 at least 10ms from")
    assert "under way  3 traced tuples have not arrived everywhere yet, or are in a call" in out
    found = json.loads(heron("trace", "local", "wordy", "--seconds", "1", "--json").out)
    assert found["traces"][0]["spans"][1]["parts"][0] == {"hop": "batch", "took_s": 0.002} and found["under_way"] == 3
    away = heron("trace", "local", "wordy", "--seconds", "1", "--otlp", "http://127.0.0.1:1")
    assert away.code == 1 and "the collector at http://127.0.0.1:1/v1/traces did not accept the traces: " in away.err
    assert len(away.err.splitlines()) == 1
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=hidden\x1b")
    bad = heron("trace", "local", "wordy", "--otlp", "http://127.0.0.1:1")
    assert bad.code == 2 and "OTEL_EXPORTER_OTLP_HEADERS has a part that is not a header" in bad.err
    assert "hidden" not in bad.err
    bad = heron("trace", "local", "wordy", "--otlp", "ftp://x")
    assert bad.code == 2 and "--otlp ftp://x is not an address; use an address such as http://127.0.0.1:4318" in bad.err


def test_top_prints_snapshots_without_a_terminal(heron: Heron, wordy: FakeTopology) -> None:
    def work(name: str) -> None:
        wordy.status.tasks[1].executed += 100

    wordy.on_ask = work
    result = heron("top", "local", "wordy", "-n", "2", "--interval", "0.1")
    assert result.code == 0
    assert result.out.count("wordy  RUNNING") == 2 and "count" in result.out
    lines = heron("top", "local", "wordy", "-n", "2", "--interval", "0.1", "--json").out.splitlines()
    count = json.loads(lines[-1])["components"][1]
    assert count["name"] == "count" and count["executed_per_s"] > 0 and count["up"] == 2


def test_one_look_shows_no_rates(heron: Heron, wordy: FakeTopology) -> None:
    """A rate needs two; 0.0 would say that nothing flows."""
    status = json.loads(heron("status", "local", "wordy", "--json").out)["components"][1]
    top = json.loads(heron("top", "local", "wordy", "-n", "1", "--json").out)["components"][1]
    rates = {"emitted_per_s", "executed_per_s", "frames_per_s", "tuples_per_frame"}
    assert not rates & status.keys() and status["executed"] == 0 and top.keys() - status.keys() == rates
