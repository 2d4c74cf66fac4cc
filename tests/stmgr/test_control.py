"""The control half as a pure machine: intervals, deadlines and bounds hold in whatever order events come."""

from __future__ import annotations

import math
from collections import deque
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.common.errors import FencedError
from heronpy.common.ids import instance_id
from heronpy.common.setting_types import StmgrSettings
from heronpy.proto import control_pb2, plan_pb2
from stmgr import events
from stmgr.backpressure import Backpressure
from stmgr.control import DEBOUNCE_S, LINES_PER_S, QUIET_EXPORTS, RESEND_PLAN_S, Control
from stmgr.events import Duty, Note, Reply, Signal, Tell

SETTINGS = StmgrSettings()
MB = SETTINGS.backpressure_high_bytes
EXPORT_S = 5.0


class World:
    """The machine and a shell that does nothing but what the machine relies on; time passes by ticks."""

    def __init__(self, silence_s: float = 0.0, export_s: float = EXPORT_S) -> None:
        s = SETTINGS
        self.pressure = Backpressure(
            s.backpressure_high_bytes, s.backpressure_low_bytes, s.backpressure_lease_s, s.backpressure_renew_s
        )
        self.machine = Control(s, 1, 3, self.pressure, export_s, silence_s)
        self.now = 100.0
        self.machine.begin(self.now)
        self.done: list[tuple[float, events.Effect]] = []

    def feed(self, event: events.Event) -> list[events.Effect]:
        """What an event leads to, with what follows from performing it."""
        effects, queue = [], deque(self.machine.handle(event, self.now))
        while queue:
            effect = queue.popleft()
            effects.append(effect)
            if isinstance(effect, events.SwitchPlan):
                queue.extend(self.machine.handle(Signal.PLAN_IN_FORCE, self.now))
            elif isinstance(effect, events.RemoveTask):
                queue.extend(self.machine.handle(events.TaskRemoved(effect.task), self.now))
        self.machine.validate()
        self.done += [(self.now, effect) for effect in effects]
        deadline = self.machine.next_deadline()
        assert deadline is None or deadline > self.now
        return effects

    def wait(self, seconds: float) -> list[events.Effect]:
        """Let time pass, with a tick at each deadline."""
        until, effects = self.now + seconds, []
        while (due := self.machine.next_deadline()) is not None and due <= until:
            self.now = due
            effects += self.feed(Signal.TICK)
        self.now = until
        return effects

    def when(self, *kinds: object) -> list[float]:
        return [at for at, effect in self.done if effect in kinds or type(effect) in kinds]


def registration(task: int = 3, epoch: int = 1, request: int = 1) -> events.TaskRegistered:
    message = control_pb2.RegisterInstance(
        task_id=task, epoch=epoch, component="word", instance_id=instance_id(1, "word", task), pid=7
    )
    return events.TaskRegistered(request, f"t:{task}:{epoch}".encode(), message)


def report(task: int = 3, epoch: int = 1, **fields: int) -> events.TaskReported:
    status = control_pb2.TaskStatus(task_id=task, epoch=epoch, **fields)
    return events.TaskReported(f"t:{task}:{epoch}".encode(), status)


def plan(version: int, tasks: dict[int, int], peers: dict[int, int] | None = None) -> events.PlanReceived:
    """Container by task, epoch by container of a peer."""
    made = plan_pb2.PhysicalPlan(version=version)
    made.topology.spouts.add().comp.name = "word"
    for task, container in tasks.items():
        made.instances.add(task_id=task, component="word", container=container, instance_id=f"word-{task}")
    for container, epoch in {1: 3, **(peers or {})}.items():
        made.stmgrs.add(id=f"stmgr-{container}", container=container, epoch=epoch)
    return events.PlanReceived(made)


def announcement(on: bool, lease_s: float) -> events.PressureHeard:
    return events.PressureHeard(control_pb2.Backpressure(stmgr_id="stmgr-2", epoch=1, on=on, lease_s=lease_s))


# ---- whatever comes ---------------------------------------------------------------------------
TASKS = st.integers(1, 4)
EVENTS = st.one_of(
    st.builds(registration, TASKS, st.integers(1, 3), st.integers(1, 1 << 30)),
    st.builds(report, TASKS, st.integers(1, 3), emitted=st.integers(0, 2), plan_version=st.integers(0, 5)),
    st.builds(plan, st.integers(1, 5), st.dictionaries(TASKS, st.integers(1, 2)), st.dictionaries(st.just(2), TASKS)),
    st.builds(announcement, st.booleans(), st.one_of(st.floats(), st.floats(0.01, 3.0))),
    st.builds(events.TasksOrdered, st.builds(control_pb2.FinishTasks, task_ids=st.lists(TASKS))),
    st.sampled_from([Signal.REGISTERED, Signal.CREDIT_OWED, Signal.PRESSURE_CHANGED, Signal.TICK]),
)
STEPS = st.lists(st.tuples(st.sampled_from([0.0, 0.0005, 0.02, 0.3, 2.0]), st.one_of(EVENTS, st.integers(0, 3 * MB))))


