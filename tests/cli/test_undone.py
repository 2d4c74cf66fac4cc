"""What `heron submit --wait` says of batches and work units that failed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from heronpy.cli.submit.undone import Undone, undone_of
from heronpy.clusters.session import Session
from heronpy.common.errors import RpcError
from heronpy.proto import control_pb2, plan_pb2

RECORD = plan_pb2.ExecutionState(topology="wordy")


def answering(**samples: float) -> Session:
    """A session whose topology master knows these counts: `<metric>__<label>`."""
    reply = control_pb2.MetricsReply()
    for keeper in (1, 2):
        report = reply.reports.add(process=f"process-{keeper}")
        for key, value in samples.items():
            name, label = key.split("__")
            if keeper == 1 or name == "units_failed":
                report.samples.add(name=name.replace("_", "-"), label=label.replace("_at_", "/"), value=value)
    return cast("Session", SimpleNamespace(ask=lambda *_: reply))


def ended(mode: str) -> control_pb2.StatusReply:
    status = control_pb2.StatusReply(topology="wordy")
    status.plan.topology.topology_config.kvs.add(key="topology.reliability.mode", value=mode)
    status.plan.topology.bolts.add().comp.name = "store"
    status.plan.topology.bolts[0].comp.config.kvs.add(key="spark.sink", value="true")
    return status


@pytest.mark.parametrize(("mode", "lost"), [("ATMOST_ONCE", 3), ("ATLEAST_ONCE", 0)])
def test_rows_of_failed_batches_are_missing_where_nobody_sends_them_again(mode: str, lost: int) -> None:
    session = answering(spark_batches_failed__store=3, spark_batches_failed__keeper=5)
    undone = undone_of(session, RECORD, ended(mode))
    assert undone == Undone(lost=lost)
    assert ("3 Spark batches failed; under ATMOST_ONCE" in undone.sentence(cast("Any", "local"), "wordy")) is bool(lost)


def test_units_of_a_pipeline_count_once_whoever_tells_of_them() -> None:
    session = answering(units_failed__requests=8, units_failed__requests_at_east=8)
    undone = undone_of(session, RECORD, ended("ATMOST_ONCE"))
    assert undone == Undone(units=8)
    assert "8 work units failed; heron units list" in undone.sentence(cast("Any", "local"), "wordy")


def test_nothing_is_said_where_nobody_answers_or_nothing_failed() -> None:
    def away(*_: object) -> None:
        raise RpcError("no answer")

    assert undone_of(cast("Session", SimpleNamespace(ask=away)), RECORD, ended("ATMOST_ONCE")) == Undone()
    assert Undone().sentence(cast("Any", "local"), "wordy") == ""


def test_a_topology_whose_rows_are_kept_stays() -> None:
    said = Undone(kept=5, kept_rows=5000).sentence(cast("Any", "local"), "wordy")
    assert "5 Spark batches with 5,000 rows failed; the topology is not removed" in said
    assert "heron batches local wordy --retry" in said
