"""Checkpoints and restores as the topology master decides them (F03, F09, F11, F23)."""

from __future__ import annotations

import pytest

from heronpy.common.setting_types import CheckpointSettings
from heronpy.proto import checkpoint_pb2, control_pb2, topology_pb2
from heronpy.tmaster import events
from heronpy.tmaster.events import Node
from heronpy.tmaster.machine import TopologyMaster
from tests.tmaster.checkpoint_world import CheckpointWorld, attempt, finish, restored_from, started, world

# ---- starting -------------------------------------------------------------------------------


def test_a_region_starts_when_every_task_has_restored() -> None:
    w = CheckpointWorld()
    w.reconcile()
    w.task(3).stuck = True
    w.rounds(3)
    assert not w.regions()[0].started and w.life == control_pb2.LIFE_STARTING
    w.task(3).stuck = False
    w.running()
    region = w.regions()[0]
    assert region.started and region.attempt == 1 and region.checkpoint == 0 and not region.location
    assert set(region.components) == {"word", "count"} and set(region.epochs) == {1, 2, 3, 4}


def test_regions_start_alone_and_go_back_alone() -> None:
    w = CheckpointWorld()
    topology = w.store[Node.TOPOLOGY]
    del topology.bolts[0].inputs[:]
    item = topology.bolts[0].inputs.add(gtype=topology_pb2.SHUFFLE)
    item.stream.id, item.stream.component_name = "default", "count"
    w.start_master()
    w.until(lambda: started(w))
    assert sorted(list(r.components) for r in w.regions()) == [["count"], ["word"]]
    before = {r.components[0]: r.attempt for r in w.regions()}
    w.kill(3)
    w.until(lambda: max(r.attempt for r in w.regions()) > max(before.values()) and started(w))
    after = {r.components[0]: r.attempt for r in w.regions()}
    assert after["word"] == before["word"] and after["count"] > before["count"]


# ---- checkpoints ----------------------------------------------------------------------------


def test_checkpoints_are_periodic_numbered_and_logged() -> None:
    w = world()
    w.when_complete(3)
    records = list(w.log.complete)
    assert [r.checkpoint for r in records] == [1, 2, 3]
    assert records[0].location.endswith("/chk-1") and records[0].total_bytes == 40
    assert all(task.status.committed == 3 for task in w.tasks())
    reply = w.machine.checkpoints_reply(w.now)
    assert (reply.completed, reply.aborted, reply.failed, reply.pending) == (3, 0, 0, 0)


def test_a_savepoint_takes_a_number_of_its_own_and_is_never_deleted() -> None:
    w = world(checkpoints=CheckpointSettings(interval_s=5.0, retained=2))
    w.when_complete(1)
    token = w.request(events.CheckpointRequested, True)
    record = w.answer(token).body.record
    assert record.checkpoint == 2 and record.kind == checkpoint_pb2.SAVEPOINT
    w.when_complete(3)
    assert [r.checkpoint for r in w.log.complete] == [2, 4, 5]
    assert w.pruned == {1, 3}


def test_a_checkpoint_that_takes_too_long_is_aborted_and_counted_and_the_next_one_completes() -> None:
    """The time of a savepoint is its own."""
    w = world(checkpoints=CheckpointSettings(interval_s=2.0, timeout_s=3.0, savepoint_timeout_s=20.0))
    w.mute = {4}
    w.until(lambda: list(w.machine.checkpoints_reply(w.now).pending_names) == ["container_2_count_4"])
    w.until(lambda: w.machine.checkpoints_reply(w.now).aborted == 1)
    assert "task 4 of count" in w.machine.checkpoints_reply(w.now).last_failure
    token = w.request(events.CheckpointRequested, True)
    w.until(lambda: w.checkpoints.coordinator.pending is not None and w.checkpoints.coordinator.pending.savepoint)
    w.rounds(10)
    assert token not in w.replies
    w.mute = set()
    assert w.answer(token).body.record.kind == checkpoint_pb2.SAVEPOINT


def test_a_request_is_refused_with_the_reason_when_its_checkpoint_fails() -> None:
    w = world()
    w.full = True
    reply = w.answer(w.request(events.CheckpointRequested, True))
    assert "no space left" in str(reply.error) and w.machine.checkpoints_reply(w.now).failed == 1
    w.full = False
    assert w.answer(w.request(events.CheckpointRequested, False)).body.record.checkpoint == 2


