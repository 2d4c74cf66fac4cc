"""The doctor names the cause, not the symptom: each diagnosis by figures, and any figures without an error."""

from __future__ import annotations

from math import inf, nan

import pytest
from msgspec.structs import replace

from heronpy.health.diagnose import diagnose
from heronpy.health.doctor import finding_of, rank_of
from heronpy.health.gathering import signals_of, window_of
from heronpy.health.recording import to_json
from heronpy.health.signals import HostSignals, TaskSignals
from heronpy.health.texts import advice, sentence
from heronpy.net.answers import packed, read
from heronpy.proto import control_pb2
from heronpy.tmaster.event_log import EventLog, Watcher
from heronpy.views.findings import Finding, Verdict
from heronpy.views.load import LoadAnswer
from heronpy.views.past import Event
from tests.health.diagnose_cases import CASES, EVEN, HELD, RUNNING, SKEWED, SLOWED, bolt, first, history, signals
from tests.support.histories import from_json
from tests.support.views import event, load_answer


@pytest.mark.parametrize("name", CASES)
def test_each_diagnosis_and_its_sentence(name: str) -> None:
    found, verdict, text = CASES[name]
    assert first(found)[0] is verdict
    assert first(found)[1].startswith(text)
    assert {verdict for _, verdict, _ in CASES.values()} == set(Verdict), "every diagnosis has a case"


def test_a_topology_that_has_just_started_is_not_called_healthy() -> None:
    young = first(signals(*EVEN, age_s=3.0))
    assert young == (Verdict.CHANGING, "wc has just started; the doctor can judge it in 7s")
    assert first(signals(emitted=0.0, age_s=1.0))[0] is Verdict.CHANGING
    assert first(signals(*SKEWED, held=0.6, age_s=3.0))[0] is Verdict.SKEW
    assert first(signals(*EVEN, age_s=11.0))[0] is Verdict.HEALTHY


def test_what_does_not_run_comes_before_what_is_slow() -> None:
    down = TaskSignals("store-9", "store", False, False)
    verdicts = [finding.verdict for finding in diagnose(signals(*SKEWED, down, **HELD, given_up={"count": 1.0}))]
    assert verdicts == [Verdict.DOWN, Verdict.LOSSES, Verdict.SKEW]


def test_tasks_that_an_update_adds_are_not_down() -> None:
    joining = TaskSignals("count-3", "count", False, False)
    assert first(signals(bolt(2), joining, lifecycle=control_pb2.LIFE_UPDATING))[0] is Verdict.CHANGING


def test_a_crash_loop_with_long_pauses_is_seen() -> None:
    """Restarts a minute apart, for different reasons: each is an event of its own or counts with the last one."""
    watcher = Watcher(EventLog())
    watcher.processes(1, 1, [control_pb2.ProcessRecord(name="count-2")])
    for restart in range(1, 7):
        watcher.event_log.now += 61.5
        reason = "killed" if restart % 2 else "crashed"
        ended = control_pb2.ProcessRecord(name="count-2", restarts=restart, exit_reason=reason, exit_detail="signal")
        ended.exit = control_pb2.ExitReason.Value(f"EXIT_{reason.upper()}")
        watcher.processes(1, 1, [ended])
    status = control_pb2.StatusReply(topology="wc", lifecycle=RUNNING)
    told = watcher.event_log.after(0).events
    found = signals_of(status, control_pb2.MetricsReply(interval_s=60.0), told, now=watcher.event_log.now)
    assert found.restarted == {"count-2": (6, "signal")}
    assert first(found) == (Verdict.CRASHING, "count-2 was restarted 6 times: signal")
    assert not signals_of(status, control_pb2.MetricsReply(), None, now=0.0).events_known


def test_advice_names_the_command() -> None:
    needs = signals(bolt(2, 0.95, 1000), bolt(3, 0.95, 1000), held=0.5, culprits=["count-2"])
    assert advice(diagnose(needs)[0], "local", "wc") == "heron update local wc --component-parallelism count:6"
    assert advice(diagnose(signals(*EVEN))[0], "local", "wc") == ""


def test_the_advice_for_a_topology_of_a_job_is_a_command_that_the_job_permits() -> None:
    few, _, _ = CASES["too few"]
    finding = diagnose(few)[0]
    assert advice(finding, "local", "wc").startswith("heron update local wc --component-parallelism count:")
    assert advice(finding, "local", "wc", job=True) == "heron job explain local wc"
    slower, _, _ = CASES["bad update to a plan that is known"]
    assert "heron job show local wc; heron events" in advice(diagnose(slower)[0], "local", "wc", job=True)


