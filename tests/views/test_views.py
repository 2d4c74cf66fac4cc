"""What is shown says what was reported: sums, unknowns, and nothing that could be a secret."""

from __future__ import annotations

from math import inf

import msgspec
import pytest

from heronpy.clusters.summary import topology_of
from heronpy.health.diagnose import diagnose
from heronpy.health.doctor import doctor_of
from heronpy.health.signals import Signals
from heronpy.metrics.quantiles import quantile, quantiles_s
from heronpy.proto import checkpoint_pb2, control_pb2
from heronpy.tracker.samples import Samples
from heronpy.views import advice, files, live, load, overview, past, plan, saved
from heronpy.views.load import tasks_of
from heronpy.views.past import event_of, start_of
from heronpy.views.saved import batches_of, checkpoints_of, spark_figures
from tests.cli.conftest import packing, word_count
from tests.support.views import load_answer
from tests.tracker.conftest import load_reply

SHAPES = [
    shape
    for module in (advice, files, live, load, overview, past, plan, saved)
    for shape in vars(module).values()
    if isinstance(shape, type) and issubclass(shape, msgspec.Struct) and shape.__module__ == module.__name__
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_every_shape_has_a_meaning_and_a_schema(shape: type[msgspec.Struct]) -> None:
    assert shape.__doc__ and msgspec.json.schema(shape)
    if shape is not live.Cells:
        for field in msgspec.structs.fields(shape):
            assert not field.name.endswith(("_ms", "_ns", "_kb", "_mb", "_percent")), "base units only"


def test_a_call_that_lasts_is_told_as_a_latency() -> None:
    """While tuples took longer than the window, their latency was unknown."""
    status = control_pb2.StatusReply()
    status.plan.topology.bolts.add().comp.name = "count"
    for number, age_s in ((1, 0.1), (2, 31.0)):
        status.tasks.add(task_id=number, component="count", instance_id=f"count-{number}", loop_age_s=age_s,
                         state=control_pb2.TASK_RUNNING)  # fmt: skip
    idle, slow = tasks_of(status, control_pb2.MetricsReply(interval_s=10.0), 1, 0.0).tasks
    assert (idle.latency_p50_s, idle.latency_p99_s, idle.latency_at_least) == (None, None, False)
    assert (slow.latency_p50_s, slow.latency_p99_s, slow.latency_at_least) == (31.0, 31.0, True)


def test_a_topology_without_answer_keeps_its_totals_and_loses_its_rates() -> None:
    from heronpy.proto import plan_pb2

    record = plan_pb2.ExecutionState(topology="wordy", topology_id="wordy-1", cluster="local")
    shown = topology_of(record, load_reply(), word_count(), packing(), absent="NO ANSWER", cause="why")
    assert (shown.state, shown.cause, shown.rank) == ("NO ANSWER", "why", 3)
    assert shown.sentence is shown.emitted_per_s is shown.tasks_up is None
    assert shown.totals is not None and shown.totals.acked == 41
    assert topology_of(record, None, None, None).state == "STARTING"


def test_an_event_of_a_newer_release_is_shown() -> None:
    assert event_of(control_pb2.TopologyEvent(number=1, kind=99)).kind == "kind-99"  # type: ignore[arg-type]


def test_the_phases_of_a_start_add_up_to_the_whole() -> None:
    times = control_pb2.StartTimes(begun_at=100.0, packaged_at=101.5, launched_at=103.0, registered_at=103.25)
    start = start_of(times)
    assert start is not None and not start.running and start.took_s == 3.25
    times.planned_at, times.running_at = 103.5, 105.0
    start = start_of(times)
    assert start is not None and start.running and (start.begun_at, start.took_s) == (100.0, 5.0)
    assert [(one.name, one.took_s) for one in start.phases] == [
        ("package", 1.5), ("launch", 1.5), ("register", 0.25), ("plan", 0.25), ("initialise", 1.5)
    ]  # fmt: skip
    assert start_of(control_pb2.StartTimes()) is None


def test_quantiles_merge_what_several_tasks_report() -> None:
    one = control_pb2.Sample(name="__execute-latency", count=10)
    one.buckets.extend([control_pb2.Bucket(le=1000, count=9), control_pb2.Bucket(le=inf, count=10)])
    other = control_pb2.Sample(name="__execute-latency", count=90)
    other.buckets.extend([control_pb2.Bucket(le=1000, count=0), control_pb2.Bucket(le=2000, count=90)])
    middle, high = quantile([one], 0.5), quantile([one], 0.99)
    assert middle == (pytest.approx(1000 * 5 / 9), False) and high == (1000, True), "beyond the last bucket"
    assert quantiles_s([one, other], (0.5,)) == [(pytest.approx(1e-6 + 1e-6 * 41 / 90), False)]
    assert quantile([], 0.5) is None and quantiles_s([control_pb2.Sample(name="mine", count=1)], (0.5,)) == [None]


def test_checkpoints_name_what_the_one_under_way_waits_for() -> None:
    reply = control_pb2.CheckpointsReply(pending=8, pending_s=4.0, pending_tasks=2, pending_names=["a", "b"])
    reply.complete.add(checkpoint=6, kind=checkpoint_pb2.SAVEPOINT, damaged=True)
    reply.complete.add(checkpoint=7, uploaded_bytes=5)
    found = checkpoints_of(reply, "EFFECTIVELY_ONCE", 10.0, 48)
    assert [one.number for one in found.complete] == [7, 6]
    assert (found.complete[1].kind, found.complete[1].damage) == ("savepoint", "it is damaged")
    assert found.pending is not None and (found.pending.tasks, found.pending.missing) == (48, 2)
    assert found.pending.waits_for == ["a", "b"]


def test_batches_belong_to_their_sink() -> None:
    reply = control_pb2.MetricsReply()
    report = reply.reports.add(process="spark-gateway")
    for name, label, value in (
        ("spark-batches-committed", "store", 4.0), ("spark-seconds", "store", 8.0), ("spark-batches-waiting", "", 2.0),
        ("spark-ui-port", "", 4040.0),
    ):  # fmt: skip
        report.samples.add(name=name, label=label, value=value, type=control_pb2.Sample.GAUGE)
    found = batches_of(reply, "here")
    [sink] = found.sinks
    assert (sink.component, sink.committed, sink.seconds_per_batch, sink.waiting) == ("store", 4, 2.0, 2)
    assert sink.run_p99_s is None and found.spark_ui == "http://here:4040"


def _sink(committed: int, each_s: float | None, lag_s: float | None, failed: int = 0) -> saved.Sink:
    unknown = dict.fromkeys([f"{word}_{part}_s" for word in ("wait", "run", "publish") for part in ("p50", "p99")])
    return saved.Sink(
        component="store", rows=0, committed=committed, failed=failed, retried=0, running=1, waiting=3,
        seconds_per_batch=each_s, lag_s=lag_s, **unknown,  # type: ignore[arg-type]
    )  # fmt: skip


def test_spark_batches_of_a_run_of_seconds_have_figures_between_two_looks() -> None:
    """The minutes of the topology master have nothing of a run that is shorter than one."""
    first = saved.Batches(sinks=[_sink(2, 4.0, 1.0), _sink(2, 4.0, 9.0)], spark_ui=None)
    later = saved.Batches(sinks=[_sink(6, 3.0, None), _sink(2, 4.0, 2.0)], spark_ui=None)
    assert spark_figures(first, None, 0.0) == {
        "spark_waiting": 3.0, "spark_lag_s": 9.0, "spark_done": None, "spark_batch_s": 4.0,
    }  # fmt: skip
    assert spark_figures(later, first, 2.0) == {
        "spark_waiting": 3.0, "spark_lag_s": 2.0, "spark_done": 2.0, "spark_batch_s": 2.5,
    }  # fmt: skip
    assert spark_figures(first, later, 2.0)["spark_done"] is None, "a new gateway counts from 0"
    assert spark_figures(saved.Batches(sinks=[], spark_ui=None), None, 0.0) == {}


def test_figures_of_spark_are_samples_of_a_young_topology() -> None:
    samples = Samples()
    batches = saved.Batches(sinks=[_sink(2, 4.0, 1.0)], spark_ui=None)
    for second in (0.0, 2.0, 4.0):
        if second:
            samples.see_batches(batches, second)
        samples.see(load_answer(at=100.0 + second).load)
    found = samples.timeline()
    assert found is not None
    series = {(one.component, one.metric): one.values for one in found.series}
    assert series["", "spark_waiting"] == [None, 3.0, 3.0] and series["", "spark_done"] == [None, None, 0.0]


def test_the_doctor_says_what_it_could_not_ask() -> None:
    """Figures that are missing were shown as nothing at all."""
    signals = Signals("wc", control_pb2.LIFE_RUNNING, "", 60.0)
    assert doctor_of(signals, diagnose(signals), "local").not_known == ""
    signals.unanswered = ["figures", "the last hour"]
    said = doctor_of(signals, diagnose(signals), "local").not_known
    assert said == "the topology master did not answer in time: figures, the last hour"
