"""The backlog of a spout: asked for if it defines it, unknown when it raises or is no backlog."""

from __future__ import annotations

import logging
import sys
from typing import Any

import pytest

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.base_spout import Backlog
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.proto import control_pb2
from instance.backlog import ERRORS, BacklogMetric
from instance.metrics import TaskMetrics
from tests.sim.run import cluster_of
from tests.sim.workload import Program

TUPLES, BYTES = ("__backlog-tuples", ""), ("__backlog-bytes", "")


def reported(metrics: TaskMetrics) -> dict[tuple[str, str], float]:
    report = control_pb2.MetricsReport()
    metrics.fill(report)
    return {(sample.name, sample.label): sample.value for sample in report.samples}


def test_what_is_unknown_is_not_reported_and_errors_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[Any] = []

    def ask() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    metrics = TaskMetrics()
    metric = BacklogMetric(ask, metrics)
    for answer, expected in (
        (7, {TUPLES: 7}),
        (Backlog(bytes=9), {BYTES: 9}),
        (Backlog(3, 4), {TUPLES: 3, BYTES: 4}),
        (OSError("away"), {(ERRORS, ""): 1}),
        (0, {TUPLES: 0, (ERRORS, ""): 1}),
        (-1, {(ERRORS, ""): 2}),
        (True, {(ERRORS, ""): 3}),
        ("many", {(ERRORS, ""): 4}),
        (None, {(ERRORS, ""): 4}),
    ):
        answers.append(answer)
        metric.get_value_and_reset()
        assert reported(metrics) == expected, answer
    assert [record.levelno for record in caplog.records] == [logging.ERROR] and "away" in caplog.text


class Quiet(Spout):
    outputs = ["n"]
    backlog_now = 5

    def next_tuple(self) -> None:
        self.wait(60.0)


class Telling(Quiet):
    def backlog(self) -> int:
        return self.backlog_now


class Sink(Bolt):
    def process(self, tup: Any) -> None: ...


@pytest.mark.parametrize("kind", [Telling, Quiet])
def test_only_a_spout_that_defines_it_is_asked_each_second_also_while_it_waits(
    kind: type[Spout], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "instance.backlog", raising=False)
    made = TopologyBuilder("sim")
    source = made.add_spout("source", kind, par=1)
    made.add_bolt("sink", Sink, par=1, inputs={source: Grouping.SHUFFLE})
    with cluster_of(0, Program(made, None)) as (cluster, _):
        cluster.until(control_pb2.LIFE_RUNNING)
        [process] = cluster.tasks("source")
        task, began = process.program, cluster.world.now
        cluster.run(lambda: cluster.world.now > began + 3.0)
        assert task.metrics.gauges.get(TUPLES) == (5 if kind is Telling else None)
        task.user.object.backlog_now = 8
        began = cluster.world.now
        cluster.run(lambda: task.metrics.gauges.get(TUPLES) == 8 or kind is Quiet)
        assert cluster.world.now - began < 1.5
    assert ("instance.backlog" in sys.modules) is (kind is Telling)