def test_a_task_that_declines_aborts_the_checkpoint() -> None:
    w = world()
    w.mute = {1, 2, 3, 4}
    w.until(lambda: w.open > 0)
    message = w.answer_of(w.task(2))
    message.error = "more than 100 MB held back"
    w.feed(events.TaskAnswered(message))
    reply = w.machine.checkpoints_reply(w.now)
    assert reply.aborted == 1 and "100 MB" in reply.last_failure and attempt(w) == 1


def test_a_topology_of_another_mode_takes_no_checkpoints() -> None:
    from tests.tmaster.tmaster_world import World

    w = World().running()
    reply = w.answer(w.request(events.CheckpointRequested, True))
    assert "EFFECTIVELY_ONCE" in str(reply.error)
    assert Node.CHECKPOINTS not in w.store and not w.store[Node.PHYSICAL_PLAN].regions


# ---- losses ---------------------------------------------------------------------------------


def test_a_replaced_task_sends_its_region_back_to_the_newest_checkpoint() -> None:
    w = world()
    last = w.when_complete(2)
    w.kill(3)
    assert restored_from(w, 1) == last
    assert "task 3 of count" in w.machine.checkpoints_reply(w.now).last_restore
    assert w.machine.checkpoints_reply(w.now).restores == 1


def test_the_number_of_restores_and_the_start_outlive_the_master() -> None:
    """The wall clock of the successor's machine differs from its monotonic clock by something else."""
    w = world()
    born = w.machine.shared.registry.totals.started_at
    w.when_complete(2)
    w.kill(3)
    restored_from(w, 1)
    assert w.status().totals.restores == 1
    kept = w.machine.shared.registry.totals.ledger(w.topology.id)
    kept = control_pb2.TotalsLedger.FromString(kept.SerializeToString())
    heir = TopologyMaster(
        w.settings,
        w.epoch + 1,
        topology=w.store[Node.TOPOLOGY],
        packing=w.store[Node.PACKING_PLAN],
        previous=w.store[Node.PHYSICAL_PLAN],
        log=w.store[Node.CHECKPOINTS],
        totals=kept,
        wall_offset_s=w.now,
    )
    heir.begin(7.0)
    assert heir.status(8.0).totals.restores == heir.checkpoints_reply(8.0).restores == 1
    assert heir.status(8.0).uptime_s == pytest.approx(8.0 + w.now - born)
    heir.shared.registry.totals.start(born - 3600)
    assert heir.status(8.0).uptime_s > 3600, "a clock that was set back starts from 0"


def test_a_replaced_stream_manager_sends_the_region_back() -> None:
    w = world()
    sim = w.sims[1]
    sim.epoch, sim.registered, sim.plan = sim.epoch + 1, False, None
    w.until(lambda: attempt(w) > 1 and started(w))
    assert "stmgr-1 ended" in w.machine.checkpoints_reply(w.now).last_restore


def test_lost_frames_of_the_present_attempt_send_the_region_back_once() -> None:
    w = world()
    lost = control_pb2.DataLost(stmgr_id="stmgr-1", attempt=1, task_id=3, tuples=7, reason="peer lost")
    w.feed(events.DataLost(lost))
    w.feed(events.DataLost(lost))
    w.until(lambda: started(w))
    assert attempt(w) == 2 and w.machine.checkpoints_reply(w.now).restores == 1
    assert "peer lost" in w.machine.checkpoints_reply(w.now).last_restore


def test_a_barrier_that_counts_too_few_frames_sends_the_region_back() -> None:
    w = world()
    w.mute = {1, 2, 3, 4}
    w.until(lambda: w.open > 0)
    message = w.answer_of(w.task(3))
    message.error, message.lost_data = "2 of 5 frames of task 1 are missing", True
    w.feed(events.TaskAnswered(message))
    w.mute = set()
    assert restored_from(w, 1) == 0
    assert w.machine.checkpoints_reply(w.now).aborted == 1


def test_whoever_dies_while_a_region_is_restored_does_not_need_another_attempt() -> None:
    """F09."""
    w = world()
    w.task(1).stuck = True
    w.kill(3)
    w.until(lambda: attempt(w) == 2)
    w.kill(4)
    w.kill(3)
    w.rounds(3)
    assert attempt(w) == 2
    w.task(1).stuck = False
    assert restored_from(w, 1) == 0 and attempt(w) == 2


