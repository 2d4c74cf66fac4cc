"""Sessions: epochs never fall, silence is noticed, a task that speaks again is back."""

from __future__ import annotations

import pytest

from heronpy.common.errors import FencedError
from heronpy.proto import control_pb2
from stmgr.sessions import ENDED_MAX, Sessions


def register(sessions: Sessions, epoch: int, now: float = 0.0) -> None:
    identity = f"t:3:{epoch}".encode()
    sessions.register(identity, control_pb2.RegisterInstance(task_id=3, epoch=epoch, component="word"), now)


def status(epoch: int, state: control_pb2.TaskState = control_pb2.TASK_RUNNING) -> control_pb2.TaskStatus:
    return control_pb2.TaskStatus(task_id=3, epoch=epoch, state=state)


def test_an_older_incarnation_is_refused_and_counted() -> None:
    sessions = Sessions(lost_s=10.0)
    register(sessions, 5)
    register(sessions, 5)
    register(sessions, 6)
    with pytest.raises(FencedError, match="task 3 of epoch 5 was replaced by epoch 6"):
        register(sessions, 5)
    assert sessions.fenced == 1
    assert sessions.heard(b"t:3:5", status(5), 1.0) == (False, False)
    assert sessions.heard(b"t:3:6", status(6), 1.0) == (True, True)
    assert sessions.heard(b"t:3:6", status(6), 2.0) == (True, False)


def test_a_silent_task_is_lost_once_and_comes_back() -> None:
    sessions = Sessions(lost_s=10.0)
    register(sessions, 1)
    assert sessions.expire(10.0) == []
    assert sessions.expire(10.1) == [3] and sessions.expire(20.0) == []
    assert sessions.by_task[3].status.state == control_pb2.TASK_LOST
    assert sessions.heard(b"t:3:1", status(1), 21.0) == (True, True)
    assert sessions.expire(22.0) == []


def test_after_a_pause_of_its_own_nobody_is_lost() -> None:
    """F10: heartbeats of the pause may still wait to be read."""
    sessions = Sessions(lost_s=10.0)
    register(sessions, 1)
    assert sessions.expire(1.0) == []
    assert sessions.expire(60.0) == []
    assert [sessions.expire(60.0 + second) for second in (4.0, 8.0, 10.5)] == [[], [], [3]]


def test_the_last_words_of_a_replaced_process_are_told_once() -> None:
    sessions = Sessions(lost_s=10.0)
    sessions.register(b"one", control_pb2.RegisterInstance(task_id=3, epoch=1), 0.0)
    sessions.heard(b"one", control_pb2.TaskStatus(task_id=3, epoch=1, executed=7), 1.0)
    sessions.register(b"two", control_pb2.RegisterInstance(task_id=3, epoch=2), 1.1)
    assert [(status.epoch, status.executed) for status in sessions.take_ended()] == [(1, 7)]
    assert not sessions.take_ended()
    sessions.register(b"two", control_pb2.RegisterInstance(task_id=3, epoch=2), 1.2)
    assert not sessions.take_ended(), "the same process, once more"
    sessions.register(b"three", control_pb2.RegisterInstance(task_id=3, epoch=3), 1.3)
    assert [status.epoch for status in sessions.all_ended] == [1, 2], "the next topology master is told all"
    for epoch in range(4, 2 * ENDED_MAX):
        sessions.register(b"more", control_pb2.RegisterInstance(task_id=3, epoch=epoch), 1.4)
        sessions.take_ended()
    assert len(sessions.told) == len(sessions.all_ended) == ENDED_MAX