def played(steps: list[tuple[float, events.Event | int]]) -> World:
    world = World()
    for pause_s, event in steps:
        world.wait(pause_s)
        if not isinstance(event, int):
            world.feed(event)
        elif world.pressure.observe("task-3", event, lambda: (3, MB), world.now):
            world.feed(Signal.PRESSURE_CHANGED)
    return world


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_intervals_and_bounds_hold_whatever_comes(steps: list[tuple[float, events.Event | int]]) -> None:
    """`feed` also checks that each deadline is in the future, and the machine's own invariants."""
    world = played(steps)
    world.wait(1.0)
    for duty, interval_s in ((Duty.SEND_HEARTBEAT, SETTINGS.heartbeat_interval_s), (Duty.EXPORT_METRICS, EXPORT_S)):
        times = [100.0, *world.when(duty), world.now]
        assert all(later - earlier <= interval_s + 1e-9 for earlier, later in pairwise(times))
    beats = world.when(Duty.SEND_HEARTBEAT)
    assert len(beats) <= 2 + (world.now - 100.0) * (1 / DEBOUNCE_S + 1 / SETTINGS.heartbeat_interval_s)
    answered = [effect.request for _, effect in world.done if isinstance(effect, Reply)]
    asked = [event.request for _, event in steps if isinstance(event, events.TaskRegistered)]
    assert all(answered.count(request) <= asked.count(request) for request in answered)


@settings(max_examples=50, deadline=None)
@given(STEPS, STEPS)
def test_nothing_follows_the_end(
    before: list[tuple[float, events.Event | int]], after: list[tuple[float, events.Event | int]]
) -> None:
    world = played(before)
    assert world.feed(Signal.STOPPED) == []
    for _, event in after:
        assert isinstance(event, int) or world.feed(event) == []
    assert world.machine.next_deadline() is None


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.7]), st.integers(1, 150)), max_size=20))
def test_the_log_is_bounded_in_each_second(bursts: list[tuple[float, int]]) -> None:
    world = World()
    world.feed(plan(1, {3: 1}))
    for pause_s, registrations in bursts:
        world.wait(pause_s)
        for _ in range(registrations):
            world.feed(registration())
    lines = world.when(Note)
    assert all(later - earlier >= 1.0 for earlier, later in zip(lines, lines[2 * LINES_PER_S :]))


# ---- registrations and plans ------------------------------------------------------------------
def test_a_task_waits_for_the_first_plan_and_its_newest_registration_counts() -> None:
    world = World()
    assert world.feed(registration(request=1)) == []
    assert world.feed(registration(request=2)) == [Reply(1)]
    effects = world.feed(plan(1, {3: 1}))
    attached = next(e for e in effects if isinstance(e, events.AttachTask))
    reply = next(e for e in effects if isinstance(e, Reply))
    assert attached.registration.request == reply.request == 2 and attached.is_spout
    assert reply.body is not None and reply.body.link_epoch == attached.link_epoch == (3 << 24) + 1
    kinds = [type(effect) for effect in effects]
    assert kinds.index(events.SwitchPlan) < kinds.index(events.AttachTask) < kinds.index(Tell)


def test_a_registration_that_is_repeated_is_known_until_there_is_a_plan() -> None:
    world, first = World(), registration(request=1).message
    assert not world.machine.awaits_plan(first)
    world.feed(registration(request=1))
    assert world.machine.awaits_plan(first) and not world.machine.awaits_plan(registration(epoch=2).message)
    other = registration().message
    other.component += "x"
    assert not world.machine.awaits_plan(other), "that is to be looked up"
    world.feed(plan(1, {3: 1}))
    assert not world.machine.awaits_plan(first)


def test_a_registration_that_is_repeated_is_no_news_for_the_topology_master() -> None:
    once, often = World(), World()
    for world in (once, often):
        world.feed(registration())
        world.wait(1.0)
    for _ in range(4):
        often.feed(registration())
        often.wait(0.5)
    once.wait(2.0)
    assert len(often.when(Duty.SEND_HEARTBEAT)) == len(once.when(Duty.SEND_HEARTBEAT))