def test_a_slowdown_that_is_over_is_not_blamed_on_the_update() -> None:
    found, _, _ = CASES["bad update"]
    rests = [bolt(n, 0.07, executed=75.0) for n in (2, 3, 4, 5)]  # too little to measure a rate
    recovered = history(busy=0.5, tasks=4, executed=[4000.0] * 50 + [2000.0] * 8 + [4000.0] * 2)
    recovers = [
        replace(found, history=recovered),
        *(replace(found, tasks=signals(*now).tasks) for now in (EVEN, rests)),
    ]
    assert all(Verdict.BAD_UPDATE not in {one.verdict for one in diagnose(one)} for one in recovers)


def test_the_advice_on_discards_has_the_number_of_tasks_that_would_do() -> None:
    found = signals(bolt(2, 0.99, 85), bolt(3, 0.99, 85), dropped={"count": 1500.0}, dropping=["count"])
    assert advice(diagnose(found)[0], "local", "wc") == "heron update local wc --component-parallelism count:29"
    found.dropping = []
    assert advice(diagnose(found)[0], "local", "wc").endswith("count:3, or more"), "its pace under load is not known"


def test_what_explains_a_lack_of_cpu_comes_before_more_tasks() -> None:
    busy = [bolt(2, 0.99, 50), *(bolt(n, 0.85, 3400) for n in (3, 4))]
    full = [HostSignals("h1", 2, 0.9, 2.0, 1.9)]
    assert first(signals(*busy, **HELD, hosts=full))[0] is Verdict.SLOW_TASK, "the cause is still said first"
    updated = signals(*SLOWED, updated_s=600.0, history=history(busy=0.65, tasks=4, executed=[4e3] * 50 + [2e3] * 10))
    assert first(updated)[0] is Verdict.BAD_UPDATE
    updated.hosts = full
    assert first(updated)[0] is Verdict.HEALTHY, "tasks do less on a machine without CPU, whatever was updated"


def test_a_task_that_waits_for_the_cpu_waits_for_nothing_else() -> None:
    starved = [HostSignals("h1", 2, 0.98, 2.0, 0.7)]
    assert first(signals(bolt(2, 0.99, 230, cpu=0.25), **HELD))[0] is Verdict.DEPENDENCY
    assert first(signals(bolt(2, 0.99, 230, cpu=0.25), **HELD, hosts=starved))[0] is Verdict.MACHINE
    assert first(signals(bolt(2, 0.99, 19, cpu=0.02), **HELD, hosts=starved))[0] is Verdict.DEPENDENCY


def test_one_task_that_is_far_slower_than_the_others_is_the_cause_though_all_of_them_wait() -> None:
    """All tasks of a bolt that sleeps are saturated and do not compute, the slow one and the others alike."""
    others = [bolt(n, 0.99, 20_000, cpu=0.1) for n in (3, 4, 5)]
    assert first(signals(bolt(2, 0.99, 700, cpu=0.01), *others, **HELD))[0] is Verdict.SLOW_TASK
    known = {"usual_s": {"count": 0.0005}}
    assert first(signals(bolt(2, 0.99, 700, cpu=0.01), *others, **HELD, **known))[0] is Verdict.SLOW_TASK
    assert first(signals(bolt(2, 0.99, 12_000, cpu=0.1), *others, **HELD))[0] is Verdict.DEPENDENCY


def test_what_is_known_of_the_wait_for_a_cpu_decides() -> None:
    """At a load of 45 on two cores a task that computes gets less than a twentieth of one."""
    starved = [HostSignals("h1", 2, 0.98, 2.0, 0.7)]
    computes = bolt(2, 0.99, 230, cpu=0.03, cpu_wait=0.9)
    assert first(signals(computes, **HELD, hosts=starved))[0] is Verdict.MACHINE
    sleeps = bolt(2, 0.99, 19, cpu=0.08, cpu_wait=0.2)
    assert first(signals(sleeps, **HELD, hosts=starved))[0] is Verdict.DEPENDENCY