def test_the_cause_says_what_is_restored_and_why() -> None:
    w = world()
    number = w.when_complete()
    w.task(1).stuck = True
    w.kill(3)
    w.until(lambda: attempt(w) == 2)
    status = w.status()
    assert status.lifecycle == control_pb2.LIFE_DEGRADED
    assert status.cause.startswith(f"restoring from checkpoint {number}: task 3 of count")


# ---- damage ---------------------------------------------------------------------------------


def test_when_nothing_can_be_restored_it_has_failed_and_names_the_file() -> None:
    """F23."""
    w = world()
    w.when_complete()
    w.damaged = {1}
    w.kill(3)
    w.until(lambda: w.life == control_pb2.LIFE_FAILED)
    assert "chk-1/x is damaged" in w.status().cause and "allow_empty" in w.status().cause
    take_over(w)
    assert w.life == control_pb2.LIFE_FAILED, "whatever its tasks report to the successor"
    w.rounds(5)
    assert w.life == control_pb2.LIFE_FAILED and not w.regions()[0].started, "a successor does not start it empty"
    assert "chk-1/x is damaged" in w.status().cause and "allow_empty" in w.status().cause


def take_over(w: CheckpointWorld) -> None:
    """A new topology master, which knows that every task has run."""
    w.start_master()
    w.machine.shared.registry.totals.has_run = True


def test_a_successor_tries_a_checkpoint_of_another_topology_again() -> None:
    """F23. The log does not say that it is damaged."""
    w = from_elsewhere()
    w.damaged = {12}
    w.kill(3)
    w.until(lambda: w.life == control_pb2.LIFE_FAILED)
    take_over(w)
    w.until(lambda: w.life == control_pb2.LIFE_FAILED)
    assert "chk-12/x is damaged" in w.status().cause and "allow_empty" in w.status().cause


def test_a_successor_passes_over_what_was_damaged_before_the_plan_said_so() -> None:
    """F23. The predecessor died between its writes of the log and of the plan."""
    w = world()
    w.when_complete(2)
    w.task(1).stuck = True
    w.kill(3)
    w.until(lambda: attempt(w) == 2)
    w.log.complete[1].damaged = True
    w.start_master()
    w.task(1).stuck = False
    assert restored_from(w, 2) == 1


def test_allow_empty_starts_anew_instead() -> None:
    w = world(checkpoints=CheckpointSettings(interval_s=5.0, allow_empty=True))
    w.when_complete()
    w.damaged = {1}
    w.kill(3)
    assert restored_from(w, 1) == 0


def test_losses_in_a_row_wait_for_each_other_and_end_as_failed() -> None:
    """F11."""
    w = world(checkpoints=CheckpointSettings(interval_s=1000.0, restore_budget=5))

    def lose() -> None:
        w.feed(events.DataLost(control_pb2.DataLost(stmgr_id="stmgr-1", attempt=attempt(w), task_id=3, tuples=7)))

    for number in range(5):
        lose()
        w.until(lambda number=number: attempt(w) > number + 1 and started(w))
    lose()
    w.until(lambda: w.life == control_pb2.LIFE_FAILED)
    assert "6 times" in w.status().cause and "7 tuples" in w.status().cause
    w.rounds(10)
    assert not w.regions()[0].started
    token = w.request(events.RestartRequested, 1, 0)
    w.answer(token)
    assert started(w), "a restart forgives"


def test_kills_in_a_row_neither_wait_for_each_other_nor_end_it() -> None:
    """The executor knows whether a process ended by its own fault, and paces and counts that."""
    w = world(checkpoints=CheckpointSettings(interval_s=1000.0, restore_budget=5))
    took = []
    for number in range(12):
        w.kill(3)
        began = w.now
        w.until(lambda number=number: attempt(w) > number + 1 and started(w))
        took.append(w.now - began)
    assert max(took) <= took[0] + 1.0, took
    w.until(lambda: w.life == control_pb2.LIFE_RUNNING, 2)


def test_a_complete_checkpoint_forgives_the_restores_before_it() -> None:
    w = world(checkpoints=CheckpointSettings(interval_s=5.0, restore_budget=2))
    for _ in range(6):
        before = attempt(w)
        lost = control_pb2.DataLost(stmgr_id="stmgr-1", attempt=before, task_id=3, tuples=7)
        w.feed(events.DataLost(lost))
        w.until(lambda before=before: attempt(w) > before and started(w))
        w.when_complete()
    assert w.life == control_pb2.LIFE_RUNNING


