"""A topology that drops tuples: what is full, that no sender is held, and that each tuple is somewhere or counted."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.proto import control_pb2, plan_pb2
from heronpy.wire.frames import CLAMP, CREDIT, DATA, Frame
from stmgr import events, reports
from stmgr.control import Control
from stmgr.dropping import Dropping
from stmgr.shell import apply
from tests.stmgr.switch_world import BOLT, FAR, SPOUT, World, data

HIGH = 1000
POLICIES = ("drop_newest", "sample")
#: One frame of the tests takes less.
FRAME = 150


def plan_of(policy: str) -> plan_pb2.PhysicalPlan:
    plan = plan_pb2.PhysicalPlan(version=1)
    plan.topology.spouts.add().comp.name = "spout"
    plan.topology.topology_config.kvs.add(key="topology.droptuples.upon.backpressure", value=policy)
    for task, component, container in ((SPOUT, "spout", 1), (BOLT, "bolt", 1), (FAR, "far", 2)):
        plan.instances.add(task_id=task, component=component, container=container, instance_id=f"{component}-{task}")
    return plan


class Drops(World):
    """A world whose spout sends small frames; the peer answers what the test says."""

    def __init__(self, policy: str, **settings: Any) -> None:
        marks = {"backpressure_high_bytes": HIGH, "backpressure_low_bytes": HIGH // 2, "queue_target_ms": 0}
        super().__init__(**{**marks, **settings})
        pressure = self.switch.backpressure
        self.machine = Control(self.switch.settings, 1, 1, pressure, 5.0)
        effects = self.machine.handle(events.PlanReceived(plan_of(policy)), 0.0)
        [effect] = [one for one in effects if isinstance(one, events.SwitchPlan)]
        assert effect.drops == policy and not effect.holds
        apply(self.switch, effect)
        self.switch.add_peer("stmgr-2", 1, self.transmit, self.want)
        self.switch.open_peer("stmgr-2", 50)
        self.answers = 0
        self.spout, self.bolt, self.other = self.register(SPOUT), self.register(BOLT), self.peer()
        self.link.granted_bytes = 0

    @property
    def link(self) -> Any:
        return self.switch.tasks[BOLT].link

    def emit(self, dest: int, count: int = 1) -> None:
        self.receive(self.spout, data(dest, count, payload=b"x" * 90))

    def consume(self, frames: int) -> None:
        """The bolt has room for this number of frames, and has consumed what it had."""
        link = self.link
        self.grant(self.bolt, link.sent_bytes + frames * 100, link.sent_frames)

    def answer(self, frame: Frame) -> None:
        self.answers += 1
        self.reply(frame, self.answers)

    def far_is(self, full: bool) -> None:
        self.answer(Frame(kind=CLAMP, dest_task=FAR, on=full))

    def far_takes(self, size: int) -> None:
        link = self.switch.peers["stmgr-2"].link
        self.answer(Frame(kind=CREDIT, granted_bytes=link.sent_bytes + size))

    def far_dropped(self) -> int:
        return self.switch.dropped["far", f"far-{FAR}"]

    def check(self, emitted: int) -> None:
        """Every tuple is queued, in flight, consumed or counted, and nobody is held."""
        switch, dropped = self.switch, sum(self.switch.dropped.values())
        links = [switch.tasks[BOLT].link, switch.peers["stmgr-2"].link]
        assert emitted == switch.queued()[1] + switch.in_flight() + sum(one.total_consumed for one in links) + dropped
        assert dropped == sum(switch.discarded.values()) and switch.lost_tuples == 0
        source = switch.tasks[SPOUT].source
        assert source is not None and source.absorbed_bytes == source.received_bytes, "each frame earns its credit"
        assert source.settled_tuples + switch.queued()[1] + switch.in_flight() >= dropped
        assert not switch.backpressure.clamp_changed(self.now)
        assert not switch.backpressure.holding and not switch.backpressure.clamped
        assert not [frame for frame in self.of(self.spout, CLAMP) if not frame.dest_task], "no spout is stopped"


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["emit", "far"]), st.integers(1, 9)),
        st.tuples(st.sampled_from(["consume", "take"]), st.integers(0, 4)),
        st.tuples(st.just("full"), st.booleans()),
    ),
    max_size=120,
)


@given(st.sampled_from(POLICIES), STEPS)
def test_every_tuple_is_somewhere_or_counted_and_queues_are_bounded(policy: str, steps: list[tuple[str, int]]) -> None:
    world, emitted = Drops(policy), 0
    bound = HIGH * (2 if policy == "sample" else 1) + FRAME
    for what, number in steps:
        if what in ("emit", "far"):
            world.emit(BOLT if what == "emit" else FAR, number)
            emitted += number
        elif what == "consume":
            world.consume(number)
        elif what == "take":
            world.far_takes(number * 100)
        else:
            world.far_is(bool(number))
        world.check(emitted)
        assert world.link.queued_bytes <= bound
        assert world.switch.peers["stmgr-2"].link.queued_bytes <= bound


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_kept_of_a_burst(policy: str) -> None:
    """The newest are discarded; a sample has some of twice as much, ever fewer."""
    world = Drops(policy)
    kept = []
    for number in range(100):
        before = world.switch.queued()[1]
        world.emit(BOLT)
        if world.switch.queued()[1] > before:
            kept.append(number)
    at_the_mark = next(number for number in range(100) if number not in kept)
    assert kept[:at_the_mark] == list(range(at_the_mark)) and at_the_mark * FRAME > HIGH
    if policy == "drop_newest":
        assert len(kept) == at_the_mark
    else:
        beyond = kept[at_the_mark:]
        gaps = [after - before for before, after in pairwise(beyond)]
        half = len(gaps) // 2
        assert sum(gaps[half:]) > 2 * sum(gaps[:half]) and kept[-1] > 2 * at_the_mark
    assert world.switch.discarded == {policy: 100 - len(kept)} == {policy: world.switch.dropped["bolt", f"bolt-{BOLT}"]}
    world.check(100)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_for_a_full_task_elsewhere_is_discarded_here(policy: str) -> None:
    world = Drops(policy)
    world.far_takes(1 << 20)
    world.emit(FAR, 2)
    world.far_is(True)
    world.emit(FAR, 3)
    assert world.far_dropped() == 3 and [frame.count for frame in world.to_peer if frame.kind == DATA] == [2]
    world.far_is(False)
    world.emit(FAR, 4)
    assert world.far_dropped() == 3 and world.to_peer[-1].count == 4
    world.check(9)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_waits_for_a_stream_manager_that_takes_nothing_is_bounded(policy: str) -> None:
    world = Drops(policy)
    for _ in range(200):
        world.emit(FAR)
    link = world.switch.peers["stmgr-2"].link
    assert HIGH < link.queued_bytes <= 2 * HIGH + FRAME
    assert world.far_dropped() == 200 - link.queued_tuples
    world.check(200)


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_of_a_peer_is_discarded_and_it_is_asked_to_hold(policy: str) -> None:
    world = Drops(policy)
    while world.link.queued_bytes <= HIGH:
        assert not world.of(world.other, CLAMP)
        world.receive(world.other, data(BOLT, payload=b"x" * 90))
    [asked] = world.of(world.other, CLAMP)
    assert asked.on and asked.dest_task == BOLT
    world.receive(world.other, data(BOLT, 7, payload=b"x" * 90))
    assert not world.switch.dropped, "it has sent that before it was told"
    for _ in range(20):
        world.consume(1)
    assert [frame.on for frame in world.of(world.other, CLAMP)] == [True, False]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_shuffle_drops_only_when_all_are_full(policy: str) -> None:
    world = Drops(policy, backpressure_high_bytes=100 * HIGH)
    world.link.high, world.link.low = HIGH, HIGH // 2
    world.switch.backpressure.alike = {task: frozenset((BOLT, FAR)) for task in (BOLT, FAR)}
    for _ in range(40):
        world.emit(BOLT)
    assert not world.switch.dropped and world.link.queued_bytes > 2 * HIGH, "its sender goes to the other one"
    [culprit] = world.machine.culprits(1.0)
    assert culprit.avoided and culprit.drops, "it would drop them if the other one were full"
    far = control_pb2.Culprit(task_id=FAR, drops=True)
    told = control_pb2.Backpressure(stmgr_id="stmgr-2", epoch=1, on=True, lease_s=3.0, culprits=[far])
    world.machine.handle(events.PressureHeard(told), 1.0)
    world.emit(BOLT, 5)
    assert sum(world.switch.dropped.values()) == 5
    [culprit] = world.machine.culprits(1.0)
    assert culprit.drops and not culprit.avoided and not culprit.clamps
    world.check(45)


def test_reports_say_it_by_component_and_instance_and_call_it_no_loss() -> None:
    world = Drops("drop_newest")
    world.far_is(True)
    world.emit(FAR, 6)
    world.emit(77, 2)
    beat = reports.heartbeat(world.machine, world.switch, 1.0)
    assert (dict(beat.dropped), beat.discarded_tuples, beat.lost_tuples) == ({"far": 6}, 2, 2)
    found = {
        (one.name, one.label): one.value for one in reports.metrics(world.machine, world.switch, 1, {}, 1.0).samples
    }
    assert found["__tuples_dropped_by_compid", f"far-{FAR}"] == 6
    assert found["__instance_dropped_tuples", "drop_newest"] == 6


def test_who_does_not_drop_has_the_data_path_as_it_is() -> None:
    world = World()
    assert world.switch.take_data == world.switch.data
    plan = plan_of("false")
    [effect] = [
        one
        for one in Control(world.switch.settings, 1, 1, world.switch.backpressure, 5.0).handle(
            events.PlanReceived(plan), 0.0
        )
        if isinstance(one, events.SwitchPlan)
    ]
    apply(world.switch, effect)
    assert world.switch.take_data == world.switch.data and world.switch.holds and not world.switch.backpressure.drops
    Dropping(world.switch, "sample", plan)
    assert world.switch.take_data != world.switch.data and world.switch.backpressure.drops