def test_tasks_that_wait_as_they_always_do_are_too_few_also_on_a_full_machine() -> None:
    starved, usual = [HostSignals("h1", 2, 0.98, 2.0, 0.1)], {"usual_s": {"count": 0.0012}}
    sleeps = bolt(2, 0.99, 730, cpu=0.05, cpu_wait=0.18, wall_s=0.0014)
    found = diagnose(signals(sleeps, held=0.9, culprits=["count-2"], hosts=starved, **usual))
    assert [(one.verdict, one.task) for one in found] == [(Verdict.UNDER_PROVISIONED, ""), (Verdict.MACHINE, "")]
    computes = bolt(2, 0.99, 730, cpu=0.3, cpu_wait=0.6, wall_s=0.0014, host="h1")
    found = diagnose(signals(computes, held=0.9, culprits=["count-2"], hosts=starved, **usual))
    assert [(one.verdict, one.task) for one in found] == [(Verdict.MACHINE, "count-2")]


def test_tasks_that_compute_little_are_too_few_even_if_they_wait_for_a_cpu() -> None:
    """The spout is busy whenever nothing holds it, so it does not count as a task that computes."""
    starved, usual = [HostSignals("h1", 2, 0.98, 2.0, 0.1)], {"usual_s": {"count": 0.0012}}
    sleeps = bolt(2, 0.99, 730, cpu=0.05, cpu_wait=0.6, wall_s=0.0014)
    found = diagnose(signals(sleeps, held=0.9, culprits=["count-2"], hosts=starved, **usual))
    assert [(one.verdict, one.task) for one in found] == [(Verdict.UNDER_PROVISIONED, ""), (Verdict.MACHINE, "")]
    assert "computes" not in found[1].figures


def test_a_task_that_gets_less_cpu_than_the_others_is_not_slow() -> None:
    """One of four had half the rate of the others in the first seconds on a machine that was full."""
    starved = [HostSignals("h1", 2, 0.98, 2.0, 0.9)]
    others = [bolt(n, 0.85, 1500, cpu=0.4, cpu_wait=0.4) for n in (3, 4)]
    unlucky = bolt(2, 0.99, 700, cpu=0.2, cpu_wait=0.7)
    assert first(signals(unlucky, *others, **HELD, hosts=starved))[0] is Verdict.MACHINE
    for got in (0.35, 0.08):
        ill = bolt(2, 0.99, 44, cpu=got, cpu_wait=0.98 - got)
        assert first(signals(ill, *others, **HELD, hosts=starved))[0] is Verdict.SLOW_TASK


@pytest.mark.parametrize(
    "megabytes",
    [(100, 150, 175, 187, 193), (100, 150, 200, 200, 300), (300, 250, 200, 150, 100), (298, 299, 299.5, 299.9, 300)],
    ids=["fills up", "rests", "falls", "in days"],
)
def test_memory_that_settles_is_no_leak(megabytes: tuple[float, ...]) -> None:
    found = signals(bolt(2, memory_bytes=300 << 20), memory_limits={"count": 900 << 20},
                    history=history(largest_bytes=[one * (1 << 20) for one in megabytes]))  # fmt: skip
    assert first(found)[0] is Verdict.HEALTHY


def test_a_finding_says_where_its_task_runs() -> None:
    [found] = diagnose(signals(bolt(2, host="h1"), bolt(3), restarted={"count-2": (2, "killed")}))
    assert (found.component, found.task, found.host) == ("count", "count-2", "h1")


def test_what_is_unknown_gives_no_verdict() -> None:
    short = history(busy=[0.2] * 20, tasks=[4.0] * 20, executed=[4e3] * 18 + [2e3, 2e3])
    assert first(signals(*EVEN, updated_s=100.0, history=short))[0] is Verdict.HEALTHY
    waiting = TaskSignals("count-2", "count", False, True, executed=10.0, busy=None)
    assert first(signals(waiting, held=0.5))[0] is Verdict.UNTRIAGED


def test_time_blocked_is_not_time_busy() -> None:
    """A task that waits for room downstream is not the cause, though its calls take all of the time."""
    values = {"__busy-time-ns": 5e9, "__blocked-time-ns": 54e9, "__idle-time-ns": 1e9, "__execute-time-ns": 59e9}
    status = control_pb2.StatusReply(topology="wc", lifecycle=RUNNING)
    status.tasks.add(task_id=2, component="count", instance_id="count-2", state=control_pb2.TASK_RUNNING)
    metrics = control_pb2.MetricsReply(interval_s=60.0)
    told = metrics.reports.add(process="count-2")
    for name, value in values.items():
        told.samples.add(name=name, value=value)
    task = signals_of(status, metrics, now=0.0).tasks[0]
    assert (task.busy, task.blocked) == pytest.approx((5 / 60, 0.9))


