"""Requests about checkpoints of a running topology: go back to one, delete some, and when that is refused."""

from __future__ import annotations

import pytest

from heronpy.common.setting_types import CheckpointSettings, TmasterSettings
from heronpy.proto import control_pb2
from heronpy.tmaster import events
from heronpy.tmaster.coordinator import WithdrawnCheckpointError
from heronpy.tmaster.events import Node
from tests.tmaster.checkpoint_world import CheckpointWorld, attempt, bigger, finish, restored_from, started, world
from tests.tmaster.tmaster_world import World


def rewound(w: CheckpointWorld, checkpoint: int) -> int:
    """Ask for it; where everything goes on."""
    before = attempt(w)
    reply = w.answer(w.request(events.RewindRequested, checkpoint))
    assert not reply.error, reply.error
    return restored_from(w, before)


def test_everything_goes_back_to_an_older_checkpoint_and_never_forward_again() -> None:
    """What came after it is no origin of a restore, not even when the next loss comes at once."""
    w = world()
    w.when_complete(3)
    assert rewound(w, 1) == 1
    w.kill(3)
    assert restored_from(w, attempt(w)) == 1
    w.start_master()
    w.rounds(3)
    w.kill(3)
    assert restored_from(w, attempt(w)) == 1
    newest = w.when_complete()
    assert newest > 3
    w.kill(3)
    assert restored_from(w, attempt(w)) == newest


def test_without_a_number_it_is_the_newest_sound_one() -> None:
    w = world()
    w.when_complete(2)
    w.checkpoints.coordinator.damaged(2, "chk-2/x is damaged")
    assert rewound(w, 0) == 1


def test_people_may_change_their_mind() -> None:
    w = world()
    w.when_complete(3)
    assert rewound(w, 1) == 1 and rewound(w, 3) == 3


def test_output_that_was_taken_back_is_not_gone_forward_to() -> None:
    """A two-phase sink removes what it published after the checkpoint gone back to; nobody would write it again."""
    w = world()
    w.publishing = {"count"}
    w.when_complete(3)
    assert rewound(w, 2) == 2
    before = attempt(w)
    refused = w.answer(w.request(events.RewindRequested, 3)).error
    assert isinstance(refused, WithdrawnCheckpointError) and refused.checkpoint == 3
    assert attempt(w) == before, "nothing has moved"
    assert rewound(w, 2) == 2 and rewound(w, 1) == 1, "further back is possible"


def test_what_a_restore_passed_over_as_damaged_is_not_gone_forward_to_either() -> None:
    w = world()
    w.publishing = {"count"}
    w.when_complete(3)
    w.damaged = {3}
    w.kill(3)
    assert restored_from(w, attempt(w)) == 2
    w.damaged = set()
    assert isinstance(w.answer(w.request(events.RewindRequested, 3)).error, WithdrawnCheckpointError)


def test_a_checkpoint_that_is_abandoned_or_damaged_does_not_count_as_retained() -> None:
    w = world(checkpoints=CheckpointSettings(interval_s=5.0, retained=2))
    w.when_complete(3)
    assert [r.checkpoint for r in w.log.complete] == [2, 3]
    rewound(w, 2)
    w.when_complete()
    assert [r.checkpoint for r in w.log.complete] == [2, 3, 4], "2 and 4 are the two that can be restored"
    w.when_complete()
    assert [r.checkpoint for r in w.log.complete] == [4, 5]


def test_what_is_unknown_cannot_be_gone_back_to() -> None:
    w = world()
    w.when_complete(2)
    assert "no complete checkpoint 9" in str(w.answer(w.request(events.RewindRequested, 9)).error)
    assert attempt(w) == 1


def test_what_is_still_damaged_is_passed_over_once_more() -> None:
    w = world()
    w.when_complete(3)
    w.damaged = {2, 3}
    w.kill(3)
    assert restored_from(w, 1) == 1
    assert rewound(w, 2) == 1
    assert [r.checkpoint for r in w.log.complete if r.damaged] == [2, 3]
    assert "chk-3/x is damaged" in w.log.complete[2].damage


