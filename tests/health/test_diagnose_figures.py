"""The doctor with any figures, and the figures that the answers of a topology master give."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from heronpy.health.diagnose import diagnose
from heronpy.health.gathering import SERIES, signals_of, window_of
from heronpy.health.recording import to_json
from heronpy.health.signals import HostSignals, HotSpots, Signals, TaskSignals
from heronpy.health.texts import advice, sentence
from heronpy.proto import control_pb2, topology_pb2
from heronpy.views.findings import CALM, Finding, Verdict
from tests.health.diagnose_cases import EVEN, HELD, RUNNING, SKEWED, bolt, first, history, signals
from tests.support.histories import from_json
from tests.support.views import event

MINUTES = st.lists(st.none() | st.floats(0, 1e12), max_size=62)
HISTORY = st.dictionaries(st.sampled_from(["", "a", "b", "c"]), st.dictionaries(st.sampled_from(SERIES), MINUTES))
HOSTS = st.lists(
    st.builds(HostSignals, st.sampled_from(["h1", "h2"]), st.integers(1, 64), st.floats(0, 1), st.floats(0, 64),
              st.floats(0, 64), st.floats(0, 64)), max_size=2,
)  # fmt: skip
SHARE = st.none() | st.floats(0, 1)
TRAIL = st.lists(st.tuples(st.floats(0, 300), st.floats(0, 1e12)), max_size=30).map(
    lambda found: sorted(found, reverse=True)
)
RATE = st.floats(0, 1e9)
TASKS = st.lists(
    st.builds(
        TaskSignals, name=st.sampled_from(["a-1", "a-2", "b-1"]), component=st.sampled_from("ab"), is_spout=st.booleans(),
        up=st.booleans(), executed=RATE, emitted=RATE, busy=SHARE, cpu=st.none() | st.floats(0, 64),
        queue_bytes=st.integers(0, 1 << 40), lag_s=st.none() | RATE, pending=st.integers(0, 10**9), silent_s=RATE,
        blocked=SHARE, memory_bytes=st.none() | st.integers(0, 1 << 40), host=st.sampled_from(["", "h1", "h2"]),
    ),
    max_size=6,
)  # fmt: skip


@given(
    tasks=TASKS, lifecycle=st.sampled_from(control_pb2.Lifecycle.values()), held=st.floats(0, 1),
    culprits=st.lists(st.sampled_from(["a-1", "b-1", "the link from x to y"]), max_size=2),
    changed_s=st.none() | RATE, max_pending=st.none() | st.integers(0, 10**6), acking=st.booleans(),
    restarted=st.dictionaries(st.sampled_from(["a-1", "c"]), st.tuples(st.integers(1, 9), st.text(max_size=5))),
    given_up=st.dictionaries(st.sampled_from("ab"), st.floats(1, 1e12)), lost=RATE, spark_waiting=st.floats(0, 1e6),
    spark_batch_s=st.none() | RATE, spark_lag_s=RATE, checkpoint_age_s=st.none() | RATE,
    checkpoint_every_s=st.none() | st.floats(0.1, 1e5), hosts=HOSTS, history=HISTORY, history_age_s=st.floats(0, 1e5),
    updated_s=st.none() | RATE, memory_limits=st.dictionaries(st.sampled_from("abc"), st.integers(1, 1 << 40)),
    still_s=st.dictionaries(st.sampled_from("abc"), RATE), held_now=SHARE,
    hot_spots=st.dictionaries(st.sampled_from(["a-1", "b-1"]), st.builds(HotSpots, memory=TRAIL, memory_before=TRAIL)),
)  # fmt: skip
def test_any_figures_give_a_diagnosis(
    tasks: list[TaskSignals], lifecycle: control_pb2.Lifecycle, held: float, culprits: list[str], **more: Any
) -> None:
    found = Signals("wc", lifecycle, "why", 60.0, tasks, held, culprits, **more)
    findings = diagnose(found)
    assert findings and all(sentence(one, "wc") for one in findings)
    assert all(advice(one, "local", "wc") for one in findings if one.verdict not in CALM)
    assert diagnose(from_json(to_json(found)))
    assert (Verdict.HEALTHY in {one.verdict for one in findings}) == (
        len(findings) == 1 and findings[0].verdict is Verdict.HEALTHY
    )


def test_figures_come_from_the_answers_of_a_topology_master() -> None:
    status = control_pb2.StatusReply(topology="wc", lifecycle=RUNNING)
    status.plan.topology.spouts.add().comp.name = "words"
    status.plan.topology.bolts.add().comp.name = "count"
    for key, value in (("topology.reliability.mode", "ATLEAST_ONCE"), ("topology.max.spout.pending", "500")):
        status.plan.topology.topology_config.kvs.add(key=key, value=value, type=topology_pb2.STRING_VALUE)
    status.tasks.add(task_id=2, component="count", instance_id="count-2", state=control_pb2.TASK_RUNNING,
                     in_queue_bytes=4000, loop_age_s=0.5)  # fmt: skip
    status.tasks.add(task_id=1, component="words", instance_id="words-1", state=control_pb2.TASK_STARTING, pending=7)
    status.culprits.add(instance_id="count-2", pace=12.5)
    status.culprits.add(stmgr_id="stmgr-1", peer="stmgr-2")
    status.culprits.add(component="join", drops=True)
    metrics = control_pb2.MetricsReply(interval_s=50.0)
    counted = {"__execute-time-ns": 25e9, "__busy-time-ns": 25e9, "__blocked-time-ns": 0, "__idle-time-ns": 25e9, "__execute-count": 1000, "__ack-count": 900, "__fail-count": 50, "__py-user-cpu-time-secs": 10,
               "__py-sys-cpu-time-secs": 5, "__gateway-received-packets-size": 50_000, "__dead-letters": 3}  # fmt: skip
    for name, values in (("count-2", counted), ("stmgr-1", {"__time_spent_back_pressure_aggr": 10_000})):
        report = metrics.reports.add(process=name)
        for metric, value in values.items():
            report.samples.add(name=metric, value=value)
    events = [
        event(at=990.0, kind="oom", subject="count-2", times=2, detail="limit"),
        event(at=100.0, kind="restart", subject="old", times=2, warning=True),
        event(at=100.0, kind="update", text="update done"),
    ]
    found = signals_of(status, metrics, events, now=1000.0)
    assert [task.name for task in found.tasks] == ["words-1", "count-2"], "in the order of the topology"
    spout, task = found.tasks
    assert not spout.up and spout.busy is None and spout.pending == 7
    assert (task.busy, task.executed, task.cpu, task.lag_s, task.pace, task.acked) == (0.5, 20.0, 0.3, 2.0, 12.5, 19.0)
    assert found.held == 0.2 and found.culprits == ["count-2", "the link from stmgr-1 to stmgr-2"]
    assert found.dropping == ["join"]
    assert found.acking and found.max_pending == 500 and found.given_up == {"count": 3.0}
    assert found.out_of_memory == {"count-2": (2, "limit")} and not found.restarted
    assert (found.changed_s, found.change) == (900.0, "update done")


def test_figures_settle_sooner_after_a_restore_than_after_an_update() -> None:
    """A restore changes no configuration: only the pause and the catch-up are left out."""
    assert first(signals(*SKEWED, **HELD, changed_s=25.0, restored=True))[0] is Verdict.SKEW
    assert first(signals(*SKEWED, **HELD, changed_s=25.0))[0] is Verdict.CHANGING
    update, restore = event(at=900.0, kind="update", text="update"), event(at=970.0, kind="restore", text="restore")
    assert window_of(300.0, 600.0, [update, restore], 1000.0) == 30.0
    assert window_of(300.0, 600.0, [update], 1000.0) == 300.0


def test_a_limit_is_known_by_the_time_at_it_and_not_by_what_is_pending_now() -> None:
    """Sinks that ack in batches empty what is pending with each: the limit came and went from look to look."""
    for pending in (0, 500, 1000):
        limited = signals(*EVEN, max_pending=1000, acking=True, pending=pending, at_limit=0.8)
        assert first(limited) == (
            Verdict.LIMIT,
            "topology.max.spout.pending (1000) limits the rate: the spouts wait for acks 80 % of the time, and no bolt is"
            " busier than 30 %",
        )
        for share in (0.0, 0.15):
            free = signals(*EVEN, max_pending=1000, acking=True, pending=pending, at_limit=share)
            assert first(free)[0] is Verdict.HEALTHY


def test_how_many_tasks_are_needed_is_said_without_the_burst_of_a_start() -> None:
    """100,000 tuples that had waited for the start were taken for what comes at any time: 18 tasks were advised."""
    busy = [bolt(2, 0.99, 1000, lag_s=60.0), bolt(3, 0.99, 1000, lag_s=60.0)]

    def of(age_s: float | None, minutes: list[float]) -> Signals:
        known = {**history("words", emitted=minutes), **history("", held=[0.0] * len(minutes))}
        return signals(*busy, emitted=12_000.0, arrivals={"count": 12_000.0}, age_s=age_s, history=known)

    verdict, said = first(of(60.0, []))
    assert verdict is Verdict.UNDER_PROVISIONED and said.endswith(
        "; the required number of tasks will be known in 2m00s"
    )
    assert advice(diagnose(of(60.0, []))[0], "local", "wc") == (
        "wait until then: it may only be processing tuples that queued up before its start; heron top local wc"
    )
    later = of(200.0, [50_000.0, 3000.0, 3000.0, 3000.0])
    assert first(later)[1].startswith(
        "count needs more tasks: about 3,000/s arrive; its 2 tasks together handle 2,000/s"
    )
    assert advice(diagnose(later)[0], "local", "wc") == "heron update local wc --component-parallelism count:5"
    for found in (of(None, []), of(200.0, [])):
        assert advice(diagnose(found)[0], "local", "wc") == "heron update local wc --component-parallelism count:17"


def test_what_spouts_would_emit_if_they_were_not_held_is_of_most_minutes_as_well() -> None:
    busy = [bolt(2, 0.99, 1000, lag_s=60.0), bolt(3, 0.99, 1000, lag_s=60.0)]
    known = {**history("words", emitted=[9000.0, 2000.0, 2000.0, None]), **history("", held=[0.0, 0.5, 0.5, 0.5])}
    found = signals(*busy, emitted=4000.0, held=0.5, arrivals={"count": 4000.0}, history=known)
    assert "about 4,000/s arrive" in first(found)[1]


def test_a_machine_without_cpu_names_the_task_that_wants_it_most() -> None:
    """It said to profile TASK, and no page led to the component whose queue grew."""
    full = [HostSignals("h1", 2, 0.98, 2.0, 0.7)]
    busy = [bolt(2, 0.97, 25, lag_s=60.0, host="h1"), bolt(3, 0.99, 25, lag_s=60.0, host="h1")]
    [found] = diagnose(signals(*busy, hosts=full))
    assert (found.verdict, found.component, found.task) == (Verdict.MACHINE, "count", "count-3")
    assert sentence(found, "wc").endswith("other processes 1.3; count-3 is 99 % busy")
    assert "(heron profile local wc count-3)" in advice(found, "local", "wc")


def test_what_has_held_a_spout_whose_input_has_ended_is_past() -> None:
    for ended, held_now, verdict in (
        (True, 0.0, Verdict.HEALTHY), (True, 0.3, Verdict.UNTRIAGED), (True, None, Verdict.UNTRIAGED),
        (False, 0.0, Verdict.UNTRIAGED),
    ):  # fmt: skip
        found = signals(*EVEN, held=0.55, held_now=held_now)
        found.tasks[0].ended = ended
        assert first(found)[0] is verdict


def test_a_bolt_that_acks_nothing_is_named() -> None:
    """More pending tuples were advised, and more would have waited."""
    silent = bolt(2, 0.01, 5.0, acked=0.0), bolt(3, 0.01, 5.0, acked=0.0)
    limit = {"max_pending": 100, "acking": True, "pending": 100, "at_limit": 0.99, "arrivals": {"count": 10.0}}
    found = diagnose(signals(*silent, **limit))[0]
    assert (found.verdict, found.component) == (Verdict.LIMIT, "count")
    assert sentence(found, "wc") == (
        "tuples are not acked: count processed tuples and acked none in the last 1m00s; the spouts wait for acks at"
        " topology.max.spout.pending (100)"
    )
    assert advice(found, "local", "wc").startswith("make count ack each processed tuple")
    found = diagnose(signals(*silent, **limit, still_s={"words": 20.0}))[0]
    assert found.verdict is Verdict.STOPPED and sentence(found, "wc").endswith(
        "100 tuples wait for acks, which is the limit; count acked no tuple"
    )
    assert advice(found, "local", "wc").startswith("make count ack each processed tuple")
    for acked in (None, 5.0):
        tasks = silent[0], bolt(3, 0.01, 5.0, acked=acked)
        assert sentence(diagnose(signals(*tasks, **limit))[0], "wc").startswith(
            "topology.max.spout.pending (100) limits"
        )


def test_acks_that_wait_for_spark_are_no_limit() -> None:
    """The advice was to raise topology.max.spout.pending, while two batches waited for the one that ran."""
    waits = {"max_pending": 4000, "acking": True, "at_limit": 0.35}
    behind = signals(*EVEN, **waits, spark_waiting=2.0, spark_batch_s=8.0, spark_lag_s=15.0)
    assert first(behind) == (
        Verdict.SPARK, "Spark is behind: 2 batches wait, the oldest for 15s; a batch takes 8s"
    )  # fmt: skip
    between = signals(*EVEN, **waits, spark_batch_s=8.0, history=history("", spark_waiting=[0.0, 1.2]))
    assert [one.verdict for one in diagnose(between)] == [Verdict.SPARK], "one was just taken"
    assert first(signals(*EVEN, **waits, spark_batch_s=8.0))[0] is Verdict.LIMIT
    assert first(signals(*EVEN, **waits, spark_waiting=1.0, spark_batch_s=0.5, spark_lag_s=0.2))[0] is Verdict.HEALTHY
    assert first(signals(*EVEN, spark_waiting=2.0, spark_batch_s=8.0, spark_lag_s=15.0))[0] is Verdict.HEALTHY


def test_work_units_that_write_a_table_are_no_missing_input() -> None:
    """Their workers emit nothing: "nothing to read" was said of them at full work."""
    plan = topology_pb2.Topology(name="clicks")
    status = control_pb2.StatusReply(topology="clicks", lifecycle=RUNNING)
    metrics = control_pb2.MetricsReply(interval_s=10.0)
    for number, name in enumerate(("clicks-worker", "clicks-keeper", "clicks-keeper"), 1):
        if name not in {spout.comp.name for spout in plan.spouts}:
            plan.spouts.add().comp.name = name
        status.tasks.add(task_id=number, component=name, instance_id=f"{name}-{number}", state=control_pb2.TASK_RUNNING)
    status.plan.topology.CopyFrom(plan)
    for number, published in ((2, 1000.0), (3, 4000.0)):
        report = metrics.reports.add(process=f"clicks-keeper-{number}", component="clicks-keeper")
        report.samples.add(name="units-backlog-bytes", label="clicks", value=600.0)
        report.samples.add(name="units-published-bytes", label="clicks", value=published)
    found = signals_of(status, metrics, now=0.0)
    assert (found.units_backlog, found.units_published) == (600.0, 500.0)
    assert first(found)[0] is Verdict.HEALTHY
    # A second spout that reads nothing is named, when nothing waits.
    status.plan.topology.spouts.add(outputs=[topology_pb2.OutputStream()]).comp.name = "words"
    status.tasks.add(task_id=4, component="words", instance_id="words-4", state=control_pb2.TASK_RUNNING)
    idle = signals_of(status, control_pb2.MetricsReply(interval_s=10.0), now=0.0)
    assert first(idle) == (Verdict.NO_INPUT, "no input: words emitted nothing in the last 10s")


def test_our_own_wait_for_spark_is_no_hang_of_users() -> None:
    """A sink at its limit of batches waits in the call; "has been in one call" and "profile it" were said of that."""
    waits = bolt(2, 0.9, 10.0, silent_s=40.0)
    behind = signals(waits, spark_sinks=["count"], spark_waiting=1.0, spark_batch_s=30.0, spark_lag_s=40.0)
    assert [one.verdict for one in diagnose(behind)] == [Verdict.SPARK]
    assert first(signals(waits, spark_sinks=["count"]))[0] is Verdict.HUNG, "Spark has nothing to do"
    assert first(signals(waits, spark_waiting=1.0))[0] is Verdict.HUNG, "it hands nothing to Spark"


def test_who_hangs_or_holds_is_told_of_async_bolts() -> None:
    hung = diagnose(signals(bolt(2, silent_s=31.0)))[0]
    assert advice(hung, "local", "wc") == (
        "heron stacks local wc count-2 shows its current line; if the task waits for a service, an AsyncBolt can wait"
        " for many calls at once"
    )
    held = Finding(Verdict.STOPPED, "words", figures={"still_s": 40.0, "held": 1.0}, names=("count-2",))
    assert advice(held, "local", "wc").endswith(
        "; if the task waits for a service, an AsyncBolt can wait for many calls at once"
    )