def test_a_task_that_was_down_for_a_while_is_not_slow() -> None:
    """Half of the window it did not run: it has done half as much, in half of the busy time."""
    crashed = bolt(2, 0.96, 450.0, working=0.48)
    others = [bolt(n, 0.6, 600.0) for n in (3, 4, 5)]
    assert crashed.per_busy_s == 937.5
    assert first(signals(crashed, *others, **HELD))[0] is not Verdict.SLOW_TASK
    assert first(signals(bolt(2, 0.96, 450.0), *others, **HELD))[0] is Verdict.SLOW_TASK


def test_a_slow_task_that_holds_others_up_is_named_while_its_busy_time_still_has_the_start_in_it() -> None:
    """Within its first minute a full machine was blamed, because a busy mean of 1 had not come about yet."""
    full = HostSignals("vm", cores=2, used=1.95, own=1.9, pressure=0.5)
    tasks = [bolt(2, 0.7, 460.0), *(bolt(number, 0.1, 2200.0) for number in (3, 4, 5))]
    found = signals(*tasks, hosts=[full], culprits=["count-2"], held=0.5)
    assert [one.verdict for one in diagnose(found)] == [Verdict.SLOW_TASK, Verdict.MACHINE]
    assert first(signals(*tasks, held=0.5))[0] is not Verdict.SLOW_TASK
    found = signals(*tasks, hosts=[full], held_by=["count-2"], held=0.29)
    assert [one.verdict for one in diagnose(found)] == [Verdict.SLOW_TASK, Verdict.MACHINE], "it holds them by moments"


def test_a_task_that_has_just_become_slow_is_named_at_once() -> None:
    """For a quarter of a minute its rate over the window had its healthy time in it."""
    others = [bolt(number, 0.5, 1000.0) for number in (3, 4, 5)]
    said = (
        "count-2 is slow: while busy, it handles 200/s, and the other tasks of count handle 2,000/s each;"
        " they take over its share, so no spout waits for it: count can handle 6,200/s instead of 8,000/s"
    )
    assert first(signals(bolt(2, 0.55, 950.0, pace=200.0), *others, avoided=["count-2"])) == (Verdict.SLOW_TASK, said)
    waits = bolt(2, 0.55, 950.0, cpu=0.1, pace=200.0), *(bolt(number, 0.5, 1000.0, cpu=0.1) for number in (3, 4, 5))
    assert first(signals(*waits, avoided=["count-2"])) == (Verdict.SLOW_TASK, said)
    idle = bolt(2, 0.07, 95.0, pace=20.0), *(bolt(number, 0.05, 100.0) for number in (3, 4, 5))
    said = (
        "count-2 is slow: while busy, it handles 20/s, and the other tasks of count wait for tuples: they are at most 5 %"
        " busy; they take over its share, so no spout waits for it"
    )
    assert first(signals(*idle, avoided=["count-2"], keyed=[])) == (Verdict.SLOW_TASK, said)
    slow = bolt(2, 0.55, 950.0, pace=200.0)
    for known, words in (
        (
            {"culprits": ["count-2"], "held": 0.5},
            "; they take over its share, but are full as well: count can handle 6,200/s",
        ),
        ({"held": 0.5}, "; they take over its share: count can handle 6,200/s instead of 8,000/s"),
    ):
        assert words in first(signals(slow, *others, avoided=["count-2"], **known))[1]  # type: ignore[arg-type]
    for known in ({"avoided": []}, {"dropping": ["count"]}):
        found = signals(slow, *others, **({"avoided": ["count-2"], "held": 0.5} | known))  # type: ignore[arg-type]
        assert all("share" not in sentence(one, "wc") for one in diagnose(found))
    alike = [bolt(number, 0.5, 1000.0, pace=200.0) for number in (2, 3, 4, 5)]
    names = [task.name for task in alike]
    assert first(signals(*alike, culprits=names))[0] is not Verdict.SLOW_TASK, "all of them have become slow"
    for pace in (700.0, 3000.0):
        assert first(signals(bolt(2, 0.55, 950.0, pace=pace), *others, avoided=["count-2"]))[0] is Verdict.HEALTHY