# ---- other masters --------------------------------------------------------------------------


def test_a_successor_leaves_a_running_topology_alone() -> None:
    """F03."""
    w = world()
    w.when_complete()
    epochs = {task.status.epoch for task in w.tasks()}
    w.start_master()
    w.rounds(5)
    assert started(w) and attempt(w) == 1 and {task.status.epoch for task in w.tasks()} == epochs
    assert w.when_complete() >= 2


def test_a_successor_begins_no_checkpoint_before_it_can_tell_anybody() -> None:
    """It would wait for answers to a trigger that nobody has got, and hold up all others until its timeout (F24)."""
    w = world()
    w.when_complete()
    for sim in w.sims.values():
        sim.silent, sim.registered = True, False
    w.start_master()
    w.rounds(5)
    assert w.machine.checkpoints_reply(w.now).pending == 0
    for sim in w.sims.values():
        sim.silent = False
    w.when_complete()


def test_a_successor_aborts_the_checkpoint_under_way_and_uses_its_number_no_more() -> None:
    w = world()
    w.mute = {1}
    w.until(lambda: w.open > 0)
    abandoned = w.open
    w.start_master()
    w.mute = set()
    assert w.when_complete() > abandoned
    assert abandoned in w.pruned


def test_a_successor_goes_on_with_a_restore() -> None:
    w = world()
    last = w.when_complete()
    w.task(1).stuck = True
    w.kill(3)
    w.until(lambda: attempt(w) == 2)
    w.start_master()
    w.task(1).stuck = False
    w.until(lambda: started(w))
    assert attempt(w) == 2 and w.regions()[0].checkpoint == last


def test_a_successor_sees_what_was_replaced_while_nobody_was_master() -> None:
    w = world()
    w.when_complete()
    w.kill(3)
    w.start_master()
    assert restored_from(w, 1) == 1


def from_elsewhere() -> CheckpointWorld:
    """A topology that has started from a checkpoint of another."""
    w = CheckpointWorld()
    w.store[Node.CHECKPOINTS] = checkpoint_pb2.CheckpointLog(
        topology_id=w.store[Node.TOPOLOGY].id, restore_from="/elsewhere/wc-7/chk-12"
    )
    w.store.pop(Node.PHYSICAL_PLAN, None)
    w.start_master()
    w.running()
    return w


def test_a_topology_can_start_from_a_checkpoint_of_another() -> None:
    """Its own numbers go on above, and the foreign files are needed until its first checkpoint."""
    w = from_elsewhere()
    region = w.regions()[0]
    assert (region.checkpoint, region.location) == (12, "/elsewhere/wc-7/chk-12")
    w.kill(3)
    assert restored_from(w, region.attempt) == 12
    assert w.when_complete() == 13
    assert not w.log.restore_from
    w.kill(3)
    assert restored_from(w, attempt(w)) >= 13


# ---- the end --------------------------------------------------------------------------------


def test_a_topology_ends_with_a_checkpoint_that_everybody_has_dealt_with() -> None:
    w = world(checkpoints=CheckpointSettings(interval_s=1000.0))
    finish(w)
    w.until(lambda: w.life == control_pb2.LIFE_FINISHED)
    assert [r.checkpoint for r in w.log.complete] == [1]
    assert all(task.status.committed == 1 for task in w.tasks())
    writes = len(w.writes)
    w.rounds(20)
    assert len(w.writes) == writes and w.life == control_pb2.LIFE_FINISHED


def test_the_last_checkpoint_is_tried_again_until_it_completes() -> None:
    w = world(checkpoints=CheckpointSettings(interval_s=1000.0))
    w.full = True
    finish(w)
    w.rounds(15)
    assert w.life == control_pb2.LIFE_FINISHING and w.machine.checkpoints_reply(w.now).failed > 1
    w.full = False
    w.until(lambda: w.life == control_pb2.LIFE_FINISHED)


def test_a_loss_while_finishing_begins_anew() -> None:
    w = world(checkpoints=CheckpointSettings(interval_s=1000.0))
    w.full = True
    finish(w)
    w.until(lambda: w.life == control_pb2.LIFE_FINISHING)
    w.kill(3)
    w.until(lambda: attempt(w) == 2 and started(w))
    w.full = False
    w.until(lambda: all(task.status.state == control_pb2.TASK_RUNNING for task in w.tasks()))
    finish(w)
    w.until(lambda: w.life == control_pb2.LIFE_FINISHED)
