"""Totals of a topology: over all processes, never falling, and honest about what nobody has counted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.plan.physical_plan import emitters
from heronpy.proto import control_pb2, plan_pb2, topology_pb2
from heronpy.tmaster.totals import COUNTERS, ORDERLY_ENDS, SILENT_S, Totals
from tests.tmaster.checkpoint_world import CheckpointWorld
from tests.tmaster.tmaster_world import World

COUNT = st.integers(0, 1000)
#: As a broken or hostile process may report it.
ANY_COUNT = COUNT | st.just((1 << 64) - 1)
TASK = st.tuples(st.just("task"), st.integers(1, 3), st.integers(1, 4), st.lists(ANY_COUNT, min_size=7, max_size=7))
STMGR = st.tuples(st.just("stmgr"), st.integers(1, 2), st.integers(1, 4), st.lists(ANY_COUNT, min_size=2, max_size=2))
PLACE = st.tuples(st.just("place"), st.integers(0, 3), st.integers(0, 2), st.just([]))
EXECUTOR = st.tuples(st.just("executor"), st.integers(1, 2), st.integers(1, 4), st.lists(COUNT, min_size=1, max_size=1))
MASTER = st.tuples(st.just("master"), st.just(0), st.just(0), st.just([]))


def status(task: int, epoch: int, counts: list[int]) -> control_pb2.TaskStatus:
    told = dict(zip((*COUNTERS, "pending"), counts, strict=True))
    return control_pb2.TaskStatus(task_id=task, epoch=epoch, **told)


def numbers(totals: Totals) -> list[int]:
    found = totals.summed()
    return [found.acked, found.failed, found.replayed, found.dead_letters, found.lost, totals.discarded]


@given(st.lists(st.one_of(TASK, STMGR, PLACE, EXECUTOR, MASTER), max_size=60))
def test_no_total_ever_falls(story: list[tuple[str, int, int, list[int]]]) -> None:
    """Reports may come late, twice, empty, of any process, of tasks that updates remove and bring back, and to any
    topology master."""
    totals, before = Totals(), [0] * 6
    shown: dict[int, list[int]] = {}
    restarts: dict[int, int] = {}
    for what, number, epoch, counts in story:
        if what == "master":
            totals = heir(totals)
        elif what == "task":
            totals.take_task(status(number, epoch, counts), spout=number == 1)
            filled = control_pb2.TaskStatus(task_id=number)
            totals.fill(filled)
            now = [getattr(filled, name) for name in COUNTERS]
            assert all(a <= b for a, b in zip(shown.get(number, [0] * 6), now, strict=True))
            shown[number] = now
        elif what == "stmgr":
            totals.take_stmgr(f"stmgr-{number}", epoch, *counts)
        elif what == "executor":
            process = control_pb2.ProcessRecord(name=f"stmgr-{number}", restarts=counts[0])
            totals.take_restarts(process, epoch)
            assert totals.restarts_of(process) >= max(
                counts[0] if number not in restarts else 0, restarts.get(number, 0)
            )
            restarts[number] = totals.restarts_of(process)
        else:
            totals.place(set(range(1, number + 1)), {f"stmgr-{n}" for n in range(1, epoch + 1)})
        after = numbers(totals)
        assert all(a <= b for a, b in zip(before, after, strict=True)), (what, before, after)
        before = after
    assert before[2] >= before[1], "what failed may be sent again"


@given(st.lists(st.tuples(st.integers(1, 3), st.lists(COUNT, max_size=5)), max_size=12))
def test_each_process_counts_once_and_with_its_last_word(lives: list[tuple[int, list[int]]]) -> None:
    totals, expected = Totals(), 0
    for epoch, (task, acked) in enumerate(lives, 1):
        for count in sorted(acked):
            totals.take_task(status(task, epoch, [0, 0, count, 0, 0, 0, 0]), spout=True)
        expected += max(acked, default=0)
    assert totals.summed().acked == expected


def test_replayed_is_what_failed_and_what_was_pending_when_its_spout_ended() -> None:
    totals = Totals()
    totals.take_task(status(1, 1, [100, 0, 60, 5, 0, 0, 35]), spout=True)
    totals.take_task(status(2, 1, [0, 90, 80, 7, 2, 3, 0]), spout=False)
    found = totals.summed()
    assert (found.acked, found.failed, found.replayed) == (60, 5, 5), "of spouts alone"
    assert (found.dead_letters, found.lost) == (2, 3)
    totals.take_task(status(1, 2, [0, 0, 0, 0, 0, 0, 0]), spout=True)
    assert totals.summed().replayed == 40


def test_what_a_spout_without_fail_has_lost_is_not_replayed() -> None:
    """Nobody hears of it, so nobody sends it again; also over restarts and with another topology master."""
    totals = Totals()
    forgetful = status(1, 1, [100, 0, 60, 5, 0, 0, 35])
    forgetful.forgets_failed = True
    totals.take_task(forgetful, spout=True)
    totals.take_task(status(2, 1, [100, 0, 60, 7, 0, 0, 0]), spout=True)
    found = totals.summed()
    assert (found.failed, found.replayed, found.not_resent) == (12, 7, 5)
    totals = heir(totals)
    # A process that has just registered does not say what its class is.
    totals.take_task(status(1, 2, [0] * 7), spout=True)
    found = totals.summed()
    assert (found.failed, found.replayed, found.not_resent) == (12, 7 + 35, 5), "it may begin again"
    totals.place({2}, set())
    assert totals.summed().not_resent == 5


def test_totals_are_lower_bounds_once_a_process_ended_without_its_last_report() -> None:
    """For its component; for what was acked if it was a spout. Also for a successor, and once the task is removed."""

    def lives(first: control_pb2.TaskStatus, spout: bool) -> Totals:
        totals = Totals()
        first.component = "c"
        totals.take_task(first, spout)
        totals = heir(totals)
        totals.take_task(status(1, 2, [0] * 7), spout)
        totals = heir(totals)
        shown = status(1, 2, [0] * 7)
        totals.fill(shown)
        assert shown.at_least == (not first.ends)
        assert [one.at_least for one in totals.retired([])] == [not first.ends]
        return totals

    ended = status(1, 1, [5] * 7)
    ended.ends = True
    assert not lives(ended, spout=True).summed().at_least
    assert lives(status(1, 1, [5] * 7), spout=True).summed().at_least
    assert not lives(status(1, 1, [5] * 7), spout=False).summed().at_least, "it acked nothing to the outside"


def test_dead_letters_are_those_on_disk_where_no_report_is_left() -> None:
    def bolt(epoch: int, letters: int, before: int) -> control_pb2.TaskStatus:
        told = status(2, epoch, [0, 0, 0, 0, letters, 0, 0])
        told.letters_before = before
        return told

    totals = Totals()
    totals.take_task(bolt(1, 0, 0), spout=False)
    successor = heir(totals)
    successor.take_task(status(2, 2, [0] * 7), spout=False)  # it has just registered
    successor.take_task(bolt(2, 3, 20), spout=False)
    assert successor.summed().dead_letters == 23
    totals.take_task(bolt(1, 20, 0), spout=False)
    totals.take_task(bolt(2, 3, 20), spout=False)
    assert totals.summed().dead_letters == 23, "they were reported, too"
    unseen = Totals()
    unseen.take_task(bolt(2, 3, 20), spout=False)
    assert unseen.summed().dead_letters == 23


def test_a_spout_that_keeps_nothing_begins_again_when_it_is_rewound() -> None:
    totals = Totals()
    totals.take_task(spout(1, 100, rewinds=True), spout=True)
    totals.take_task(spout(1, 200, rewinds=True, saves_nothing=True), spout=True)
    assert begun(totals) == 0, "not yet"
    totals = heir(totals)
    totals.take_task(spout(2, 0, rewinds=True), spout=True)
    assert begun(totals) == 1


def test_a_spout_that_began_again_may_have_emitted_everything_again() -> None:
    """Also for the next topology master, also once the task is removed; what had emitted nothing repeats nothing."""
    totals = Totals()
    for task, emitted, component in ((1, 100, "src"), (2, 0, "src"), (3, 100, "count")):
        told = status(task, 1, [emitted, 0, 0, 0, 0, 0, 0])
        told.component = component
        totals.take_task(told, spout=component == "src")
    assert totals.summed().spouts_begun_again == 0
    for task in (1, 2, 3):
        totals.take_task(status(task, 2, [0] * 7), spout=task < 3)
    assert (totals.summed().spouts_begun_again, totals.summed().begun_again) == (1, ["task 1 of src"])
    totals = heir(totals)
    assert (totals.summed().spouts_begun_again, totals.summed().begun_again) == (1, ["task 1 of src"])
    totals.place({2, 3}, set())
    assert totals.summed().spouts_begun_again == 1
    for epoch in (1, 2):
        for task in range(10, 20):
            told = status(task, epoch, [1, 0, 0, 0, 0, 0, 0])
            totals.take_task(told, spout=True)
    found = totals.summed()
    assert (found.spouts_begun_again, len(found.begun_again)) == (11, 3), "the first are named"


#: Containers 1 and 2 in their first and second life, with the stream manager and the first task process of each.
FIRST, SECOND = 1 << 16, 2 << 16


def spout(epoch: int, emitted: int = 0, **told: bool) -> control_pb2.TaskStatus:
    found = status(1, epoch, [emitted, 0, 0, 0, 0, 0, 0])
    found.component = "src"
    for name, value in told.items():
        setattr(found, name, value)
    return found


def heir(totals: Totals) -> Totals:
    return Totals.of(control_pb2.TotalsLedger.FromString(totals.ledger("id").SerializeToString()), "id")


def begun(totals: Totals) -> int:
    return totals.summed().spouts_begun_again


def test_without_its_stream_manager_nobody_knows_what_a_spout_had_emitted() -> None:
    """Its last report says nothing; also for a successor, which has it from a ledger older than the first tuple."""
    for takes_over in (False, True):
        totals = Totals()
        totals.take_task(spout(FIRST + 1), True, 1, FIRST + 1)
        totals.let_emit({1: FIRST + 1})
        totals = heir(totals) if takes_over else totals
        assert begun(totals) == 0
        totals.take_task(spout(SECOND + 1), True, 1, SECOND + 1)
        assert begun(totals) == 1 and begun(heir(totals)) == 1


def test_what_a_stream_manager_has_counted_is_certain() -> None:
    """It passes on the last counts of a process that it has survived: this one had emitted nothing."""
    totals = Totals()
    totals.let_emit({1: FIRST + 1})
    totals.take_task(spout(FIRST + 1), True, 1, FIRST + 1)
    totals = heir(totals)
    totals.take_task(spout(FIRST + 2), True, 1, FIRST + 1)
    assert begun(totals) == 0
    totals.take_task(spout(FIRST + 2), True, 1, FIRST + 2)  # the spout outlives the stream manager
    totals.take_task(spout(FIRST + 3), True, 1, FIRST + 2)
    assert begun(totals) == 1, "the first stream manager may have had tuples from it"


def test_a_spout_that_no_plan_has_let_emit_did_not() -> None:
    totals = Totals()
    for epoch in (FIRST, SECOND):
        totals.take_task(spout(epoch + 1), True, 1, epoch + 1)
    totals.let_emit({1: SECOND + 1})
    totals.take_task(spout(SECOND + 2), True, 1, SECOND + 1)
    assert begun(totals) == 0
    totals.take_task(spout(3 * FIRST + 1), True, 1, 3 * FIRST + 1)
    assert begun(totals) == 1


def test_a_process_nobody_has_heard_of_may_have_emitted() -> None:
    """The plan is out, and the first report of the task comes from its second process; not so of a later container."""
    for epoch, then, shown in (
        (FIRST + 1, FIRST + 1, 0),
        (FIRST + 2, FIRST + 1, 1),
        (SECOND + 1, FIRST + 4, 1),
        (SECOND + 1, SECOND + 1, 0),  # an update adds it to a container that was restarted before
        (FIRST + 1, 0, 0),  # nobody knows: only the first process of the first container is certain
        (SECOND + 1, 0, 1),
    ):
        totals = Totals()
        totals.let_emit({1: then})
        totals.take_task(spout(epoch), True, 1, epoch)
        assert begun(totals) == shown, (epoch, then)


def test_a_successor_without_a_ledger_learns_from_the_plan_who_may_have_emitted() -> None:
    plan = plan_pb2.PhysicalPlan()
    plan.topology.spouts.add().comp.name = "src"
    plan.topology.state = topology_pb2.RUNNING
    plan.stmgrs.add(id="stmgr-1", container=1, epoch=FIRST + 1)
    plan.instances.add(task_id=1, component="src", container=1)
    plan.instances.add(task_id=2, component="count", container=1)
    assert emitters(plan) == {1: FIRST + 1}
    totals = Totals()
    totals.take_plan(plan)
    totals.take_task(spout(SECOND + 1), True, 1, SECOND + 1)
    assert begun(totals) == 1 and not totals.uncounted
    totals.take_stmgr("stmgr-1", SECOND + 1)
    assert totals.uncounted
    plan.spouts_held = True
    assert emitters(plan) == {}
    plan.spouts_held, plan.topology.state = False, topology_pb2.PAUSED
    assert emitters(plan) == {}
    plan.topology.state = topology_pb2.RUNNING
    region = plan.regions.add(components=["src", "count"])
    assert emitters(plan) == {}, "it is being restored"
    region.started = True
    assert emitters(plan) == {1: FIRST + 1}


def test_a_spout_that_moves_to_another_container_has_another_process() -> None:
    """Whatever its epoch: both containers may have been started as often, or the new one less often."""
    for epoch in (FIRST + 1, SECOND + 1, 3 * FIRST + 1):
        totals = Totals()
        totals.let_emit({1: SECOND + 1})
        totals.take_task(spout(SECOND + 1, 100), True, 1, SECOND + 1)
        totals = heir(totals)
        totals.take_task(spout(epoch, 7), True, 2, epoch)
        totals.take_task(spout(epoch, 9), True, 2, epoch)
        filled = control_pb2.TaskStatus(task_id=1)
        totals.fill(filled)
        assert (begun(totals), filled.emitted) == (1, 109)


def test_a_spout_that_is_rewound_counts_once() -> None:
    """Its process says so; the next one has not yet when it registers."""
    totals = Totals()
    totals.let_emit({1: FIRST + 1})
    totals.take_task(spout(FIRST + 1, 100, rewinds=True), True, 1, FIRST + 1)
    totals = heir(totals)
    totals.take_task(spout(SECOND + 1), True, 1, SECOND + 1)
    assert begun(totals) == 0 and begun(heir(totals)) == 0


def test_a_normal_run_with_all_that_is_orderly_raises_no_alarm() -> None:
    """Tasks that register after their plan, an update that adds one, a task of a bolt that dies, a new master."""
    world = World().running()
    found = world.status().totals
    assert found.spouts_begun_again == 0
    totals = world.machine.shared.registry.totals
    assert totals.let.keys() == {1, 2}
    for sim in world.sims.values():
        sim.restart([f"container_{sim.container}_count_{task}" for task in sim.tasks if task > 2])
    world.rounds(2)
    world.start_master()
    world.running()
    assert world.status().totals.spouts_begun_again == 0
    assert world.machine.shared.registry.totals.let.keys() == {1, 2}
    world.sims[1].restart([])
    world.rounds(2)
    assert list(world.status().totals.begun_again) == ["task 1 of word"]


def test_a_replaced_spout_shows_in_all_modes_unless_it_is_rewound() -> None:
    for mode, rewinds, shown in (
        ("ATLEAST_ONCE", False, 1),
        ("ATMOST_ONCE", False, 1),
        ("EFFECTIVELY_ONCE", False, 1),
        ("EFFECTIVELY_ONCE", True, 0),
    ):
        world = CheckpointWorld() if mode == "EFFECTIVELY_ONCE" else World()
        world.topology.topology_config.kvs.add(key="topology.reliability.mode", value=mode, type=1)
        world.start_master()
        world.running()
        totals = world.machine.shared.registry.totals
        totals.take_task(spout(1, 9, rewinds=rewinds), spout=True)
        totals.take_task(spout(99), spout=True)
        found = world.status().totals
        assert (found.spouts_begun_again, len(found.begun_again)) == (shown, shown), mode


def task_that_ended(reason: Any) -> control_pb2.ProcessRecord:
    name, kind = "container_1_x_3", control_pb2.PROCESS_TASK
    return control_pb2.ProcessRecord(name=name, kind=kind, task_id=3, restarts=1, exit=reason)


def test_only_who_dies_with_tuples_leaves_some_uncounted() -> None:
    for reason in (
        control_pb2.EXIT_KILLED,
        control_pb2.EXIT_OOM,
        control_pb2.EXIT_CRASHED,
        control_pb2.EXIT_HUNG,
        99,  # of a later release
    ):
        totals = Totals()
        totals.take_process(control_pb2.ProcessRecord(name="tmaster", restarts=1, exit=reason))
        assert not totals.uncounted, "no tuple passes through it"
        totals.take_process(task_that_ended(reason))
        assert totals.uncounted
    totals = Totals()
    for reason in ORDERLY_ENDS:
        totals.take_process(task_that_ended(reason))
    totals.take_stmgr("stmgr-1", 1)
    totals.take_stmgr("stmgr-2", 1)
    totals.place(set(), {"stmgr-2"})
    totals.take_stmgr("stmgr-1", 2)
    assert not totals.uncounted, "it had left the plan before it came back"
    totals.take_stmgr("stmgr-2", 2)
    assert totals.uncounted


def test_a_ledger_of_another_topology_or_of_another_kind_is_left_alone() -> None:
    totals = Totals()
    totals.take_task(status(1, 1, [9] * 7), spout=True)
    totals.take_stmgr("stmgr-1", 1, 5, 5)
    kept = totals.ledger("old")
    assert numbers(Totals.of(kept, "new")) == numbers(Totals.of(None, "new")) == [0] * 6
    kept.tasks[0].before.append(1)
    kept.stmgrs[0].latest.append(1)
    assert numbers(Totals.of(kept, "old")) == [0] * 6


@given(st.lists(st.one_of(TASK, PLACE, MASTER), max_size=60))
def test_no_count_of_a_component_falls(story: list[tuple[str, int, int, list[int]]]) -> None:
    """Whichever tasks updates remove and bring back; here only one removed task is kept separately."""
    totals, before, places = Totals(), [0] * 4, {1, 2, 3}
    for what, number, epoch, counts in story:
        if what == "master":
            totals = heir(totals)
        elif what == "task" and number in places:
            told = status(number, epoch, counts)
            told.component = "src"
            totals.take_task(told, spout=True)
        elif what == "place":
            places = set(range(1, number + 1))
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("heronpy.tmaster.totals.RETIRED_MAX", 1)
                totals.place(places, set())
        after = [0] * 4
        shown = [control_pb2.TaskStatus(task_id=task) for task in places]
        for filled in shown:
            totals.fill(filled)
        for row in (*shown, *totals.retired(places)):
            numbers = (row.emitted, row.executed, row.acked, row.failed)
            after = [a + b for a, b in zip(after, numbers, strict=True)]
        most = (1 << 64) - 1
        assert all(min(a, most) <= b for a, b in zip(before, after, strict=True)), (what, before, after)
        before = after


def test_a_removed_task_counts_in_its_component() -> None:
    world = World(bolts={"count": 3}).running()
    for task in (3, 4, 5):
        world.task(task).status.executed = task * 100
    world.round()
    assert not world.status().retired
    registry = world.machine.shared.registry
    changes = registry.totals.changes
    registry.totals.place({1, 2, 3}, set())
    for task in (4, 5):
        del registry.places[task]
    assert registry.totals.changes > changes, "it is written for a successor"
    [gone] = world.status().retired
    assert (gone.component, gone.tasks, gone.executed) == ("count", 2, 900)


def test_at_least_once_nothing_is_lost_with_a_process() -> None:
    world = World()
    world.topology.topology_config.kvs.add(key="topology.reliability.mode", value="ATLEAST_ONCE", type=1)
    world.start_master()
    world.running()
    world.sims[1].restart([])
    world.rounds(2)
    assert world.machine.shared.registry.totals.uncounted and not world.status().totals.lost_estimated


def test_a_topology_without_bolts_has_no_tuples_to_lose() -> None:
    """Such as one of pipelines of work units only."""
    totals = Totals()
    for epoch in (1, 2):
        totals.take_stmgr("stmgr-1", epoch)
        totals.take_task(status(1, epoch, [0] * 7), spout=True)
    found = totals.summed(mode="ATMOST_ONCE")
    assert (found.lost_estimated, found.lost_unknown) == (False, False)
    totals.take_task(status(2, 1, [0] * 7), spout=False)
    found = totals.summed(mode="ATMOST_ONCE")
    assert (found.lost_estimated, found.lost_unknown) == (True, True)


def test_at_least_once_tuples_that_nobody_sends_again_are_lost_with_a_process() -> None:
    """Whoever has sent them, and whether that was said before the process ended or after."""
    killed = Totals()
    killed.take_task(control_pb2.TaskStatus(task_id=3, epoch=1, untracked=True), spout=False)
    assert not killed.summed(mode="ATLEAST_ONCE").lost_estimated
    killed.take_process(task_that_ended(control_pb2.EXIT_KILLED))
    found = killed.summed(mode="ATLEAST_ONCE")
    assert (found.lost_estimated, found.lost_unknown) == (True, False)

    totals = Totals()
    totals.take_stmgr("stmgr-1", 1)
    totals.take_stmgr("stmgr-1", 2)
    sent = status(3, 1, [5] * 7)
    totals.take_task(sent, spout=False)
    assert not totals.summed(mode="ATLEAST_ONCE").lost_unknown
    changes = totals.changes
    sent.untracked = True
    totals.take_task(sent, spout=False)
    assert totals.changes > changes, "it is written for a successor"
    totals.take_task(status(3, 2, [0] * 7), spout=False)  # its next process has not sent any yet
    totals = heir(totals)
    found = totals.summed(mode="ATLEAST_ONCE")
    assert (found.lost_estimated, found.lost_unknown, found.untracked) == (True, True, True)
    found = totals.summed(mode="EFFECTIVELY_ONCE")
    assert (found.lost_estimated, found.lost_unknown, found.untracked) == (False, False, False)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.integers(0, 9)), min_size=1, max_size=120))
def test_a_view_never_shows_more_executed_than_was_emitted(story: list[tuple[int, int, int]]) -> None:
    """Whatever works when, and whoever reports when: 1 emits, 2 executes what was emitted and passes it on to 3."""
    totals, emitted, executed, now = Totals(), [0, 0, 0, 0], [0, 0, 0, 0], 1000.0
    silent_since, shown = dict.fromkeys((1, 2, 3), now), [0] * 4
    for task in (1, 2, 3):  # they register before they work
        totals.take_task(control_pb2.TaskStatus(task_id=task, epoch=1), spout=task == 1)
    for what, task, count in story:
        now += count / 20
        if what == 0:  # at most what is there
            count = count if task == 1 else min(count, emitted[task - 1] - executed[task])
            executed[task] += count if task > 1 else 0
            emitted[task] += count
        overdue = {t for t, since in silent_since.items() if now - since > 1.0}
        for reporter in sorted({task} | overdue if what else overdue):
            told = control_pb2.TaskStatus(task_id=reporter, epoch=1, counted_at=now)
            told.emitted, told.executed = emitted[reporter], executed[reporter]
            totals.take_task(told, spout=reporter == 1)
            silent_since[reporter] = now
        moment = totals.moment((1, 2, 3))
        view = [control_pb2.TaskStatus(task_id=number) for number in range(4)]
        for filled in view:
            totals.fill(filled, moment)
        assert view[2].executed <= view[1].emitted and view[3].executed <= view[2].emitted, (view, moment)
        assert all(before <= filled.executed for before, filled in zip(shown, view, strict=True))
        shown = [filled.executed for filled in view]


def test_the_last_reports_are_few_and_what_is_silent_holds_nothing_up() -> None:
    totals = Totals()
    for beat in range(1, 1000):
        for task, at in ((1, 1000.0), (2, 1000.0 + beat), (3, 1000.0 + beat / 100)):
            told = control_pb2.TaskStatus(task_id=task, epoch=1, executed=beat, counted_at=at)
            totals.take_task(told, spout=False)
    assert max(len(known.moments) for known in totals.tasks.values()) <= 60
    assert 1999.0 - SILENT_S <= totals.moment((1, 2, 3)) < 1999.0


def test_what_has_run_once_is_known_to_a_successor() -> None:
    """Of each task, and of all: what fails later is an outage, and no failure to start."""
    totals = Totals()
    totals.take_task(status(1, 1, [0] * 7), spout=True)
    assert not totals.tasks[1].has_run, "it is still starting"
    up = status(1, 1, [0] * 7)
    up.state = control_pb2.TASK_RUNNING
    totals.take_task(up, spout=True)
    changes = totals.changes
    totals.start_all()
    assert totals.changes == changes + 1
    totals.take_task(status(1, 2, [0] * 7), spout=True)
    kept = heir(totals)
    assert kept.has_run and kept.tasks[1].has_run


def test_restarts_go_on_counting_under_the_next_executor() -> None:
    totals = Totals()
    process = control_pb2.ProcessRecord(name="stmgr-1", restarts=5)
    totals.take_restarts(process, epoch=1)
    process.restarts = 0
    totals.take_restarts(process, epoch=2)
    assert totals.restarts_of(process) == 6, "it ended with its executor, too"
    process.restarts = 2
    totals.take_restarts(process, epoch=2)
    process.restarts = 9
    totals.take_restarts(process, epoch=1)
    kept = Totals.of(totals.ledger("id"), "id")
    assert kept.restarts_of(process) == totals.restarts_of(process) == 8, (
        "a late report of the first process does not count"
    )


def test_a_task_that_failed_for_good_may_have_left_more_dead_letters() -> None:
    totals = Totals()
    totals.take_task(status(3, 1, [0] * 7), spout=False)
    assert not totals.summed().letters_at_least
    failed = control_pb2.ProcessRecord(task_id=3, kind=control_pb2.PROCESS_TASK, state=control_pb2.PROC_FAILED)
    totals.take_process(failed)
    assert totals.summed().letters_at_least
    totals.take_task(status(3, 2, [0] * 7), spout=False)
    assert not totals.summed().letters_at_least, "its successor has told how many there are"
