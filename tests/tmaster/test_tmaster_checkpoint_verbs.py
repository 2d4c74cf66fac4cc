"""What people ask for where checkpoints are taken: pauses, restarts, updates."""

from __future__ import annotations

import pytest

from heronpy.common.errors import InvalidRpcError
from heronpy.common.setting_types import CheckpointSettings
from heronpy.proto import control_pb2
from heronpy.tmaster import events
from heronpy.tmaster.events import Node
from heronpy.tmaster.figures import Figures
from tests.tmaster.checkpoint_world import attempt, bigger, started, world


def test_deactivate_activate_and_restart() -> None:
    w = world()
    w.when_complete()
    assert not w.answer(w.request(events.StateRequested, False)).error
    assert w.life == control_pb2.LIFE_PAUSED
    assert not w.answer(w.request(events.StateRequested, True)).error
    reply = w.answer(w.request(events.RestartRequested, 0, 3))
    assert not reply.error and attempt(w) == 2
    assert not w.answer(w.request(events.RestartRequested, 1, 0)).error
    w.until(lambda: started(w))


def test_an_update_goes_through_a_checkpoint() -> None:
    """3 to 7 to 2, each from the checkpoint that was taken for it."""
    w = world(bolts={"count": 3}, checkpoints=CheckpointSettings(interval_s=1000.0))
    for parallelism, number in ((7, 1), (2, 2)):
        reply = w.answer(bigger(w, parallelism))
        assert not reply.error, reply.error
        region = w.regions()[0]
        assert region.checkpoint == number and len(region.epochs) == 2 + parallelism
        w.until(lambda: started(w))
        restores = w.machine.checkpoints_reply(w.now)
        assert restores.restores == number and restores.last_restore.endswith(": its tasks have a new placement")
    assert w.life == control_pb2.LIFE_RUNNING


def test_plain_state_cannot_be_spread_and_nothing_changes() -> None:
    w = world()
    w.plain = {"count"}
    before = w.packing().SerializeToString(deterministic=True)
    reply = w.answer(bigger(w, 5))
    assert "State of count" in str(reply.error) and "keyed_state" in str(reply.error)
    assert w.packing().SerializeToString(deterministic=True) == before
    assert attempt(w) == 1 and Node.UPDATE not in w.store
    # The checkpoint that it took says so; the next time it needs none.
    taken = w.log.completed
    again = w.answer(bigger(w, 4))
    assert str(again.error) == str(reply.error) and type(again.error) is InvalidRpcError
    assert w.log.completed == taken > 0 and w.machine.operation is None
    # What people and the scaler see is the same sentence.
    rows = {row.name: row for row in Figures(w.machine, 0.0).reply(0, w.now).load.components}
    assert rows["count"].not_scalable and rows["count"].not_scalable in str(reply.error)
    assert not any(row.not_scalable for name, row in rows.items() if name != "count")


def test_an_update_without_a_checkpoint_changes_nothing() -> None:
    w = world()
    w.full = True
    reply = w.answer(bigger(w, 5))
    assert "no space left" in str(reply.error) and attempt(w) == 1 and Node.UPDATE not in w.store


def test_an_update_whose_tasks_cannot_restore_rolls_back_to_the_same_checkpoint() -> None:
    w = world(checkpoints=CheckpointSettings(interval_s=1000.0))
    token = bigger(w, 3)
    w.until(lambda: attempt(w) == 1 and w.machine.operation is not None and w.log.complete)
    w.damaged = {1}
    w.until(lambda: token in w.replies)
    assert "rolled back" in str(w.replies[token].error) and "chk-1/x" in str(w.replies[token].error)
    w.damaged = set()
    w.until(lambda: started(w))
    assert w.regions()[0].checkpoint == 1 and set(w.regions()[0].epochs) == {1, 2, 3, 4}


@pytest.mark.parametrize("moment", range(8))
def test_a_successor_finishes_an_update_whenever_its_predecessor_dies(moment: int) -> None:
    w = world(checkpoints=CheckpointSettings(interval_s=1000.0))
    bigger(w, 3)
    w.rounds(moment, 0.3)
    w.start_master()
    w.until(lambda: w.machine.operation is None and started(w))
    region = w.regions()[0]
    assert set(region.epochs) in ({1, 2, 3, 4}, {1, 2, 3, 4, 5})
    assert set(region.epochs) == {i.task_id for c in w.packing().containers for i in c.instances}
