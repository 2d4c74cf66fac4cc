"""The loop of an asynchronous bolt: bound, order of reports, what a stop leaves to the successor."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import instance.task
from heronpy.common.setting_types import InstanceSettings
from heronpy.proto import control_pb2, plan_pb2, topology_pb2
from heronpy.wire import codec
from heronpy.wire.frames import DATA, FAIL, LEAVE, LINK_HEADER, Frame, message_of
from instance.async_loop import AsyncBoltTask
from instance.link import DataLink
from instance.messages import Message
from instance.task import UserError
from tests.instance.test_link import FakeSocket
from tests.plan.builders import TopologyMessage
from tests.support.control import FakeControl
from tests.support.plane import FakeUser, UserObject
from tests.support.waiting import eventually

SETTINGS = replace(InstanceSettings(), poison_tries=0, async_concurrency=4, force_exit_s=0.4)


class Calls(UserObject):
    """Each call waits for its gate; a gate may hold an exception."""

    is_async = True

    def __init__(self, delegate: Any) -> None:
        super().__init__(delegate)
        self.gates: dict[int, asyncio.Future[None]] = {}
        self.open = False
        self.started: list[int] = []
        self.now = self.most = self.ticks = 0

    def gate(self, number: int) -> asyncio.Future[None]:
        return self.gates.setdefault(number, asyncio.get_running_loop().create_future())

    async def process(self, tup: Any) -> None:  # type: ignore[override]
        number = tup.values[0]
        self.started.append(number)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            if not self.open:
                await self.gate(number)
            else:
                await asyncio.sleep(0)
            self.ack(tup)
        finally:
            self.now -= 1

    async def process_tick(self, tup: Any) -> None:  # type: ignore[override]
        self.ticks += 1
        await self.gate(-1)


class Harness:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, reliability: str = "ATMOST_ONCE") -> None:
        monkeypatch.setattr(instance.task, "UserCode", FakeUser)
        message = TopologyMessage().spout("src", outputs={"default": ["n"]})
        message.bolt("calls", [("src", "default", topology_pb2.SHUFFLE, [])], outputs={})
        plan = plan_pb2.PhysicalPlan(version=1, topology=message.message)
        plan.instances.add(task_id=1, component="src", container=1)
        plan.instances.add(task_id=2, component="calls", container=1)
        launch = SimpleNamespace(make={"calls": Calls}, reliability=reliability, config={}, custom={})
        self.task = task = AsyncBoltTask(launch, SETTINGS, 1.0, 1, 2, 1)
        task.topology, task.component, task.instance_id = message.message, "calls", "calls-2"
        task._frame_max_bytes = 1 << 26
        self.control = task.control = FakeControl()  # type: ignore[assignment]
        self.control.wake_fd, self.wake = os.pipe2(os.O_NONBLOCK)  # type: ignore[misc]
        task.link = DataLink(2, b"t:2:1", "ipc://x", 1 << 26, self.control.wake_fd)
        self.sockets: list[FakeSocket] = []
        task.link._context = SimpleNamespace(socket=self.socket)  # type: ignore[assignment]
        task.registered(control_pb2.RegisterInstanceReply(link_epoch=9))
        task.build(plan)
        task.bind_emit()
        self.calls: Calls = task.user.object
        self.seq = 0

    def socket(self, kind: int) -> FakeSocket:
        self.sockets.append(FakeSocket())
        return self.sockets[-1]

    def come(self, *numbers: int, tracked: bool = False, pad: int = 0) -> None:
        self.seq += 1
        frame = Frame(kind=DATA, source_task=1, dest_task=2, count=len(numbers), payload=codec.encode(list(numbers)))
        if tracked:
            frame.tracked, frame.root_task, frame.root_base, frame.edge = True, 1, 100 + numbers[0], 5
        if pad:
            frame.reason = "x" * pad
        header = LINK_HEADER.pack(self.task.link.epoch, self.seq)
        self.sockets[-1].inbox.append(message_of(header, frame.SerializeToString()))
        os.write(self.sockets[-1]._poke, b"!")

    def order(self, message: Message) -> None:
        self.control.deliver(message)
        os.write(self.wake, b"!")

    def run(self, script: Callable[[], Awaitable[None]]) -> None:
        """The bolt's loop and the script side by side, then the orderly end."""

        async def both() -> None:
            main = asyncio.ensure_future(self.task._main())
            try:
                await script()
                self.order(control_pb2.StopTask(reason="test"))
            finally:
                await asyncio.wait_for(main, 10)

        self.task.state = control_pb2.TASK_RUNNING
        self.task._tick_s = getattr(self, "tick_s", None)
        asyncio.run(both())
        self.task.leave()

    def farewell(self) -> Frame:
        return next(frame for _, _, frame in self.sockets[-1].sent if frame.kind == LEAVE)

    def close(self) -> None:
        for sock in self.sockets:
            sock.close()
        os.close(self.wake)
        os.close(self.control.wake_fd)


@pytest.fixture
def harnesses(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Harness]]:
    made: list[Harness] = []

    def make(**options: Any) -> Harness:
        made.append(Harness(monkeypatch, **options))
        return made[-1]

    yield make
    for harness in made:
        harness.close()


def test_the_bound_holds_and_all_is_done(harnesses: Callable[..., Harness]) -> None:
    h = harnesses()

    async def script() -> None:
        h.come(1, 2, 3)
        h.come(4, 5, 6)
        await eventually(lambda: len(h.calls.started) == 4)
        assert h.calls.most == 4
        h.calls.open = True
        for number in range(1, 7):
            if not h.calls.gate(number).done():
                h.calls.gate(number).set_result(None)
        await eventually(lambda: h.task.link.consumed_frames == 2)

    h.run(script)
    assert sorted(h.calls.started) == [1, 2, 3, 4, 5, 6] and h.calls.most == 4
    assert h.task.progress.in_tuples == 0
    assert (h.farewell().consumed_frames, h.farewell().consumed_tuples, h.farewell().skip) == (2, 6, 0)