def test_an_older_incarnation_is_refused_with_its_error() -> None:
    world = World()
    world.feed(plan(1, {3: 1}))
    world.feed(registration(epoch=2))
    (refusal,) = world.feed(registration(epoch=1, request=9))
    assert isinstance(refusal, Reply) and isinstance(refusal.error, FencedError) and refusal.request == 9


def test_who_is_not_known_is_asked_to_register() -> None:
    (asked,) = World().feed(report())
    assert asked == Tell(b"t:3:1", control_pb2.RegisterAgain())


def test_a_task_with_an_older_plan_is_told_again_after_a_pause() -> None:
    world = World()
    world.feed(plan(4, {3: 1}))
    world.feed(registration())
    world.feed(plan(5, {3: 1}))
    assert not [e for e in world.feed(report(plan_version=4)) if isinstance(e, Tell)]
    world.wait(RESEND_PLAN_S)
    (told,) = [e for e in world.feed(report(plan_version=4)) if isinstance(e, Tell)]
    assert told.body.plan.version == 5
    assert not [e for e in world.feed(plan(4, {3: 2})) if not isinstance(e, Tell)], "an older plan is ignored"


def test_peers_are_connected_again_when_they_are_new_and_dropped_when_the_plan_has_none() -> None:
    world = World()

    def peers(event: events.PlanReceived) -> list[str]:
        kinds = (events.ConnectPeer, events.DropPeer)
        return [type(effect).__name__ for effect in world.feed(event) if isinstance(effect, kinds)]

    assert peers(plan(1, {3: 1}, {2: 1})) == ["ConnectPeer"]
    assert peers(plan(2, {3: 1}, {2: 1})) == []
    world.feed(announcement(True, 3.0))
    assert world.pressure.clamped
    assert peers(plan(3, {3: 1}, {2: 2})) == ["ConnectPeer"]
    assert not world.pressure.clamped, "the announcement was of the incarnation before"
    assert peers(plan(4, {3: 1})) == ["DropPeer"]


@pytest.mark.parametrize("planned", [True, False])
def test_a_silent_task_is_removed_only_when_the_plan_has_it_elsewhere(planned: bool) -> None:
    world = World()
    world.feed(plan(1, {3: 1}))
    world.feed(registration())
    world.feed(plan(2, {3: 1 if planned else 2}))
    # Looks are a second apart, so this process was not paused itself.
    effects = world.wait(SETTINGS.instance_lost_s + 2)
    assert (events.RemoveTask(3) in effects) is not planned
    assert any(isinstance(e, Note) and "task 3 sent no heartbeat" in e.text for e in effects) is planned
    assert (3 in world.machine.sessions.by_task) is planned


def test_orders_go_to_the_tasks_that_are_here() -> None:
    world = World()
    world.feed(plan(1, {3: 1, 4: 1}))
    for task in (3, 4):
        world.feed(registration(task))
    ordered = world.feed(events.TasksOrdered(control_pb2.FinishTasks(task_ids=[4, 9])))
    assert ordered == [Tell(b"t:4:1", control_pb2.FinishTask(task_id=4))]
    done = control_pb2.CheckpointComplete(checkpoint=2)
    told = [Tell(b"t:3:1", done), Tell(b"t:4:1", done)]
    assert world.feed(events.TasksOrdered(done)) == [events.HoldCredit(True), *told]
    for unaligned in (False, True):
        trigger = control_pb2.TriggerCheckpoint(checkpoint=3, unaligned=unaligned, task_ids=[3])
        ordered = world.feed(events.TasksOrdered(trigger))
        assert ordered == [events.HoldCredit(not unaligned), Tell(b"t:3:1", trigger)]
    rate = control_pb2.TraceRate(per_s=100.0, lease_s=3.0)
    assert world.feed(events.TasksOrdered(rate)) == [Tell(b"t:3:1", rate), Tell(b"t:4:1", rate)]


# ---- time and bounds --------------------------------------------------------------------------
def test_a_change_is_reported_soon_and_a_few_times_more() -> None:
    world = World()
    world.feed(Signal.REGISTERED)
    world.wait(0.9)
    after = [at - 100.0 for at in world.when(Duty.SEND_HEARTBEAT)]
    assert after == pytest.approx([0.003, 0.103, 0.203, 0.303, 0.403])


