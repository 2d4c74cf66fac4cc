"""The topology master remembers what happened: bounded, numbered, repetitions counted, handed to a successor."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.common import states
from heronpy.proto import control_pb2, endpoint_pb2, plan_pb2
from heronpy.tmaster import events
from heronpy.tmaster.event_log import FLAP_S, HANDED_OVER_MAX, MERGE_S, EventLog, Watcher
from heronpy.tmaster.figures import SHARED_S, Figures
from heronpy.tmaster.observatory import NO_PLAN
from heronpy.views.past import Event, start_of
from tests.tmaster.checkpoint_world import attempt, restored_from, world
from tests.tmaster.tmaster_world import World

RESTART, LIFE = control_pb2.EVENT_RESTART, control_pb2.EVENT_LIFE


def texts(event_log: EventLog, *kinds: str) -> list[str]:
    return [event.text for event in event_log.after(0).events if event.kind in kinds]


def process(name: str, restarts: int, reason: str = "killed", detail: str = "") -> control_pb2.ProcessRecord:
    ended = control_pb2.ExitReason.Value(f"EXIT_{reason.upper()}")
    return control_pb2.ProcessRecord(name=name, restarts=restarts, exit_reason=reason, exit=ended, exit_detail=detail)


STEPS = st.lists(
    st.tuples(
        st.floats(0, 2 * MERGE_S), st.sampled_from([RESTART, LIFE]), st.sampled_from("ab"), st.sampled_from(["", "x"])
    ),
    max_size=60,
)


@given(steps=STEPS, limit=st.integers(1, 8))
def test_it_stays_bounded_and_loses_no_count(
    steps: list[tuple[float, control_pb2.EventKind, str, str]], limit: int
) -> None:
    event_log, seen = EventLog(1e9, limit), 0
    read: dict[int, Event] = {}
    for pause, kind, subject, reason in steps:
        event_log.now += pause
        event_log.add(kind, "text", subject=subject, reason=reason)
        event_log.validate()
        reply = event_log.after(seen)
        assert [event.number for event in reply.events] == [seen + 1], "a reader misses nothing and sees nothing twice"
        seen = reply.last
        read[seen] = reply.events[0]
    kept = event_log.after(0)
    assert all(e.times == 1 or e.kind == "restart" or e.at - e.first_at <= FLAP_S * e.times for e in kept.events)
    assert len(kept.events) <= limit and kept.last == len(steps)
    if not kept.forgotten:
        assert sum(event.times for event in kept.events) == len(steps)
    assert [event for event in kept.events] == [read[event.number] for event in kept.events]
    assert event_log.after(0, 1).events[:] == kept.events[-1:]


def test_many_slow_tasks_do_not_displace_the_end_of_the_topology() -> None:
    log = EventLog()
    log.add(control_pb2.EVENT_LIFE, "RUNNING -> FAILED", subject="wc")
    log.add(control_pb2.EVENT_OOM, "count-1 ended", subject="count-1", reason="oom")
    for second in range(10):
        log.now += 2 * MERGE_S
        for task in range(300):
            log.add(control_pb2.EVENT_BACKPRESSURE, f"{second}", subject=f"count-{task}")
        log.validate()
    assert len(log) == 1000 and log.forgotten == 3002 - 1000
    kept = log.ledger("wc-1")
    for those in (log.after(0).events, kept.events):
        assert [one.text for one in those][:2] == ["RUNNING -> FAILED", "count-1 ended"]
    assert len(kept.events) == HANDED_OVER_MAX and kept.events[-1].number == log.last


def test_repetitions_within_a_minute_are_one_event() -> None:
    event_log = EventLog(1e9)
    for second in (0.0, 1.0, 2.0):
        event_log.now = second
        event_log.add(RESTART, f"at {second:g}", subject="a", lasted_s=0.5)
        event_log.add(RESTART, "other", subject="b")
    event_log.now = 2.0 + MERGE_S + 0.1
    event_log.add(RESTART, "late", subject="a")
    found = [(e.text, e.times, e.first_at - 1e9, e.at - 1e9, e.lasted_s) for e in event_log.after(0).events]
    assert found[0] == ("at 2", 3, 0.0, 2.0, 1.5)
    assert found[1][:2] == ("other", 3) and found[2][:2] == ("late", 1)


def test_a_successor_goes_on_with_the_numbers() -> None:
    event_log = EventLog()
    for number in range(HANDED_OVER_MAX + 50):
        event_log.add(LIFE, str(number), reason=str(number))
    successor, stranger = EventLog(), EventLog()
    kept = event_log.ledger("wc-1")
    successor.take_over(kept, "wc-1")
    stranger.take_over(event_log.ledger("wc-1"), "other-1")
    assert len(successor) == HANDED_OVER_MAX and len(stranger) == 0
    for number in range(5):
        event_log.add(LIFE, "lost with the predecessor", reason=f"late {number}")
    successor.add(LIFE, "new", reason="new")
    assert [e.text for e in successor.after(event_log.last).events] == ["new"], "a reader knew numbers not handed over"
    damaged = control_pb2.EventLedger(topology_id="wc-1", last=2)
    damaged.events.add(number=7, at=1.0)
    damaged.events.add(number=1, at=float("nan"))
    wary = EventLog()
    wary.take_over(damaged, "wc-1")
    wary.validate()
    assert len(wary) == 0


def test_the_phases_of_a_start_add_up_to_the_whole_and_outlive_the_master() -> None:
    world = World(submitted=plan_pb2.ExecutionState(begun_at=90.0, submitted_at=94.0))
    start = world.machine.shared.event_log.start
    assert states.start_phases(start) == {"package": 4.0, "launch": 6.0}, "it has not registered anybody"
    world.running()
    took = states.start_phases(start)
    assert list(took) == ["package", "launch", "register", "plan", "initialise"] and min(took.values()) >= 0
    assert sum(took.values()) == pytest.approx(start.running_at - start.begun_at)
    [event] = [event for event in world.machine.shared.event_log.after(0).events if event.reason == "start"]
    assert event.text == f"wc was started in {states.start_text(start)}" and "package 4s, launch 6s" in event.text
    heir = EventLog()
    heir.take_over(world.machine.shared.event_log.ledger("wc-1"), "wc-1")
    assert heir.start == start and heir.after(0).start == start_of(start)
    silent = World()
    silent.running()
    assert states.start_phases(silent.machine.shared.event_log.start) == {}, "nobody knows when it was submitted"


def test_restarts_are_counted_from_the_first_report() -> None:
    """A master that takes over does not report what its predecessor has reported."""
    watcher = Watcher(EventLog())
    watcher.processes(1, 1, [process("a", 4), process("b", 0)])
    assert len(watcher.event_log) == 0
    watcher.processes(1, 1, [process("a", 6, "oom", "limit 64MB, peak 70MB\nmore"), process("b", 1, "rewound")])
    found = watcher.event_log.after(0).events
    assert [(e.kind, e.subject, e.times, e.warning) for e in found] == [("oom", "a", 2, True)]
    assert found[0].text == "a was restarted: oom: limit 64MB, peak 70MB"
    watcher.processes(1, 2, [process("a", 0)])
    assert watcher.event_log.after(0).events[-1].text == "container 1 was restarted"
    watcher.place([2])
    watcher.processes(1, 3, [process("a", 9)])
    assert len(watcher.event_log) == 2, "container 1 left the plan and is new again"


def test_why_a_container_follows_another_is_what_its_scheduler_says() -> None:
    watcher = Watcher(EventLog())
    watcher.processes(1, 1, [])
    watcher.processes(1, 2, [], endpoint_pb2.Cause(reason="moved", text="ann has moved it away from host n1"))
    watcher.processes(1, 3, [], endpoint_pb2.Cause(reason="lost_host", text="it was lost on n2: it is silent"))
    moved, lost = watcher.event_log.after(0).events
    assert (moved.reason, moved.warning) == ("moved", False)
    assert moved.text == "container 1 was restarted: ann has moved it away from host n1"
    assert (lost.reason, lost.warning, lost.detail) == ("lost_host", True, "it was lost on n2: it is silent")


def test_a_successor_names_containers_that_were_lost_with_its_predecessor() -> None:
    """And none that its predecessor has named, or that runs on."""
    first = EventLog()
    lost = endpoint_pb2.Cause(reason="lost_host", text="it was lost on n1: it is silent")
    watcher = Watcher(first)
    for container in (0, 1, 2, 3):
        watcher.processes(container, 1, [])
    watcher.processes(3, 2, [], lost)
    successor = EventLog()
    successor.take_over(first.ledger("wc-1"), "wc-1")
    watcher, before = Watcher(successor), successor.last
    watcher.place([1, 2, 3])
    watcher.processes(2, 1, [])
    watcher.processes(3, 2, [], lost)
    assert not successor.after(before).events
    watcher.processes(0, 2, [], lost)
    watcher.processes(1, 2, [], lost)
    found = successor.after(before).events
    assert [(one.subject, one.reason) for one in found] == [("container 0", "lost_host"), ("container 1", "lost_host")]
    unsaid = EventLog()
    unsaid.take_over(first.ledger("wc-1"), "wc-1")
    Watcher(unsaid).processes(1, 5, [])
    assert len(unsaid) == len(first), "nobody says that it follows another one"


@pytest.mark.parametrize("reason", ["preempted", "moved", "restarted"])
def test_an_end_that_somebody_wanted_is_no_warning(reason: str) -> None:
    watcher = Watcher(EventLog())
    watcher.processes(1, 1, [process("a", 0)])
    watcher.processes(1, 1, [process("a", 1, reason, "a user asked for it")])
    watcher.processes(1, 2, [], endpoint_pb2.Cause(reason=reason, text="a user asked for it"))
    assert [event.warning for event in watcher.event_log.after(0).events] == [False, False]


def test_what_is_in_its_pause_is_not_told_as_started() -> None:
    """It said "was restarted" of a process that waited a minute for its restart."""
    watcher = Watcher(EventLog())
    event_log = watcher.event_log
    watcher.processes(1, 1, [process("a", 0)])
    rests = process("a", 1, "user_exception", "ValueError: no")
    rests.state, rests.next_restart_s = control_pb2.PROC_BACKOFF, 59.6
    event_log.now = 10.0
    watcher.processes(1, 1, [rests])
    [waits] = event_log.after(0).events
    assert waits.text == "a will be restarted in 59.6s: user exception: ValueError: no"
    rests.next_restart_s = 30.0
    event_log.now = 40.0
    watcher.processes(1, 1, [rests])
    assert event_log.last == waits.number, "nothing has happened"
    event_log.now = 10.0 + 2 * MERGE_S
    rests.state, rests.next_restart_s = control_pb2.PROC_RUNNING, 0.0
    for _ in range(3):
        watcher.processes(1, 1, [rests])
    [again] = event_log.after(0).events
    assert again.text == "a was restarted: user exception: ValueError: no" and again.number == waits.number + 1
    assert (again.times, again.at, again.first_at) == (1, 10.0, 10.0), "it has ended once, and then"
    successor = Watcher(EventLog())
    successor.event_log.take_over(event_log.ledger("wc-1"), "wc-1")
    successor.processes(1, 1, [rests])
    assert len(successor.event_log) == 1
    event_log.validate()


def test_a_successor_tells_that_what_waited_was_started() -> None:
    watcher = Watcher(EventLog())
    watcher.processes(1, 1, [process("a", 0)])
    rests = process("a", 1, "killed")
    rests.state, rests.next_restart_s = control_pb2.PROC_BACKOFF, 2.0
    watcher.processes(1, 1, [rests])
    successor = Watcher(EventLog())
    successor.event_log.take_over(watcher.event_log.ledger("wc-1"), "wc-1")
    successor.processes(1, 1, [process("a", 1, "killed")])
    assert texts(successor.event_log, "restart") == ["a was restarted: killed"]


def test_an_episode_is_told_while_it_lasts_and_when_it_is_over() -> None:
    watcher = Watcher(EventLog())
    event_log = watcher.event_log
    slow = control_pb2.Culprit(task_id=7, instance_id="container_1_count_7", since_s=0.5, queued_bytes=1 << 20)
    link = control_pb2.Culprit(peer="stmgr-2", queued_bytes=5)
    event_log.now = 10.0
    watcher.culprits("stmgr-1", [slow, link])
    assert not len(event_log), "many are over within a second"
    event_log.now = 12.0
    watcher.culprits("stmgr-1", [slow])
    assert texts(event_log, "backpressure") == [
        "the spouts are held back because container_1_count_7 is too slow (1MB wait in stmgr-1)",
        "the spouts were held back for 2s because the link to stmgr-2 was too slow (up to 5B waited in stmgr-1)",
    ]
    event_log.now = 13.0
    watcher.culprits("stmgr-1", [slow])
    assert event_log.last == 2
    event_log.now = 50.5
    watcher.culprits("stmgr-1", [])
    last = event_log.after(0).events[-1]
    assert (last.subject, last.lasted_s) == ("container_1_count_7", 41.0) and "up to 1MB" in last.text
    assert (last.times, last.at, len(event_log)) == (1, 50.5, 2), "its begin and its end are one event"
    watcher.culprits("stmgr-1", [slow])
    event_log.now = 60.0
    watcher.place([3])
    assert len(event_log) == 2 and event_log.after(0).events[-1].times == 2, "its stream manager left the plan"


def test_a_full_task_that_others_stand_in_for_holds_no_spout() -> None:
    watcher = Watcher(EventLog())
    full = control_pb2.Culprit(task_id=7, instance_id="container_1_count_7", since_s=0.5, queued_bytes=9, avoided=True)
    watcher.event_log.now = 10.0
    watcher.culprits("stmgr-1", [full])
    watcher.event_log.now = 20.0
    watcher.culprits("stmgr-1", [full])
    full.avoided = False
    watcher.culprits("stmgr-1", [full])
    watcher.event_log.now = 30.0
    watcher.culprits("stmgr-1", [])
    assert texts(watcher.event_log, "backpressure") == [
        "for 10.5s container_1_count_7 was full, and its tuples went to the other tasks of its component"
        " (up to 9B waited in stmgr-1)",
        "the spouts were held back for 10s because container_1_count_7 was too slow (up to 9B waited in stmgr-1)",
    ]


def test_an_episode_that_flips_is_not_counted_from_its_begin_again() -> None:
    watcher = Watcher(EventLog())
    full = control_pb2.Culprit(task_id=7, instance_id="container_1_count_7", queued_bytes=9)
    for second in range(101):
        watcher.event_log.now, full.since_s, full.avoided = 1000.0 + second, second, second % 5 == 0
        watcher.culprits("stmgr-1", [full])
    watcher.culprits("stmgr-1", [])
    lasted = {event.reason: event.lasted_s for event in watcher.event_log.after(0).events}
    assert lasted == {"avoided": 20.0, "": 80.0}


def test_a_task_that_was_full_for_a_moment_is_not_called_slow() -> None:
    watcher = Watcher(EventLog())
    full = control_pb2.Culprit(task_id=7, instance_id="container_1_count_7", queued_bytes=9)
    for watcher.event_log.now in (10.0, 10.004):
        watcher.culprits("stmgr-1", [full] if watcher.event_log.now == 10.0 else [])
    assert texts(watcher.event_log, "backpressure") == [
        "for 4ms container_1_count_7 was full, and the spouts were held back (up to 9B waited in stmgr-1)"
    ]


def test_a_full_task_whose_tuples_are_discarded_holds_no_spout() -> None:
    watcher = Watcher(EventLog())
    full = control_pb2.Culprit(task_id=7, instance_id="container_1_count_7", queued_bytes=9, drops=True)
    for watcher.event_log.now in (10.0, 12.0, 20.0):
        full.avoided = watcher.event_log.now == 12.0  # other tasks have room for a moment
        watcher.culprits("stmgr-1", [full] if watcher.event_log.now < 20.0 else [])
        [text] = texts(watcher.event_log, "backpressure") or [""]
        if watcher.event_log.now == 12.0:
            assert text == "container_1_count_7 is full, and tuples that do not fit are discarded (9B wait in stmgr-1)"
    assert text == (
        "for 10s container_1_count_7 was full, and tuples that did not fit were discarded (up to 9B waited in stmgr-1)"
    )


def test_the_machine_tells_its_story() -> None:
    """States, silence, changes by people and takeovers, in the order in which they came."""
    w = World(containers=2).running()
    event_log = w.machine.shared.event_log
    assert texts(event_log, "life")[-1] == "wc is RUNNING"
    w.request(events.ConfigRequested, ("count:a:1",))
    assert texts(event_log, "update") == ["1 setting changed"]
    w.sims[1].silent = True
    w.until(lambda: w.life == control_pb2.LIFE_DEGRADED)
    assert "no heartbeat from stmgr-1" in texts(event_log, "silent")
    assert texts(event_log, "life")[-1].startswith("wc is DEGRADED: 1 of 2 tasks of word is down")
    w.start_master()
    first = w.machine.shared.event_log.after(0).events[0]
    assert (first.kind, first.text) == ("master", "topology master 2 took over")


def test_a_restart_that_was_ordered_is_told_as_no_fault() -> None:
    w = World(containers=2).running()
    w.request(events.RestartRequested, 1, 0)
    w.until(lambda: w.life == control_pb2.LIFE_DEGRADED)
    told = [event for event in w.machine.shared.event_log.after(0).events if event.kind == "life"][-1]
    assert told.text.startswith("wc is DEGRADED by the restart of container 1: ") and not told.warning
    w.until(lambda: w.life == control_pb2.LIFE_RUNNING)
    w.sims[1].silent = True
    w.until(lambda: w.life == control_pb2.LIFE_DEGRADED)
    told = [event for event in w.machine.shared.event_log.after(0).events if event.kind == "life"][-1]
    assert told.text.startswith("wc is DEGRADED: ") and told.warning


def test_a_restore_is_told_with_its_reason() -> None:
    w = world()
    w.when_complete(2)
    w.kill(3)
    assert restored_from(w, attempt(w)) == 2
    event_log = w.machine.shared.event_log
    assert texts(event_log, "checkpoint")[-1].startswith("checkpoint 2 is complete")
    assert "starts from checkpoint 2: " in texts(event_log, "restore")[-1]


def test_an_end_is_known_as_soon_as_its_executor_says_it() -> None:
    """A stream manager hears only a silence, for ten seconds: until then the task was RUNNING, and up."""
    w = World(containers=2).running()
    figures = Figures(w.machine, 0.0)
    task = next(one for one in w.tasks() if not one.spout)
    number, name = task.status.task_id, w.machine.shared.registry.name_of(task.status.task_id)
    sim = next(sim for sim in w.sims.values() if number in sim.tasks)

    def shown() -> tuple[str, int, int]:
        [status] = [one for one in w.status().tasks if one.task_id == number]
        w.now += SHARED_S
        up = sum(one.up for one in figures.reply(NO_PLAN, w.now).load.components)
        return control_pb2.TaskState.Name(status.state), up, w.life

    def say(state: control_pb2.ProcessState, epoch: int) -> None:
        record = control_pb2.ProcessRecord(
            name=name, task_id=number, state=state, epoch=epoch, exit_detail="ValueError: no\nmore"
        )
        beat = control_pb2.ExecutorHeartbeat(container=sim.container, epoch=1, processes=[record])
        w.feed(events.ExecutorBeat(sim.executor_peer, beat))

    epoch = task.status.epoch
    say(control_pb2.PROC_RUNNING, epoch)
    assert shown() == ("TASK_RUNNING", 4, control_pb2.LIFE_RUNNING)
    say(control_pb2.PROC_BACKOFF, epoch)
    sim.heartbeat()
    assert shown() == ("TASK_LOST", 3, control_pb2.LIFE_DEGRADED)
    [status] = [one for one in w.status().tasks if one.task_id == number]
    assert status.error == "its process has ended: ValueError: no"
    say(control_pb2.PROC_RUNNING, epoch + 1)
    sim.heartbeat()
    assert shown() == ("TASK_LOST", 3, control_pb2.LIFE_DEGRADED), "the new one has not initialised"
    task.status.epoch = epoch + 1
    sim.heartbeat()
    assert shown() == ("TASK_RUNNING", 4, control_pb2.LIFE_RUNNING)
    task.status.state = control_pb2.TASK_FINISHED
    sim.heartbeat()
    say(control_pb2.PROC_STOPPED, epoch + 1)
    assert shown()[:2] == ("TASK_FINISHED", 4), "a finished task is not a fault"


def test_the_memory_of_a_component_counts_the_pages_of_forked_tasks_once() -> None:
    w = World(containers=1).running()
    figures = Figures(w.machine, 0.0)
    [sim] = w.sims.values()
    tasks = [(one, w.machine.shared.registry.name_of(one.status.task_id)) for one in w.tasks() if not one.spout]
    for task, name in tasks:
        told = control_pb2.MetricsReport(process=name, task_id=task.status.task_id, component=task.status.component)
        told.samples.add(name="__py-physical-memory-byte", value=1000.0, type=control_pb2.Sample.GAUGE)
        for second in range(3):
            figures.take(told, w.now + second)
    w.now += 3.0

    def shown() -> int | None:
        w.now += SHARED_S
        return figures.reply(NO_PLAN, w.now).load.components[-1].memory_bytes

    assert shown() == 1000 * len(tasks)
    records = [
        control_pb2.ProcessRecord(
            name=name, task_id=task.status.task_id, state=control_pb2.PROC_RUNNING, rss_bytes=1000, pss_bytes=300
        )
        for task, name in tasks
    ]
    beat = control_pb2.ExecutorHeartbeat(container=sim.container, epoch=1, processes=records)
    w.feed(events.ExecutorBeat(sim.executor_peer, beat))
    assert shown() == 300 * len(tasks)