@pytest.mark.parametrize(("cpu", "cpu_wait", "claims"), [(0.2, 0.75, True), (0.05, 0.3, False), (0.04, None, False)])
def test_more_tasks_are_called_no_help_only_where_tasks_compute(
    cpu: float, cpu_wait: float | None, claims: bool
) -> None:
    host = HostSignals("vm", cores=2, used=1.95, own=1.9, pressure=0.5)
    tasks = [bolt(number, 0.97, 20.0, cpu=cpu, cpu_wait=cpu_wait) for number in (2, 3)]
    [found] = [one for one in diagnose(signals(*tasks, hosts=[host], held=0.5)) if one.verdict is Verdict.MACHINE]
    assert ("more tasks will not help" in advice(found, "local", "wc")) is claims


def test_others_are_asked_to_stop_only_where_they_take_more() -> None:
    for own, stop in ((1.9, False), (0.5, True)):
        host = HostSignals("vm", cores=2, used=1.95, own=own, pressure=0.5)
        [found] = [one for one in diagnose(signals(*EVEN, hosts=[host], held=0.5)) if one.verdict is Verdict.MACHINE]
        assert ("stop other programs" in advice(found, "local", "wc")) is stop
        profile = f"heron profile local wc {found.task}" if found.task else "or reduce its work"
        assert profile in advice(found, "local", "wc"), "no command that nobody can run"


def test_what_is_advised_where_spark_takes_the_cpu() -> None:
    for others, stop in ((0.1, False), (2.0, True)):
        host = HostSignals("vm", cores=4, used=3.95, own=3.95 - others, pressure=0.5, spark=1.95)
        [found] = [one for one in diagnose(signals(*EVEN, hosts=[host], held=0.5)) if one.verdict is Verdict.MACHINE]
        said = advice(found, "local", "wc")
        assert "heron.spark.master" in said and ("stop other programs" in said) is stop
    waiting = signals(*EVEN, spark_waiting=7, spark_batch_s=3.2, spark_lag_s=21.0, hosts=[host])
    [found] = [one for one in diagnose(waiting) if one.verdict is Verdict.SPARK]
    assert "more cores" not in advice(found, "local", "wc"), "there are none"


def test_all_processes_of_the_topology_count_as_its_own() -> None:
    """A driver is a child of its gateway and no task: it was taken for somebody else's process."""
    status = control_pb2.StatusReply(topology="wc", lifecycle=RUNNING)
    for container, own, spark in ((0, 2.5, 2.4), (1, 1.2, None)):
        executor = status.executors.add(container=container, host="vm")
        executor.usage.MergeFrom(control_pb2.HostUsage(cores=4, cpu_pressure=0.6, cpu_used=3.9, own_used=own))
        if spark is not None:
            executor.usage.spark_used = spark
    [host] = signals_of(status, control_pb2.MetricsReply(interval_s=10.0), now=0.0).hosts
    assert (round(host.used, 3), round(host.own, 3), round(host.spark, 3)) == (3.9, 3.7, 2.4)
    # A container that does not say, of an earlier release, counts with what its tasks report.
    status.executors[1].usage.ClearField("own_used")
    status.executors[0].usage.own_used = 0.5
    status.tasks.add(task_id=2, component="count", instance_id="count-2", state=control_pb2.TASK_RUNNING)
    status.plan.instances.add(task_id=2, container=1)
    metrics = control_pb2.MetricsReply(interval_s=10.0)
    metrics.reports.add(process="count-2").samples.add(name="__py-user-cpu-time-secs", value=9.0)
    [host] = signals_of(status, metrics, now=0.0).hosts
    assert round(host.own, 3) == 0.9


def test_the_machine_is_no_cause_within_the_topology() -> None:
    """It was said before a checkpoint that fails and Spark that is behind, and weighed as much in the list."""
    full = [HostSignals("h1", 2, 0.98, 2.0, 0.7)]
    waits = signals(*EVEN, held=0.5, hosts=full, spark_waiting=7, spark_batch_s=3.2, spark_lag_s=21.0,
                    checkpoint_every_s=10.0, checkpoint_age_s=300.0)  # fmt: skip
    found = diagnose(waits)
    assert [one.verdict for one in found] == [Verdict.CHECKPOINTS, Verdict.SPARK, Verdict.MACHINE]
    assert [one.scope for one in found] == ["topology", "topology", "machine"]
    assert all(rank_of(found[2]) < rank_of(one) for one in found[:2])
    shown = [finding_of(one, "local", "wc") for one in found]
    assert [one.scope for one in shown] == ["topology", "topology", "machine"] and not shown[2].calm


