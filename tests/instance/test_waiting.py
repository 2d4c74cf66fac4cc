"""A task never sleeps while a message waits for it."""

from __future__ import annotations

import time
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from heronpy.proto import control_pb2
from instance.progress import Progress
from instance.reports import Standing
from instance.task import StopRequested, Task
from instance.time_use import TimeUse


class Link:
    def __init__(self) -> None:
        self.waits: list[float] = []

    def wait(self, timeout_s: float, *, frames: bool = True, also: int = -1) -> bool:
        self.waits.append(timeout_s)
        return False

    def out_tuples(self) -> int:
        return 0


def task_with(messages: list[Any], stopping: bool = False) -> tuple[Any, Link]:
    task: Any = Task.__new__(Task)
    link = Link()
    task.control, task.link, task.progress = SimpleNamespace(inbox=deque(messages)), link, Progress()
    task.standing = Standing()
    task.emitter = SimpleNamespace(emitted=lambda: 0, buffered=lambda: 0)
    task.stopping, task.checkpoints, task.time_use = stopping, None, TimeUse(0)
    return task, link


def test_a_message_whose_wake_up_was_used_up_is_not_waited_for() -> None:
    """An idle bolt waits twice in a row: a stop that came during the first wait must end the second."""
    task, link = task_with([control_pb2.StopTask()])
    task.sleep(5.0)
    assert link.waits == []


def test_a_stop_that_an_emit_has_heard_is_not_slept_over() -> None:
    """A clamped spout waited five seconds then, and was killed after the grace of two."""
    task, link = task_with([], stopping=True)
    task.sleep(5.0)
    assert link.waits == []


def test_without_a_message_it_waits() -> None:
    task, link = task_with([])
    task.sleep(5.0)
    assert link.waits == [5.0]


def test_user_code_that_waits_outside_says_why_is_not_hung_and_stops_when_it_is_asked_to() -> None:
    """A sink waits minutes for room on a disk: it was killed as hung after one, and after two seconds of a stop."""
    task, link = task_with([])
    told: list[str] = []
    task.control.notify = lambda metrics=False: told.append(task.standing.outage if metrics else "")
    vars(task)["_waiting"] = False
    task.turn = lambda now: setattr(task.progress, "turned_at", now)
    task.serve_inbox = lambda: setattr(task, "stopping", bool(task.control.inbox.popleft()))
    resting: list[bool] = []
    link.wait = lambda timeout_s, **_: resting.append(task.progress.resting) or time.sleep(timeout_s)
    task.wait_outside("no room", 0.01)
    task.wait_outside("no room", 0.01)
    assert told == ["no room"] and all(resting) and task.progress.loop_age_s() < 1.0
    task.wait_outside("", 0.0)
    assert told == ["no room", ""]
    task.standing.outage = "no room"
    task.control.inbox.append(control_pb2.StopTask())
    with pytest.raises(StopRequested):
        task.wait_outside("no room", 60.0)
    assert task.standing.outage == ""
