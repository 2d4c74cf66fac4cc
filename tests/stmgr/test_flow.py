"""Queues bounded in time, and full tasks that are avoided before a spout is held."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.proto import control_pb2, plan_pb2, topology_pb2
from heronpy.wire.frames import CLAMP, CREDIT, LINK_OPEN, Frame
from stmgr.backpressure import FRAME_TUPLES_MAX, QUEUE_SHARE, REST_S, Backpressure, frame_limit, marks_of
from stmgr.control import alike_of
from tests.stmgr.switch_world import BOLT, FAR, SPOUT, World, data

MB = 1 << 20


@given(st.integers(1, MB), st.floats(0, 1e12), st.floats(0.001, 60))
def test_marks_are_a_time_and_never_above_those_in_bytes(high: int, bytes_per_s: float, target_s: float) -> None:
    found = marks_of(high, high // 2, bytes_per_s, target_s)
    assert 0 <= found[1] < found[0] <= high or found == (high, high // 2)
    if found[0] < high and found[0] > 1:
        assert found[0] <= bytes_per_s * target_s * QUEUE_SHARE < found[0] + 1


@given(st.floats(0.001, 1e9), st.floats(0.001, 60))
def test_a_frame_for_a_slow_task_holds_a_part_of_the_target(pace: float, target_s: float) -> None:
    limit = frame_limit(pace, target_s)
    assert 0 <= limit < FRAME_TUPLES_MAX
    assert limit <= max(1, pace * target_s / 8)
    assert limit or pace * target_s / 8 >= FRAME_TUPLES_MAX


def pressure(*groups: set[int]) -> Backpressure:
    found = Backpressure(high=MB, low=MB // 2, lease_s=3.0, renew_s=1.0)
    found.alike = {task: frozenset(group) for group in groups for task in group}
    return found


def fill(p: Backpressure, task: int, queued: int, now: float) -> bool:
    return p.observe(f"task-{task}", queued, lambda: (task, queued), now, (1000, 500))


def test_a_full_task_is_avoided_until_all_of_its_component_are_full() -> None:
    p = pressure({5, 6})
    assert fill(p, 5, 5000, 0.0)
    assert not p.clamp_changed(0.0) and not p.holding and p.local["task-5"].avoided
    assert p.announcement_due(0.0, True) is True, "others learn that it is full"
    assert fill(p, 6, 1001, 1.0)
    assert p.clamp_changed(1.0) and p.clamped and p.holding, "credit alone has not held those of the first"
    assert fill(p, 6, 500, 3.0)
    assert p.clamp_changed(3.0) and not p.clamped and not p.holding, "there is room again"
    assert p.announcement_due(3.0, True) is True
    assert p.spent(4.0) == {5: 2.0, 6: 2.0} and p.spent(4.0, avoided=True) == {5: 2.0}


def test_a_keyed_task_and_a_queue_that_costs_memory_hold_the_spouts() -> None:
    p = pressure({5, 6})
    fill(p, 7, 1001, 0.0)
    assert not p.clamp_changed(0.0) and p.holding
    fill(p, 7, 2001, 0.0)
    assert p.clamp_changed(0.0) and p.clamped
    fill(p, 7, 0, 1.0)
    p.clamp_changed(1.0)
    fill(p, 5, 2 * MB + 1, 5.0)
    assert p.clamp_changed(5.0) and p.clamped


def heard(task: int, avoided: bool, on: bool = True) -> control_pb2.Backpressure:
    culprit = control_pb2.Culprit(task_id=task, avoided=avoided, clamps=not avoided)
    return control_pb2.Backpressure(stmgr_id="stmgr-2", epoch=1, on=on, lease_s=3.0, culprits=[culprit])


def test_full_tasks_of_other_containers_count_while_their_lease_lasts() -> None:
    p = pressure({5, 6})
    p.heard(heard(6, avoided=True), 0.0)
    assert not p.clamp_changed(0.0) and not p.clamped, "that one is avoided"
    fill(p, 5, 2001, 1.0)
    assert p.clamp_changed(1.0) and p.clamped, "nothing has room"
    assert p.announcement_due(1.0, True) is True
    p.expire(3.0)
    assert p.clamp_changed(3.0) and not p.clamped
    assert p.announcement_due(3.0, False) is True, "what it announced as held is avoided now"
    p.heard(heard(6, avoided=False), 4.0)
    assert p.clamp_changed(4.0) and p.clamped
    p.heard(heard(6, avoided=False, on=False), 5.0)
    assert p.clamp_changed(5.0) and not p.clamped


@given(st.lists(st.tuples(st.sampled_from([5, 6, 7, 8]), st.sampled_from([0, 700, 1500, 2500, 4500]), st.floats(0, 2))))
def test_senders_are_held_exactly_while_a_full_task_cannot_be_avoided(
    steps: list[tuple[int, int, float]],
) -> None:
    """5 and 6 are shuffled to, 7 is keyed, 8 the only one of its component."""
    p, now = pressure({5, 6}), 0.0
    for task, queued, pause in steps:
        now += pause
        fill(p, task, queued, now)
        p.clamp_changed(now)
        full = p.full()
        held = [one for one in p.local.values() if one.task > 6 or {5, 6} <= full]
        assert p.holding == bool(held)
        if p.clamped:
            assert any(one.queued_bytes > 1000 for one in held)
        assert p.clamped or not any(one.queued_bytes > 4000 for one in held)
        for name, episode in p.local.items():
            assert episode.avoided == (name in ("task-5", "task-6") and not {5, 6} <= full)


def test_which_tasks_can_stand_for_each_other() -> None:
    plan = plan_pb2.PhysicalPlan()
    kinds = {
        "shuffled": (topology_pb2.SHUFFLE, topology_pb2.NONE), "keyed": (topology_pb2.SHUFFLE, topology_pb2.FIELDS),
        "alone": (topology_pb2.SHUFFLE,),
    }  # fmt: skip
    for name, gtypes in kinds.items():
        bolt = plan.topology.bolts.add()
        bolt.comp.name = name
        for gtype in gtypes:
            bolt.inputs.add().gtype = gtype
    for task, component in enumerate(["spout", "shuffled", "shuffled", "keyed", "keyed", "alone"], 1):
        plan.instances.add(task_id=task, component=component)
    assert alike_of(plan) == {2: {2, 3}, 3: {2, 3}}


def hints(world: World, identity: bytes) -> list[tuple[int, bool, int]]:
    return [(frame.dest_task, frame.on, frame.count) for frame in world.of(identity, CLAMP)]


def grant(world: World, bolt: bytes, consumed: int, pace: float) -> None:
    world.receive(
        bolt,
        Frame(kind=CREDIT, granted_bytes=1 << 30, consumed_frames=consumed, consumed_tuples=consumed, pace=pace),
    )


def test_senders_are_told_that_a_task_is_full_and_how_large_its_frames_may_be() -> None:
    world = World()
    spout, bolt = world.register(SPOUT), world.register(BOLT)
    link = world.switch.tasks[BOLT].link
    link.granted_bytes = 1
    world.receive(spout, data(BOLT, payload=b"x" * 80))
    world.receive(bolt, Frame(kind=CREDIT, granted_bytes=1, consumed_frames=1, consumed_tuples=1, pace=80.0))
    assert hints(world, spout) == [(BOLT, False, 2)], "a thirty-second of a second"
    assert link.high == pytest.approx(80 / 4 * 100, rel=0.3) and link.low == link.high // 2
    while not world.switch.backpressure.local:
        world.receive(spout, data(BOLT, payload=b"x" * 80))
    assert hints(world, spout)[1:] == [(BOLT, True, 2)]
    source = world.switch.tasks[SPOUT].source
    assert source is not None and source.window == max(1024, link.high // 2) < source.window_max, (
        "nobody can stand for it"
    )
    grant(world, bolt, 2, 81.0)
    assert hints(world, spout)[2:] == [(BOLT, False, 2)]
    world.now += 2.0
    for _ in range(70):
        for _ in range(100):
            world.receive(spout, data(BOLT, payload=b"x" * 800))
        world.grant(bolt, 1 << 40)
        world.switch.settle_credit()
    assert source.window == source.window_max
    late = world.register(SPOUT, 2, 200)
    assert hints(world, late)[-1:] == [(BOLT, False, 2)], "a new link learns what others know"


@pytest.mark.parametrize("pace", [float("nan"), float("inf"), -5.0, 1e300])
def test_a_pace_that_is_none_changes_nothing(pace: float) -> None:
    world = World()
    spout, bolt = world.register(SPOUT), world.register(BOLT)
    world.receive(spout, data(BOLT, payload=b"x" * 80))
    grant(world, bolt, 1, pace)
    assert not hints(world, spout) and world.switch.tasks[BOLT].link.pace == 0.0


def test_what_a_peer_says_of_its_tasks_is_passed_on_and_ends_with_the_link() -> None:
    world = World()
    spout = world.register(SPOUT)
    world.switch.open_peer("stmgr-2", 50)

    def says(seq: int, on: bool) -> None:
        frame = Frame(kind=CLAMP, dest_task=FAR, on=on, count=7)
        world.reply(frame, seq)

    says(1, True)
    says(2, False)
    says(3, True)
    assert hints(world, spout) == [(FAR, True, 7), (FAR, False, 7), (FAR, True, 7)]
    world.switch.open_peer("stmgr-2", 51)
    assert hints(world, spout)[-1] == (FAR, False, 0)


def test_peers_learn_how_large_frames_may_be_and_forget_it_with_the_link() -> None:
    world = World()
    bolt, peer = world.register(BOLT), world.peer()
    world.receive(peer, data(BOLT, payload=b"x" * 80))
    grant(world, bolt, 1, 80.0)
    assert hints(world, peer) == [(BOLT, False, 2)]
    grant(world, bolt, 1, 8000.0)
    assert hints(world, peer)[1:] == [(BOLT, False, 250)], "it has recovered"
    world.receive(peer, Frame(kind=LINK_OPEN), epoch=8, seq=1)
    assert hints(world, peer)[2:] == [(BOLT, False, 250)], "a new link learns what others know"

    spout = world.register(SPOUT)
    world.switch.open_peer("stmgr-2", 50)
    frame = Frame(kind=CLAMP, dest_task=FAR, count=7)
    world.reply(frame)
    world.switch.open_peer("stmgr-2", 51)
    assert hints(world, spout)[-2:] == [(FAR, False, 7), (FAR, False, 0)]


def test_frames_for_a_full_task_elsewhere_earn_no_credit_unless_it_is_avoided() -> None:
    world = World()
    spout = world.register(SPOUT)
    world.switch.open_peer("stmgr-2", 50)
    frame = Frame(kind=CLAMP, dest_task=FAR, on=True, count=7)
    world.reply(frame)
    world.switch.backpressure.alike = {task: frozenset((FAR, BOLT)) for task in (FAR, BOLT)}
    world.receive(spout, data(FAR, 3))
    world.switch.settle_credit()
    assert world.of(spout, CREDIT)[-1].consumed_tuples == 3, "its sender goes elsewhere, and needs its credit for that"
    world.switch.backpressure.alike = {}
    world.receive(spout, data(FAR, 5))
    world.switch.settle_credit()
    assert world.of(spout, CREDIT)[-1].consumed_tuples == 3
    frame.on = False
    world.reply(frame, 2)
    world.reply(Frame(kind=CREDIT, granted_bytes=1000), 3)
    world.switch.settle_credit()
    assert world.of(spout, CREDIT)[-1].consumed_tuples == 8


def test_clamps_rest_between_two_of_them() -> None:
    p = pressure()
    fill(p, 7, 2001, 0.0)
    fill(p, 7, 0, 0.1)
    assert fill(p, 7, 2001, 0.2) and not p.local["task-7"].over, "credit alone holds its senders"
    assert fill(p, 7, 4001, 0.3) and p.local["task-7"].over
    fill(p, 7, 1000, 0.4)
    assert not fill(p, 7, 2001, 0.5)
    assert fill(p, 7, 2001, 0.4 + REST_S)


def test_a_frame_that_leaves_a_full_queue_returns_the_credit_of_the_one_that_waits_longest_for_it() -> None:
    """Those that came before the queue was full have returned theirs: senders would hear nothing while these leave."""
    world = World(backpressure_high_bytes=1000, backpressure_low_bytes=500, queue_target_ms=0)
    spout, bolt = world.register(SPOUT), world.register(BOLT)
    link = world.switch.tasks[BOLT].link
    link.granted_bytes = 0
    for _ in range(20):
        world.receive(spout, data(BOLT, payload=b"x" * 80))
    source = world.switch.tasks[SPOUT].source
    assert source is not None
    before, frame = source.absorbed_frames, source.received_bytes // 20
    assert before < 12
    for taken in range(1, 9):
        world.grant(bolt, link.sent_bytes + 1, link.sent_frames)
        assert source.absorbed_frames == before + taken
    assert link.queued_bytes == 12 * frame, "none of the held ones has left"
    world.switch.remove_task(BOLT)
    assert (source.absorbed_frames, source.absorbed_bytes) == (20, source.received_bytes), "each frame earns it once"


def test_while_tuples_in_flight_are_saved_full_queues_hold_back_no_credit() -> None:
    """The barriers are in their senders, behind frames for full tasks here and elsewhere."""
    world = World(backpressure_high_bytes=1000, backpressure_low_bytes=500, queue_target_ms=0)
    spout = world.register(SPOUT)
    world.register(BOLT)
    world.switch.tasks[BOLT].link.granted_bytes = 0
    world.switch.open_peer("stmgr-2", 50)
    frame = Frame(kind=CLAMP, dest_task=FAR, on=True, count=7)
    world.reply(frame)

    def absorbed() -> float:
        for dest in (BOLT, FAR):
            for _ in range(20):
                world.receive(spout, data(dest, payload=b"x" * 80))
        world.switch.settle_credit()
        source = world.switch.tasks[SPOUT].source
        assert source is not None
        return source.absorbed_bytes / source.received_bytes

    assert absorbed() < 0.5
    world.switch.hold_credit(False)
    assert absorbed() == 1
    world.switch.hold_credit(True)
    assert absorbed() < 0.9