def test_an_update_is_undone_by_a_command() -> None:
    def bad(tasks: list[float | None] | int) -> str:
        minutes = history(busy=0.5, tasks=tasks, executed=[2000.0] * 50 + [500.0] * 10)
        plans = history("", plan_version=[6.0] * 50 + [7.0] * 10)
        found = signals(*SLOWED, updated_s=600.0, changed_s=600.0, history_age_s=30.0, history={**minutes, **plans})
        return advice(diagnose(found)[0], "local", "wc")

    assert "go back to physical plan 6: heron update local wc --component-parallelism count:2; " in bad(
        [2.0] * 50 + [4.0] * 10
    )
    assert "go back to physical plan 6, which had the same tasks: heron update local wc with its settings" in bad(4)


@pytest.mark.parametrize(
    "minutes",
    [
        [0.2] * 40 + [0.9] * 3,  # less than five times
        [0.001] * 40 + [0.09] * 3,  # nobody waits for that
        [0.2] * 40 + [2.0, 2.0, 0.2, 0.2],  # it was
        [0.2] * 5 + [2.0] * 3,  # what is usual is not known
        [0.2] * 40 + [2.0, 2.0, None],
    ],
)
def test_what_is_not_late(minutes: list[float | None]) -> None:
    assert first(signals(*EVEN, history=history(end_to_end_p99_s=minutes)))[0] is Verdict.HEALTHY


def test_of_a_young_topology_the_time_to_wait_falls() -> None:
    """Its window grows: at 45 s, and at 160 s, 40 s were left, which took 180 s."""
    for age, left in ((45.0, "2m55s"), (160.0, "1m00s")):
        found = signals(*EVEN, changed_s=age - 40.0, change="update done", asked_s=300.0)
        found.window_s = age
        assert first(found)[1].endswith(f"its rates can be judged in {left}")
    asked = control_pb2.MetricsReply(interval_s=45.0)
    status = control_pb2.StatusReply(topology="wc", lifecycle=RUNNING)
    assert signals_of(status, asked, now=0.0, asked_s=20.0).asked_s == 20.0


@pytest.mark.parametrize("waiting, batch_s, lag_s", [(2, 0.5, 20.0), (2, 20.0, 35.0), (0, None, 0.0), (4, None, 3.0)])
def test_batches_that_are_only_under_way_are_healthy(waiting: int, batch_s: float | None, lag_s: float) -> None:
    found = signals(*EVEN, spark_waiting=waiting, spark_batch_s=batch_s, spark_lag_s=lag_s)
    assert first(found)[0] is Verdict.HEALTHY


def test_what_explains_a_latency_is_said_instead() -> None:
    late = history(end_to_end_p99_s=[0.2] * 40 + [2.0] * 3)
    assert [one.verdict for one in diagnose(signals(*SKEWED, **HELD, history=late))] == [Verdict.SKEW]
    assert first(signals(*EVEN, changed_s=20.0, history=late))[0] is Verdict.CHANGING


def test_the_window_begins_after_a_change_that_has_settled() -> None:
    def update(at: float) -> Event:
        return event(kind="update", at=at)

    assert window_of(300.0, 9e9, [update(800.0)], 1000.0) == 200.0
    assert window_of(300.0, 9e9, [update(950.0)], 1000.0) == 300.0, "not settled: nothing is judged yet"
    assert window_of(300.0, 9e9, [update(10.0), update(1.0)], 1000.0) == 300.0
    assert window_of(300.0, 42.0, None, 1000.0) == 42.0
    assert window_of(300.0, 0.0, [], 1000.0) == 1.0


def test_a_finding_travels_as_data() -> None:
    for found, _, _ in CASES.values():
        for one in diagnose(found):
            answer = load_answer(findings=[one])
            assert read(packed(answer), LoadAnswer) == answer
    strange = load_answer(findings=[Finding(Verdict.HUNG, figures={"silent_s": nan, "times": inf, "share": 0.5})])
    assert read(packed(strange), LoadAnswer).findings[0].figures == {"share": 0.5}, "sentences are made of them"


@pytest.mark.parametrize("name", CASES)
def test_a_recording_gives_the_same_sentence(name: str) -> None:
    found = CASES[name][0]
    again = from_json(to_json(found))
    assert first(again) == first(found) and from_json(to_json(again)) == again