def test_going_back_aborts_the_checkpoint_under_way_and_answers_who_waits_for_it() -> None:
    w = world()
    w.when_complete()
    w.mute = {1}
    token = w.request(events.CheckpointRequested, True)
    w.until(lambda: w.checkpoints.coordinator.pending is not None)
    assert rewound(w, 1) == 1
    assert "heron checkpoints restore" in str(w.replies[token].error)
    assert w.machine.checkpoints_reply(w.now).aborted == 1
    w.mute = set()
    assert w.when_complete() > 2


def test_going_back_while_deactivated_leaves_the_spouts_resting() -> None:
    w = world()
    number = w.when_complete()
    w.answer(w.request(events.StateRequested, False))
    before = attempt(w)
    assert not w.answer(w.request(events.RewindRequested, number)).error
    w.until(lambda: attempt(w) > before and all(r.started for r in w.regions()) and w.life == control_pb2.LIFE_PAUSED)
    assert not w.answer(w.request(events.CheckpointRequested, True)).error, "savepoints while it rests"


def test_going_back_ends_a_failure() -> None:
    w = world()
    w.when_complete(2)
    w.damaged = {1, 2}
    w.kill(3)
    w.until(lambda: w.life == control_pb2.LIFE_FAILED)
    assert "failed" in str(w.answer(w.request(events.CheckpointRequested, False)).error)
    assert "chk-2/x is damaged; chk-1/x is damaged" in str(w.answer(w.request(events.RewindRequested, 0)).error)
    w.damaged = set()
    w.rounds(3)
    assert w.machine.shared.registry.failed_tasks
    before, token = attempt(w), w.request(events.RewindRequested, 2)
    assert w.life != control_pb2.LIFE_FAILED, "who could not restore the last attempt is replaced"
    assert not w.answer(token).error and restored_from(w, before) == 2, "the store was away and is back"
    w.until(lambda: w.life == control_pb2.LIFE_RUNNING, 2)


def test_going_back_is_refused_during_an_update_after_the_end_and_in_other_modes() -> None:
    w = world(checkpoints=CheckpointSettings(interval_s=1000.0))
    w.mute = {1}
    token = bigger(w, 3)
    assert "update of" in str(w.answer(w.request(events.RewindRequested, 0)).error)
    assert "update of" in str(w.answer(w.request(events.DeleteRequested, (1,))).error)
    w.mute = set()
    assert not w.answer(token).error
    finish(w)
    w.until(lambda: w.life == control_pb2.LIFE_FINISHED)
    assert "has finished" in str(w.answer(w.request(events.RewindRequested, 0)).error)
    other = World().running()
    assert "EFFECTIVELY_ONCE" in str(other.answer(other.request(events.RewindRequested, 0)).error)
    assert "EFFECTIVELY_ONCE" in str(other.answer(other.request(events.DeleteRequested, (1,))).error)


def test_checkpoints_are_deleted_when_their_files_are_gone() -> None:
    w = world()
    w.when_complete(3)
    token = w.request(events.DeleteRequested, (1, 2))
    assert [r.checkpoint for r in w.log.complete] == [3] and token not in w.replies and {1, 2} <= w.pruned
    w.delete()
    assert not w.replies[token].error


def test_a_deletion_that_fails_says_so() -> None:
    w = world()
    w.when_complete(2)
    token = w.request(events.DeleteRequested, (1,))
    w.deletions.clear()
    w.feed(events.CheckpointsDeleted(token, events.Failed("permission denied")))
    assert "permission denied" in str(w.replies[token].error)


@pytest.mark.parametrize(
    ("numbers", "why"),
    [((1, 3), "would be restored from it"), ((1, 7), "no complete checkpoint 7"), ((1, 2, 3), "would be restored")],
)
def test_deletions_are_refused_as_a_whole(numbers: tuple[int, ...], why: str) -> None:
    w = world()
    w.when_complete(3)
    assert why in str(w.answer(w.request(events.DeleteRequested, numbers)).error)
    assert [r.checkpoint for r in w.log.complete] == [1, 2, 3] and not w.pruned


