"""A task that its stream manager does not take: what it does follows from the refusal, whatever the sentence says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import stmgr.control
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.common import exit_codes
from heronpy.common.errors import HeronError, InvalidRpcError, ReplacedError, RetryableRpcError, RpcError
from heronpy.common.setting_types import InstanceSettings, StmgrSettings
from heronpy.proto import control_pb2, plan_pb2
from heronpy.task.name import TaskName
from instance import lifecycle
from instance.bolt_loop import BoltTask
from instance.control import Refused
from tests.sim.run import cluster_of
from tests.sim.workload import Program
from tests.support.control import FakeControl
from tests.support.wordless import WORDINGS, reword

OUTCOMES = [
    (control_pb2.REFUSAL_FENCED, exit_codes.FENCED),
    (control_pb2.REFUSAL_INVALID, exit_codes.FAILURE),
]


@pytest.fixture
def task() -> Iterator[Any]:
    """A task without a plan, and a link that does nothing."""
    task: Any = BoltTask(SimpleNamespace(), InstanceSettings(), StmgrSettings(), TaskName(2, 7, "sink", 1))  # type: ignore[arg-type]
    task.control = FakeControl()
    task.control.wake_fd, wake = os.pipe2(os.O_NONBLOCK)
    task.control.tell = lambda message: None
    os.write(wake, b"!")
    task.link = SimpleNamespace(
        epoch=0, close=lambda: None, receive=lambda take: None, wait=lambda timeout_s: pytest.fail("it sleeps")
    )
    yield task
    os.close(task.control.wake_fd)
    os.close(wake)


@pytest.mark.parametrize("why", ["", "task 2 of epoch 7 was replaced"])
@pytest.mark.parametrize(("refusal", "code"), OUTCOMES)
def test_refused_before_the_plan_came(task: Any, refusal: Any, code: int, why: str) -> None:
    task.control.deliver(Refused(refusal, why))
    assert lifecycle.run_task(task) == code


@pytest.mark.parametrize("why", ["", "task 2 of epoch 7 was replaced"])
@pytest.mark.parametrize(("refusal", "code"), OUTCOMES)
def test_refused_while_it_waits_for_another_attempt(task: Any, refusal: Any, code: int, why: str) -> None:
    task.control.deliver(Refused(refusal, why))
    assert lifecycle.await_rewind(task, plan_pb2.RegionRecord(attempt=3), ValueError("damaged")) == code


def test_stopped_in_order_it_is_not_refused(task: Any) -> None:
    task.control.deliver(control_pb2.StopTask())
    assert lifecycle.run_task(task) == exit_codes.OK


def test_orders_before_the_first_plan_are_for_the_process_before_this_one(task: Any) -> None:
    task.control.deliver(control_pb2.FinishTask())
    task.control.deliver(control_pb2.NewPlan(plan=plan_pb2.PhysicalPlan(version=4)))
    task.serve_inbox()
    assert not task.finish_requested and task.offered.version == 4 and task.plan is None


class Once(Spout):
    outputs = ["n"]

    def next_tuple(self) -> None: ...


class Sink(Bolt):
    def process(self, tup: Any) -> None: ...


def program() -> Program:
    made = TopologyBuilder("sim")
    spout = made.add_spout("spout", Once, par=1)
    made.add_bolt("sink", Sink, par=1, inputs={spout: Grouping.SHUFFLE})
    return Program(made, None)


def registering_again(patch: pytest.MonkeyPatch, words: str, error: HeronError | None) -> int | None:
    """The exit code of a task whose new stream manager refuses it; None when it goes on for a while."""
    with cluster_of(0, program()) as (cluster, _):
        cluster.until(control_pb2.LIFE_RUNNING)
        [task] = cluster.tasks("sink")
        ends: list[int] = []
        task.on_exit.append(lambda status: ends.append(os.waitstatus_to_exitcode(status)))
        asked: list[int] = []
        register = stmgr.control.Sessions.register

        def refuse(sessions: Any, identity: bytes, message: control_pb2.RegisterInstance, now: float) -> Any:
            if error is None or message.component != "sink" or message.epoch != task.program.name.epoch:
                return register(sessions, identity, message, now)
            asked.append(1)
            raise error

        reword(patch, words)
        patch.setattr(stmgr.control.Sessions, "register", refuse)
        for process in cluster.processes("stmgr"):
            process.kill()
        assert cluster.world.run(cluster.world.now + 20.0, lambda: bool(ends) or len(asked) == 3)
        if not ends:
            patch.setattr(stmgr.control.Sessions, "register", register)
        cluster.until(control_pb2.LIFE_RUNNING)
        return ends[0] if ends else None


@pytest.mark.parametrize("words", WORDINGS)
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ReplacedError("task 2", 1, 2), exit_codes.FENCED),
        (InvalidRpcError("sink_2 is not in the packing plan"), exit_codes.FAILURE),
        (RetryableRpcError("not now"), None),
        (RpcError("it failed"), None),
    ],
)
def test_a_new_stream_manager_that_refuses_a_task(
    monkeypatch: pytest.MonkeyPatch, error: HeronError, code: int | None, words: str
) -> None:
    assert registering_again(monkeypatch, words, error) == code
