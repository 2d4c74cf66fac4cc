"""The control thread of a task against a stream manager and an executor that the test plays."""

from __future__ import annotations

import os
import select
import signal
import tempfile
import threading
from collections.abc import Iterator
from typing import Any, TypeVar

import pytest
import zmq

from heronpy.net.rpc import body_of, parse, wrap
from heronpy.proto import control_pb2, plan_pb2
from instance.control import LATE_REPORT_S, ControlThread, Refused
from tests.support.waiting import wait_for

M = TypeVar("M")


class Peer:
    """A ROUTER (stream manager) or PULL (executor) that keeps what it gets."""

    def __init__(self, context: zmq.Context[Any], kind: int, endpoint: str) -> None:
        self.sock = context.socket(kind)
        self.sock.setsockopt(zmq.LINGER, 0)
        self.sock.bind(endpoint)
        self.got: list[tuple[bytes, control_pb2.Envelope]] = []

    def read(self) -> list[control_pb2.Envelope]:
        while self.sock.poll(0):
            *identity, data = self.sock.recv_multipart()
            envelope = parse(data)
            assert envelope is not None
            self.got.append((identity[0] if identity else b"", envelope))
        return [envelope for _, envelope in self.got]

    def when(self, field: str, count: int = 1) -> list[Any]:
        def look() -> list[Any]:
            found = [body_of(envelope)[1] for envelope in self.read() if body_of(envelope)[0] == field]
            return found if len(found) >= count else []

        return wait_for(look, 10, f"{count} {field}")

    def reply(self, body: Any, **envelope: Any) -> None:
        request = [e for e in self.read() if body_of(e)[0] == "register_instance"][-1]
        answer = (
            wrap(body, request.request_id, True)
            if body is not None
            else control_pb2.Envelope(request_id=request.request_id, reply=True, **envelope)
        )
        self.send(answer)

    def send(self, envelope: control_pb2.Envelope) -> None:
        self.sock.send_multipart([self.got[0][0], envelope.SerializeToString()])

    def close(self) -> None:
        self.sock.close(linger=0)


class World:
    def __init__(self, folder: str) -> None:
        self.context: zmq.Context[Any] = zmq.Context()
        self.endpoint = f"ipc://{folder}/stmgr"
        self.stmgr = Peer(self.context, zmq.ROUTER, self.endpoint)
        self.executor = Peer(self.context, zmq.PULL, f"ipc://{folder}/metrics")
        self.emitted = 0
        self.loop_age_s = 0.0
        self.broken = False
        self.waiting = 0
        self.moved = True
        self.plans: list[Any] = []
        self.thread = ControlThread(
            register=control_pb2.RegisterInstance(task_id=3, epoch=7, component="word"),
            stmgr_endpoint=self.endpoint,
            metrics_endpoint=f"ipc://{folder}/metrics",
            status=self.status,
            report=lambda: control_pb2.MetricsReport(process="word_3"),
            heartbeat_s=0.02,
            metrics_s=0.02,
            silence_max_s=0.2,
            on_plan=self.plans.append,
            quiet=lambda: not self.moved,
            quiet_max_s=2.0,
        )

    def status(self) -> control_pb2.TaskStatus:
        if self.broken:
            raise ValueError("a bug")
        return control_pb2.TaskStatus(task_id=3, epoch=7, emitted=self.emitted, loop_age_s=self.loop_age_s,
                                      in_queue_tuples=self.waiting)  # fmt: skip

    def message(self, kind: type[M]) -> M:
        """The next message for the loop, which must be of this kind."""
        wait_for(lambda: self.thread.inbox, 10, kind.__name__)
        # The message is there a moment before the byte that wakes the loop for it.
        assert select.select([self.thread.wake_fd], [], [], 10)[0], "the loop is woken"
        os.read(self.thread.wake_fd, 100)
        found = self.thread.inbox.popleft()
        assert isinstance(found, kind)
        return found

    def close(self) -> None:
        self.thread.stop(5.0)
        assert not self.thread.is_alive()
        self.stmgr.close()
        self.executor.close()
        self.context.term()
        for fd in (self.thread.wake_fd, self.thread._wake_out, self.thread._own_in, self.thread._own_out):
            os.close(fd)


@pytest.fixture
def world() -> Iterator[World]:
    with tempfile.TemporaryDirectory(prefix="hp-", dir="/tmp") as folder:
        world = World(folder)
        world.thread.start()
        yield world
        world.close()


def registered(world: World, link_epoch: int = 5) -> None:
    world.stmgr.when("register_instance")
    world.stmgr.reply(control_pb2.RegisterInstanceReply(link_epoch=link_epoch))
    assert world.message(control_pb2.RegisterInstanceReply).link_epoch == link_epoch


def test_it_registers_once_and_then_sends_heartbeats_and_metrics(world: World) -> None:
    registered(world)
    world.stmgr.when("instance_status", 3)
    world.executor.when("metrics_report", 3)
    assert len(world.stmgr.when("register_instance")) == 1


def test_a_registration_without_an_answer_is_repeated_and_only_the_last_answer_counts(world: World) -> None:
    world.stmgr.when("register_instance", 2)
    first = next(e for e in world.stmgr.read() if body_of(e)[0] == "register_instance")
    world.stmgr.send(wrap(control_pb2.RegisterInstanceReply(link_epoch=4), first.request_id, True))
    world.stmgr.reply(control_pb2.RegisterInstanceReply(link_epoch=5))
    assert world.message(control_pb2.RegisterInstanceReply).link_epoch == 5
    assert not world.thread.inbox


