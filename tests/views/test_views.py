"""What is shown says what was reported: sums, unknowns, and nothing that could be a secret."""

from __future__ import annotations

import struct
from math import inf, nan

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.proto import checkpoint_pb2, control_pb2
from heronpy.views import advice, files, live, load, overview, past, plan, saved
from heronpy.views.build_load import component_load, load_of
from heronpy.views.build_overview import topology_of
from heronpy.views.build_past import events_of, timeline_of
from heronpy.views.build_saved import batches_of, checkpoints_of
from heronpy.views.quantiles import quantile, quantile_s
from tests.cli.conftest import packing, word_count
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


def test_an_absent_figure_is_unknown_and_not_zero() -> None:
    row = component_load(control_pb2.ComponentLoad(component="x", tasks=1))
    assert row.busy is row.executed_per_s is row.busiest is row.latency_p99_s is row.memory_bytes is None
    assert component_load(control_pb2.ComponentLoad(component="x", busy=0.0)).busy == 0.0


def test_an_edge_beyond_the_components_is_left_out() -> None:
    reply = load_reply()
    reply.edges.add(source=7, target=1)
    assert [edge.id for edge in load_of(reply, 1).edges] == ["word/default>count"]


def test_a_topology_without_answer_keeps_its_totals_and_loses_its_rates() -> None:
    from heronpy.proto import plan_pb2

    record = plan_pb2.ExecutionState(topology="wordy", topology_id="wordy-1", cluster="local")
    shown = topology_of(record, load_reply(), word_count(), packing(), absent="NO ANSWER", cause="why")
    assert (shown.state, shown.cause, shown.rank) == ("NO ANSWER", "why", 3)
    assert shown.sentence is shown.emitted_per_s is shown.tasks_up is None
    assert shown.totals is not None and shown.totals.acked == 41
    assert topology_of(record, None, None, None).state == "STARTING"


@given(st.lists(st.floats(width=32), max_size=8), st.integers(0, 10))
def test_a_timeline_has_as_many_values_as_times(values: list[float], points: int) -> None:
    reply = control_pb2.TimelineReply(first=60.0, step_s=60.0, points=points)
    reply.series.add(component="x", name="busy", values=struct.pack(f"<{len(values)}f", *values) + b"\1")
    found = timeline_of(reply)
    assert len(found.times) == len(found.series[0].values) == points
    assert all(value is None or value == value for value in found.series[0].values)
    assert nan not in found.times


def test_an_event_of_a_newer_release_is_shown() -> None:
    reply = control_pb2.EventsReply()
    reply.events.add(number=1, kind=99)  # type: ignore[arg-type]
    assert events_of(reply).events[0].kind == "kind-99"


def test_quantiles_merge_what_several_tasks_report() -> None:
    one = control_pb2.Sample(name="__execute-latency", count=10)
    one.buckets.extend([control_pb2.Bucket(le=1000, count=9), control_pb2.Bucket(le=inf, count=10)])
    other = control_pb2.Sample(name="__execute-latency", count=90)
    other.buckets.extend([control_pb2.Bucket(le=1000, count=0), control_pb2.Bucket(le=2000, count=90)])
    assert quantile([one], 0.5) == 1000 and quantile([one], 0.99) == 1000, "beyond the last bucket"
    assert quantile_s([one, other], 0.5) == pytest.approx(2e-6)
    assert quantile([], 0.5) is None and quantile_s([control_pb2.Sample(name="mine", count=1)], 0.5) is None


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
