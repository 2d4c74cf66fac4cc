"""A chunk of next_tuple calls ends as soon as there is something else to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.metrics import AssignableMetrics
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.proto import control_pb2
from instance.control import Message
from tests.sim.run import cluster_of
from tests.sim.workload import Program


class Counter(Spout):
    """At its fifth call it does what the test wants."""

    outputs = ["n"]
    calls = 0
    fifth: Callable[[], object] | None = None

    def next_tuple(self) -> None:
        self.calls += 1
        if self.calls == 5 and self.fifth is not None:
            self.fifth()


class Sink(Bolt):
    def process(self, tup: Any) -> None: ...


@pytest.fixture
def task() -> Iterator[Any]:
    """A spout's task that runs and has nothing to do."""
    made = TopologyBuilder("sim")
    count = made.add_spout("count", Counter, par=1)
    made.add_bolt("sink", Sink, par=1, inputs={count: Grouping.SHUFFLE})
    with cluster_of(0, Program(made, None)) as (cluster, _):
        cluster.until(control_pb2.LIFE_RUNNING)
        [process] = cluster.tasks("count")
        with cluster.world.acting(process):
            process.program.control.drain_wake()
            process.program.user.object.calls = 0
            yield process.program


def test_it_is_as_long_as_it_was_asked_for_when_nothing_comes(task: Any) -> None:
    task.call_user(100)
    assert task.user.object.calls == 100


@pytest.mark.parametrize("message", [control_pb2.TriggerCheckpoint(), control_pb2.StopTask()])
def test_a_message_ends_it(task: Any, message: Message) -> None:
    """A source that became slow would hold up checkpoints, stops and plans for thousands of calls."""
    task.user.object.fifth = lambda: task.control.deliver(message)
    task.call_user(100)
    assert task.user.object.calls == 5


def test_an_interruption_ends_it(task: Any) -> None:
    task.user.object.fifth = task.control.interrupt
    task.call_user(100)
    assert task.user.object.calls == 5


def test_the_end_of_input_ends_it(task: Any) -> None:
    task.user.object.fifth = task.user.object.end_of_input
    task.call_user(100)
    assert task.user.object.calls == 5 and task.exhausted


@pytest.mark.parametrize(("tuple_at", "calls"), [(1, 2), (5, 13)])
def test_one_call_in_vain_ends_it_unless_tuples_come_after_such_calls(task: Any, tuple_at: int, calls: int) -> None:
    spout, task._dry_calls = task.user.object, 1  # noqa: SLF001
    spout.calls, spout.fifth = 5 - tuple_at, lambda: spout.emit([1])
    made, dry = task._call_until_dry(64, float("inf"))  # noqa: SLF001
    assert dry and made == calls


def test_figures_of_a_spout_that_has_ended_are_final(task: Any) -> None:
    """They were collected at its next turn, seconds later: work units waited in a topology that had finished."""
    waiting = AssignableMetrics(3)
    task.user_metrics.register_metric("waiting", waiting, 1e9)
    task.user_metrics.collect(0.0)
    assert task.metrics.gauges["waiting", ""] == 3
    waiting.update(0)
    task.user.object.end_of_input()
    task._show_state()  # noqa: SLF001
    assert task.metrics.gauges["waiting", ""] == 0 and task.standing.state == control_pb2.TASK_EXHAUSTED