def test_frames_are_reported_in_order(harnesses: Callable[..., Harness]) -> None:
    h = harnesses()

    async def script() -> None:
        h.come(1)
        h.come(2)
        h.come(3)
        await eventually(lambda: len(h.calls.started) == 3)
        for number in (3, 2):
            h.calls.gate(number).set_result(None)
        await eventually(lambda: h.calls.now == 1)
        assert h.task.link.consumed_frames == 0
        h.calls.gate(1).set_result(None)
        await eventually(lambda: h.task.link.consumed_frames == 3)

    h.run(script)


def test_one_slow_tuple_does_not_hold_up_the_credit_for_ever(harnesses: Callable[..., Harness]) -> None:
    h = harnesses()

    async def script() -> None:
        h.come(1)
        await eventually(lambda: h.calls.started == [1])
        h.calls.open = True
        for number in range(2, 12):
            h.come(number, pad=h.task.link.window_bytes // 8)
        await eventually(lambda: len(h.calls.started) == 11)
        await eventually(lambda: h.task.link.consumed_frames >= 4)
        h.calls.gate(1).set_result(None)
        await eventually(lambda: h.task.link.consumed_frames == 11)

    h.run(script)
    assert h.task.link.consumed_tuples == 11 and h.task.progress.in_tuples == 0


def test_a_stop_lets_what_runs_finish_and_leaves_the_rest_to_the_successor(harnesses: Callable[..., Harness]) -> None:
    h = harnesses()

    async def script() -> None:
        h.come(1, 2)
        h.come(3, 4, 5)
        h.come(6)
        await eventually(lambda: len(h.calls.started) == 4)
        loop = asyncio.get_running_loop()
        for number in range(1, 5):
            loop.call_later(0.05, h.calls.gate(number).set_result, None)

    h.run(script)
    assert h.calls.started == [1, 2, 3, 4]
    # The first frame is consumed, and two tuples of the second.
    assert (h.farewell().consumed_frames, h.farewell().skip) == (1, 2)


def test_a_stop_cancels_what_is_stuck_and_fails_it(harnesses: Callable[..., Harness]) -> None:
    h = harnesses(reliability="ATLEAST_ONCE")

    async def script() -> None:
        h.come(1, 2, tracked=True)
        h.come(3, tracked=True)
        await eventually(lambda: len(h.calls.started) == 3)
        h.calls.gate(2).set_result(None)
        await eventually(lambda: h.calls.now == 2)

    h.run(script)
    fails = [frame for _, _, frame in h.sockets[-1].sent if frame.kind == FAIL]
    assert sorted(root for frame in fails for root in memoryview(frame.roots).cast("Q")) == [101, 103]
    assert (h.farewell().consumed_frames, h.farewell().skip) == (2, 0)
    assert h.task.acks.ack_count == 1 and h.task.acks.fail_count == 2


def test_an_exception_fails_its_tuple_and_lets_the_others_finish(harnesses: Callable[..., Harness]) -> None:
    h = harnesses(reliability="ATLEAST_ONCE")

    async def script() -> None:
        h.come(1, 2, tracked=True)
        await eventually(lambda: len(h.calls.started) == 2)
        h.calls.gate(1).set_exception(ValueError("bad call"))
        asyncio.get_running_loop().call_later(0.05, h.calls.gate(2).set_result, None)

    h.run(script)
    assert isinstance(h.task._failure, ValueError)
    assert (h.task.acks.ack_count, h.task.acks.fail_count) == (1, 1)
    assert h.farewell().consumed_frames == 1


def test_ticks_do_not_pile_up(harnesses: Callable[..., Harness]) -> None:
    h = harnesses()
    h.tick_s = 0.01  # type: ignore[attr-defined]

    async def script() -> None:
        await eventually(lambda: h.calls.ticks == 1)
        h.come(1)
        await eventually(lambda: h.calls.started == [1])
        await asyncio.sleep(0.05)
        assert h.calls.ticks == 1
        h.calls.gates.pop(-1).set_result(None)
        await eventually(lambda: h.calls.ticks == 2)
        for gate in h.calls.gates.values():
            gate.set_result(None)

    h.run(script)


def test_a_new_stream_manager_in_the_middle(harnesses: Callable[..., Harness]) -> None:
    """Tuples of the old link are finished and not counted on the new one."""
    h = harnesses()

    async def script() -> None:
        h.come(1, 2)
        h.come(3)
        await eventually(lambda: len(h.calls.started) == 3)
        h.order(control_pb2.RegisterInstanceReply(link_epoch=20))
        await eventually(lambda: h.task.link.epoch == 20)
        h.seq = 0
        h.come(4)
        await eventually(lambda: len(h.calls.started) == 4)
        for number in (4, 1, 2, 3):
            h.calls.gate(number).set_result(None)
        await eventually(lambda: h.task.link.consumed_frames == 1)

    h.run(script)
    assert h.task.link.consumed_tuples == 1 and h.task.progress.in_tuples == 0


def test_user_errors_reach_the_caller(harnesses: Callable[..., Harness]) -> None:
    h = harnesses()

    async def fail() -> None:
        h.task._failure = ValueError("bad call")

    h.task._main = fail  # type: ignore[method-assign]
    with pytest.raises(UserError) as caught:
        h.task.run_loop()
    assert isinstance(caught.value.__cause__, ValueError)
    h.task.leave()
