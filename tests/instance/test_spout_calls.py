"""A chunk of next_tuple calls ends as soon as there is something else to do."""

from __future__ import annotations

from typing import Any

import pytest

from heronpy.proto import control_pb2, topology_pb2
from tests.plan.builders import TopologyMessage
from tests.support.plane import Plane, UserObject


class Counter(UserObject):
    """At its fifth call it does what the test wants."""

    def __init__(self, delegate: Any) -> None:
        super().__init__(delegate)
        self.calls = 0
        self.fifth: Any = None

    def next_tuple(self) -> None:
        self.calls += 1
        if self.calls == 5 and self.fifth is not None:
            self.fifth()


@pytest.fixture
def plane(monkeypatch: pytest.MonkeyPatch) -> Any:
    message = TopologyMessage().spout("count", outputs={"default": ["n"]})
    message.bolt("sink", [("count", "default", topology_pb2.SHUFFLE, [])], outputs={})
    made = Plane(
        monkeypatch, message.message, {1: ("count", 1), 2: ("sink", 1)}, {"count": Counter, "sink": UserObject}
    )
    yield made
    made.close()


def test_it_is_as_long_as_it_was_asked_for_when_nothing_comes(plane: Plane) -> None:
    task = plane.tasks[1]
    task.control.drain_wake()
    task._call_user(100)
    assert task.user.object.calls == 100


@pytest.mark.parametrize("kind", ["trigger_checkpoint", "stop_task"])
def test_a_message_ends_it(plane: Plane, kind: str) -> None:
    """A source that became slow would hold up checkpoints, stops and plans for thousands of calls."""
    task = plane.tasks[1]
    task.control.drain_wake()
    task.user.object.fifth = lambda: task.control.deliver(kind, control_pb2.StopTask())
    task._call_user(100)
    assert task.user.object.calls == 5


def test_an_interruption_ends_it(plane: Plane) -> None:
    task = plane.tasks[1]
    task.control.drain_wake()
    task.user.object.fifth = task.control.interrupt
    task._call_user(100)
    assert task.user.object.calls == 5


def test_the_end_of_input_ends_it(plane: Plane) -> None:
    task = plane.tasks[1]
    task.control.drain_wake()
    task.user.object.fifth = task.user.delegate.end_of_input
    task._call_user(100)
    assert task.user.object.calls == 5 and task.exhausted
