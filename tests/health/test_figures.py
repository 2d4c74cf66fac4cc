"""The figures of a diagnosis say what is so: backlogs, arrivals, checkpoints under way, containers that moved."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from heronpy.health.diagnose import diagnose
from heronpy.health.gathering import signals_of
from heronpy.health.signals import HostSignals, TaskSignals
from heronpy.health.texts import advice, sentence
from heronpy.proto import control_pb2, topology_pb2
from heronpy.tmaster.event_log import EventLog, Watcher
from heronpy.views.findings import Verdict
from tests.health.diagnose_cases import EVEN, RUNNING, bolt, first, history, signals
from tests.support.views import event


def _task_of(busy_s: float, **values: float) -> TaskSignals:
    """A task after 60 s in which it was busy for the given time."""
    status = control_pb2.StatusReply(topology="wc", lifecycle=RUNNING)
    status.plan.topology.bolts.add().comp.name = "count"
    queued, size = int(values.pop("queued", 0)), int(values.pop("queue_bytes", 0))
    status.tasks.add(task_id=2, component="count", instance_id="count-2", state=control_pb2.TASK_RUNNING,
                     in_queue_tuples=queued, in_queue_bytes=size)  # fmt: skip
    metrics = control_pb2.MetricsReply(interval_s=60.0)
    report = metrics.reports.add(process="count-2")
    times = {"__busy-time-ns": busy_s * 1e9, "__blocked-time-ns": 0.0, "__idle-time-ns": (60.0 - busy_s) * 1e9}
    for name, value in (times | values).items():
        report.samples.add(name=name, value=value)
    return signals_of(status, metrics, now=0.0).tasks[0]


def test_a_large_frame_that_is_worked_on_is_a_backlog() -> None:
    """A task that was 100 % busy with a frame of 0.5 MB received nothing meanwhile: its topology was called healthy."""
    task = _task_of(60.0, queued=20_000, queue_bytes=813_000, **{"__execute-count": 9_000.0})
    assert task.lag_s == pytest.approx(20_000 / 150)
    assert first(signals(replace(task, cpu=0.4)))[0] is Verdict.UNDER_PROVISIONED


def test_one_tuple_a_minute_is_no_backlog() -> None:
    """The one that was just being processed would have taken a minute at that rate."""
    counted = {"__execute-count": 1.0, "__gateway-received-packets-size": 30.0}
    task = _task_of(0.06, queued=1, queue_bytes=30, **counted)
    assert task.lag_s == pytest.approx(0.06)


def test_what_is_emitted_to_a_bolt_arrives_whether_it_is_read_or_not() -> None:
    """With 400 tuples a second for a task that did 160, two tasks were advised: those do 220 at 70 %."""
    status = control_pb2.StatusReply(topology="wc", lifecycle=RUNNING)
    topology = status.plan.topology
    topology.spouts.add().comp.name = "words"
    for name in ("count", "log"):
        receiver = topology.bolts.add()
        receiver.comp.name = name
        stream = receiver.inputs.add(gtype=topology_pb2.SHUFFLE).stream
        stream.component_name, stream.id = "words", "default"
    status.tasks.add(task_id=1, component="words", instance_id="words-1", state=control_pb2.TASK_RUNNING)
    metrics = control_pb2.MetricsReply(interval_s=50.0)
    # Once for each of the two that receive it.
    metrics.reports.add(process="words-1").samples.add(name="__emit-count", label="default", value=40_000)
    metrics.reports[0].samples.add(name="__emit-count", label="errors", value=500)
    assert signals_of(status, metrics, now=0.0).arrivals == {"count": 400.0, "log": 400.0}
    one = bolt(2, 0.99, 160.0, lag_s=90.0)
    finding = diagnose(signals(one, arrivals={"count": 400.0}))[0]
    assert finding.verdict is Verdict.UNDER_PROVISIONED and finding.figures["needed"] == 4
    assert sentence(finding, "wc").startswith("count needs more tasks: about 400/s arrive; its only task handles 160/s")


def test_a_limit_comes_before_the_machine() -> None:
    """No bolt is busy: what waits for acks waits no shorter when the machine is idle."""
    full = [HostSignals("h1", 2, 0.9, 2.0, 0.1)]
    found = signals(*EVEN, acking=True, max_pending=500, pending=500, hosts=full)
    assert [one.verdict for one in diagnose(found)] == [Verdict.LIMIT, Verdict.MACHINE]


def test_a_checkpoint_that_has_just_begun_waits_for_nobody() -> None:
    """Whoever asked while one was under way was told that all tasks keep it waiting, and to let barriers overtake."""
    status = control_pb2.StatusReply(topology="wc", lifecycle=RUNNING)
    metrics = control_pb2.MetricsReply(interval_s=60.0)
    said = {}
    for pending_s in (0.3, 40.0):
        reply = control_pb2.CheckpointsReply(pending=9, pending_s=pending_s, last_failure="the disk is full")
        reply.pending_names.append("count-2")
        found = signals_of(status, metrics, checkpoints=reply, now=1000.0, checkpoint_every_s=2.0)
        [finding] = (one for one in diagnose(found) if one.verdict is Verdict.CHECKPOINTS)
        said[pending_s] = sentence(finding, "wc"), advice(finding, "local", "wc")
    assert said[0.3] == (
        "no checkpoint yet (one is due every 2s); the last checkpoint did not complete: the disk is full",
        "heron checkpoints list local wc",
    )
    assert "a checkpoint is waiting for count-2" in said[40.0][0]


@pytest.mark.parametrize("reason", ["moved", "restarted", "preempted"])
def test_containers_that_somebody_moves_are_no_crashes(reason: str) -> None:
    """However often: a drain moves one after the other, and comes back."""
    events = [event(at=900.0 + n, kind="restart", subject="container 1", times=3, reason=reason) for n in range(3)]
    status = control_pb2.StatusReply(topology="wc", lifecycle=RUNNING)
    found = signals_of(status, control_pb2.MetricsReply(interval_s=60.0), events, now=1000.0)
    assert not found.restarted and Verdict.CRASHING not in {one.verdict for one in diagnose(found)}


def test_a_container_that_is_lost_again_and_again_leads_to_its_log() -> None:
    """`heron logs local wc container 1` was advised, which is refused."""
    event_log = EventLog()
    watcher = Watcher(event_log)
    for epoch in (1, 2, 3):
        watcher.processes(1, epoch, ())
    status = control_pb2.StatusReply(topology="wc", lifecycle=RUNNING)
    status.executors.add(container=1, host="h1")
    found = signals_of(status, control_pb2.MetricsReply(interval_s=60.0), event_log.after(0).events, now=0.0)
    [finding] = (one for one in diagnose(found) if one.verdict is Verdict.CRASHING)
    assert sentence(finding, "wc") == "executor-1 was restarted 2 times: lost host"
    assert advice(finding, "local", "wc") == "heron exceptions local wc; heron logs local wc executor-1"


def test_each_component_that_is_down_says_why_it_is() -> None:
    """Of a silent stream manager each component had the sentence of all: the doctor said it three times."""
    why = "stmgr-1 has been silent for 10 s"
    cause = f"the only task of a is down: {why}; the only task of b is down: {why}"
    status = control_pb2.StatusReply(topology="wc", lifecycle=control_pb2.LIFE_DEGRADED, cause=cause)
    for number, component in enumerate(("a", "b"), 1):
        status.tasks.add(task_id=number, component=component, instance_id=f"{component}-{number}",
                         state=control_pb2.TASK_LOST, error=f"earlier\n{why}\n")  # fmt: skip
    found = diagnose(signals_of(status, control_pb2.MetricsReply(interval_s=60.0), now=0.0))
    assert [sentence(one, "wc") for one in found] == [
        f"the only task of {name} is down ({name}-{number}): {why}" for number, name in enumerate(("a", "b"), 1)
    ]
    assert (
        advice(found[0], "local", "wc") == "heron status local wc; heron exceptions local wc; heron logs local wc a-1"
    )


def test_late_acks_are_late_whatever_the_sink_says() -> None:
    """With acks, tuples took 5 s instead of 19 ms, and the topology was healthy: at the sink they were in time."""
    minutes = history("words", complete_p99_s=[0.02] * 12 + [5.0] * 3)
    minutes |= history(end_to_end_p99_s=[0.01] * 15)
    said = "wc is slower than usual: from emit to the full ack at words, p99 5s (usually 20ms); cause unknown"
    assert first(signals(*EVEN, history=minutes)) == (Verdict.UNTRIAGED, said)


def test_a_burst_is_worked_off_once_it_is_past_its_peak() -> None:
    """While its rise was among the last five minutes, more tasks were advised until the queue was empty."""
    rising = [2.0e4, 5.4e4, 8.6e4, 6.8e4]
    for queue, verdict in (([*rising, 2.8e4], Verdict.CATCHING_UP), (rising, Verdict.UNDER_PROVISIONED)):
        found = signals(bolt(2, 0.99, 40.0, lag_s=60.0), history=history(queue_bytes=queue))
        assert first(found)[0] is verdict