def test_what_is_being_restored_is_not_deleted() -> None:
    w = world()
    w.when_complete(2)
    w.task(1).stuck = True
    w.request(events.RewindRequested, 1)
    assert "checkpoint 1 cannot be deleted" in str(w.answer(w.request(events.DeleteRequested, (1,))).error)
    assert not w.answer(w.request(events.DeleteRequested, (2,))).error


def test_the_last_record_stays_however_damaged() -> None:
    """F23: without it the topology would pass for one that never had state."""
    w = world()
    w.when_complete()
    w.damaged = {1}
    w.kill(3)
    w.until(lambda: w.life == control_pb2.LIFE_FAILED)
    assert "kill the topology first" in str(w.answer(w.request(events.DeleteRequested, (1,))).error)


def test_deleting_while_a_checkpoint_runs_does_not_touch_it() -> None:
    w = world()
    w.when_complete(2)
    w.mute = {1}
    w.until(lambda: w.checkpoints.coordinator.pending is not None)
    number = w.checkpoints.coordinator.pending.checkpoint
    assert not w.answer(w.request(events.DeleteRequested, (1,))).error
    assert w.checkpoints.coordinator.pending.checkpoint == number
    w.mute = set()
    w.until(lambda: any(r.checkpoint == number for r in w.log.complete))


# ---- the master itself ----------------------------------------------------------------------


def test_a_master_that_was_stopped_takes_nobody_for_dead() -> None:
    """F10, F03: after SIGCONT the heartbeats of the pause still wait to be read."""
    w = world(settings=TmasterSettings(stmgr_lost_s=10.0), checkpoints=CheckpointSettings(interval_s=5.0))
    w.when_complete()
    for sim in w.sims.values():
        sim.silent = True
    w.now += 600.0
    w.feed(events.Tick())
    for sim in w.sims.values():
        sim.silent = False
    w.rounds(3)
    assert started(w) and attempt(w) == 1 and w.machine.checkpoints_reply(w.now).restores == 0
    before, began = len(w.written), w.now
    w.until(lambda: len(w.written) > before)
    assert w.now - began <= 10.0


def test_who_stays_silent_after_the_pause_is_lost() -> None:
    w = world(settings=TmasterSettings(stmgr_lost_s=10.0))
    w.sims[1].silent = True
    w.now += 600.0
    w.feed(events.Tick())
    w.rounds(12)
    assert attempt(w) == 2


# ---- updates --------------------------------------------------------------------------------


def test_a_damaged_checkpoint_during_the_first_part_of_an_update_does_not_stop_the_restore() -> None:
    w = world(checkpoints=CheckpointSettings(interval_s=1000.0))
    w.answer(w.request(events.CheckpointRequested, False))
    w.unstartable = {5}
    bigger(w, 3)
    w.until(lambda: Node.UPDATE in w.store)
    w.damaged = {2}
    w.kill(3)
    assert restored_from(w, 1) == 1


def test_an_update_that_finds_too_many_requests_is_refused() -> None:
    w = world(checkpoints=CheckpointSettings(interval_s=1000.0, timeout_s=1000.0))
    w.mute = {1}
    w.request(events.CheckpointRequested, False)
    for _ in range(100):
        w.request(events.CheckpointRequested, False)
    assert "too many checkpoint requests" in str(w.answer(bigger(w, 3)).error)


def test_a_request_that_waited_in_vain_hears_what_is_under_way() -> None:
    w = world(checkpoints=CheckpointSettings(interval_s=1000.0, timeout_s=5.0, savepoint_timeout_s=60.0))
    w.mute = {1}
    w.request(events.CheckpointRequested, True)
    reply = w.answer(w.request(events.CheckpointRequested, False))
    assert "checkpoint 1 is still in progress" in str(reply.error)