def test_a_loop_that_stays_in_user_code_is_interrupted(world: World) -> None:
    registered(world)
    world.loop_age_s = 0.5
    wait_for(lambda: world.thread.interrupted, 10, "an interruption")
    assert not world.thread.inbox, "there is no message in it"
    world.thread.drain_wake()
    assert not world.thread.interrupted


def test_plans_are_seen_at_once_whatever_the_loop_does(world: World) -> None:
    registered(world)
    world.stmgr.send(wrap(control_pb2.NewPlan(plan=plan_pb2.PhysicalPlan(version=9))))
    assert world.message(control_pb2.NewPlan).plan.version == 9
    assert [plan.version for plan in world.plans] == [9]


def test_a_refusal_and_orders_reach_the_loop(world: World) -> None:
    world.stmgr.when("register_instance")
    world.stmgr.reply(None, error="task 3 epoch 7 is stale", refusal=control_pb2.REFUSAL_FENCED)
    assert world.message(Refused) == Refused(control_pb2.REFUSAL_FENCED, "task 3 epoch 7 is stale")
    world.stmgr.send(wrap(control_pb2.StopTask(task_id=3, reason="enough")))
    assert world.message(control_pb2.StopTask).reason == "enough"
    world.stmgr.send(wrap(control_pb2.FinishTask(task_id=3)))
    world.message(control_pb2.FinishTask)


def test_it_registers_with_a_new_stream_manager(world: World) -> None:
    registered(world)
    world.stmgr.close()
    world.stmgr = Peer(world.context, zmq.ROUTER, world.endpoint)
    registered(world, link_epoch=6)
    # And with one that says it does not know this task.
    count = len(world.stmgr.when("register_instance"))
    world.stmgr.send(wrap(control_pb2.RegisterAgain()))
    world.stmgr.when("register_instance", count + 1)


def test_calm_tasks_speak_rarely_and_any_news_ends_the_calm(world: World) -> None:
    registered(world)
    wait_for(lambda: world.stmgr.read() and world.thread.calm, 10, "calm")
    world.emitted = 1
    world.thread.notify()
    wait_for(lambda: world.stmgr.when("instance_status")[-1].status.emitted == 1, 10, "the news")


def pauses(world: World) -> list[float]:
    """Those that the reports of metrics so far have announced."""
    return [body_of(envelope)[1].pause_s for envelope in world.executor.read()]


def test_metrics_that_do_not_move_are_rarer_than_heartbeats_and_say_so(world: World) -> None:
    registered(world)
    wait_for(lambda: world.stmgr.read() and world.thread.calm, 10, "calm")
    world.executor.when("metrics_report", len(world.executor.read()) + 3)
    assert not any(pauses(world)), "they move"
    world.moved = False
    wait_for(lambda: pauses(world)[-1], 10, "an announced pause")
    assert 3 * 0.2 <= pauses(world)[-1] <= 3 * 0.2 + LATE_REPORT_S
    # What begins is reported at once, so that its rate is measured from there.
    reports = len(pauses(world))
    world.emitted += 1
    world.thread.notify()
    world.executor.when("metrics_report", reports + 1)
    assert not pauses(world)[reports]


def test_metrics_are_sent_when_asked_for(world: World) -> None:
    """The last figures of a spout that has ended wait for no interval."""
    world.thread._metrics_s = 1_000.0
    registered(world)
    world.stmgr.when("instance_status", 5)  # no report is due by now
    reports = len(world.executor.when("metrics_report"))
    world.thread.notify(metrics=True)
    world.executor.when("metrics_report", reports + 1)


@pytest.mark.parametrize("what", ["in user code", "with tuples that wait"])
def test_a_task_that_does_not_rest_reports_as_soon_as_ever(world: World, what: str) -> None:
    """It may hang: nothing moves then, either."""
    registered(world)
    world.moved = False
    wait_for(lambda: world.stmgr.read() and pauses(world)[-1:] > [0.0], 10, "an announced pause")
    world.loop_age_s, world.waiting = (5.0, 0) if what == "in user code" else (0.0, 1)
    wait_for(lambda: not pauses(world)[-1], 10, "the end of the pause")
    reports, heartbeats = len(pauses(world)), len(world.stmgr.when("instance_status"))
    world.stmgr.when("instance_status", heartbeats + 5)
    assert not any(pauses(world)[reports:])


def test_the_last_status_and_metrics_are_sent_at_the_end(world: World) -> None:
    registered(world)
    world.emitted = 99
    world.thread.publish(control_pb2.ExceptionReport(message="the end"))
    world.thread.stop(5.0)
    wait_for(lambda: world.stmgr.when("instance_status")[-1].status.emitted == 99, 10, "the last status")
    assert world.executor.when("exception_report")[0].message == "the end"


def test_a_signal_that_interrupts_no_sleep_wakes_the_loop(world: World) -> None:
    """As one that comes just before the sleep, which then took until its end: `heron kill` waited for it."""
    stop = control_pb2.StopTask(reason="SIGUSR2")
    handler = signal.signal(signal.SIGUSR2, lambda *_: world.thread.deliver(stop))
    wakeup = signal.set_wakeup_fd(-1)
    # Another thread has to take it.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    try:
        world.thread.wake_at_signals()
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR2))
        timer.start()
        ready, _, _ = select.select([world.thread.wake_fd], [], [], 10.0)
        timer.join()
        assert ready and list(world.thread.inbox) == [stop]
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGUSR2, handler)


def test_a_bug_in_it_ends_the_task(world: World) -> None:
    registered(world)
    world.broken = True
    assert "control thread failed" in world.message(control_pb2.StopTask).reason
    world.thread.join(5.0)