def test_while_nothing_moves_reports_are_rare_and_a_move_ends_that_at_once() -> None:
    world = World(silence_s=3.3, export_s=1.0)
    world.feed(plan(1, {3: 1}))
    world.feed(registration())
    world.feed(report(plan_version=1))
    world.wait(6)
    world.done.clear()
    for _ in range(12):
        world.feed(report(plan_version=1))
        world.wait(3)
    for duty, interval_s in ((Duty.SEND_HEARTBEAT, 3.0), (Duty.EXPORT_METRICS, 3.0 * QUIET_EXPORTS)):
        apart = [after - before for before, after in pairwise(world.when(duty))]
        assert apart == pytest.approx([interval_s] * len(apart)) and len(apart) >= 2
    assert world.machine.export_pause_s > 3.0 * QUIET_EXPORTS
    assert set(world.when(Duty.EXPORT_METRICS)) <= set(world.when(Duty.SEND_HEARTBEAT)), "one wake-up for both"
    begun = world.now
    world.feed(report(plan_version=1, emitted=1))
    world.wait(1.2)
    assert len([at for at in world.when(Duty.SEND_HEARTBEAT) if begun < at]) >= 4
    assert any(begun < at <= begun + 1 for at in world.when(Duty.EXPORT_METRICS))


def test_with_a_peer_rounds_are_never_rare() -> None:
    world = World(silence_s=3.3)
    world.feed(plan(1, {3: 1}, {2: 1}))
    world.wait(10)
    world.done.clear()
    world.wait(5)
    assert len(world.when(Duty.PROBE_PEERS)) == 5


def test_a_task_that_falls_silent_while_nothing_moves_is_noticed_as_early_as_ever() -> None:
    world = World(silence_s=3.3)
    world.feed(plan(1, {3: 1}))
    world.feed(registration())
    world.wait(14.5)
    heard_at = world.now
    world.feed(report(plan_version=1))
    world.wait(15)
    notes = [(at, effect.text) for at, effect in world.done if isinstance(effect, Note)]
    [lost_at] = [at for at, text in notes if at > heard_at and "sent no heartbeat" in text]
    assert SETTINGS.instance_lost_s < lost_at - heard_at <= SETTINGS.instance_lost_s + 1


def test_owed_credit_is_returned_once() -> None:
    world = World()
    world.feed(Signal.CREDIT_OWED)
    world.wait(0.5)
    assert [at - 100.0 for at in world.when(Duty.SETTLE_CREDIT)] == pytest.approx([0.02])


def test_backpressure_clamps_announces_names_the_culprit_and_logs_rarely() -> None:
    world = World()
    world.feed(plan(1, {3: 1}))
    for _ in range(3):
        world.pressure.observe("task-3", 3 * MB, lambda: (3, MB), world.now)
        effects = world.feed(Signal.PRESSURE_CHANGED)
        assert events.Clamp(True) in effects
        (announced,) = [e.message for e in effects if isinstance(e, events.Announce)]
        assert announced.on and announced.culprits[0].instance_id == "word-3"
        world.pressure.observe("task-3", 0, lambda: (3, 0), world.now)
        assert events.Clamp(False) in world.feed(Signal.PRESSURE_CHANGED)
        world.wait(3.0)
    lines = [e.text for _, e in world.done if isinstance(e, Note) and e.text.startswith("backpressure")]
    assert lines == ["backpressure: the queue of word-3 is full (1 episodes since the last such line)"]


def test_a_culprit_is_a_peer_when_it_is_one_whatever_its_name_looks_like() -> None:
    world = World()
    world.feed(plan(1, {3: 2}, {2: 1}))
    for link in ("stmgr-2", "stmgr-task"):
        world.pressure.observe(link, 3 * MB, lambda: (3, MB), world.now, pace=9.0)
    effects = world.feed(Signal.PRESSURE_CHANGED)
    (announced,) = [e.message for e in effects if isinstance(e, events.Announce)]
    assert [culprit.peer for culprit in announced.culprits] == ["stmgr-2", ""]
    assert [culprit.pace for culprit in announced.culprits] == [9.0, 9.0]


def test_a_lease_that_is_no_number_ends() -> None:
    world = World()
    world.feed(announcement(True, math.nan))
    assert world.pressure.clamped
    world.wait(SETTINGS.backpressure_lease_s)
    assert not world.pressure.clamped


def test_lines_left_out_of_the_log_are_counted_there() -> None:
    world = World()
    world.feed(plan(1, {3: 1}))
    for _ in range(LINES_PER_S + 49):
        world.feed(registration())
    assert len(world.when(Note)) == LINES_PER_S and len(world.when(Reply)) == LINES_PER_S + 49
    texts = [effect.text for effect in world.wait(1.0) if isinstance(effect, Note)]
    assert texts == [f"50 lines were omitted from this log (limit: {LINES_PER_S} a second)"]
