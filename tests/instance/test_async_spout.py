"""The loop of an asynchronous spout: when emits wait, what a cut and a stop find, how errors end the task."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import zmq

import instance.task
from heronpy.api.spout.async_spout import AsyncSpout
from heronpy.common.errors import TopologyError
from heronpy.common.setting_types import InstanceSettings
from heronpy.proto import control_pb2, plan_pb2, topology_pb2
from heronpy.wire.frames import CLAMP, COMPLETE, CREDIT, DATA, LINK_HEADER, Frame, message_of, pack32, pack64
from instance.async_spout import IDLE_WAIT_S, AsyncSpoutTask
from instance.link import DataLink, drain
from instance.messages import Message
from instance.task import UserError
from tests.instance.test_link import FakeSocket
from tests.plan.builders import TopologyMessage
from tests.support.control import FakeControl
from tests.support.plane import FakeUser
from tests.support.waiting import eventually

SETTINGS = replace(InstanceSettings(), force_exit_s=0.4, async_concurrency=4, linger_max_us=0.0)


class Source(AsyncSpout):
    """Its `run` is the test's script."""

    def __init__(self, delegate: Any) -> None:
        delegate.logger = None
        super().__init__(delegate)
        self.told: list[tuple[str, Any]] = []

    def ack(self, tup_id: Any) -> Awaitable[None] | None:
        self.told.append(("ack", tup_id))
        return None

    def fail(self, tup_id: Any) -> Awaitable[None] | None:
        self.told.append(("fail", tup_id))
        return None


class SlowAcks(Source):
    """Each ack waits for a gate."""

    def __init__(self, delegate: Any) -> None:
        super().__init__(delegate)
        self.gate = asyncio.Event()
        self.begun = 0

    async def ack(self, tup_id: Any) -> None:
        self.begun += 1
        await self.gate.wait()
        self.told.append(("ack", tup_id))


class EdgeSocket(FakeSocket):
    """Its descriptor is quiet once it was asked for events, as ZeroMQ's is."""

    def getsockopt(self, option: int) -> int:
        if option == zmq.EVENTS and not self.inbox:
            drain(self.events)
        return super().getsockopt(option)


class Harness:
    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, kind: type = Source, reliability: str = "ATMOST_ONCE", **config: Any
    ) -> None:
        monkeypatch.setattr(instance.task, "UserCode", FakeUser)
        message = TopologyMessage().spout("src", outputs={"default": ["n"]})
        message.bolt("sink", [("src", "default", topology_pb2.SHUFFLE, [])], outputs={})
        plan = plan_pb2.PhysicalPlan(version=1, topology=message.message)
        plan.instances.add(task_id=1, component="src", container=1)
        plan.instances.add(task_id=2, component="sink", container=1)
        launch = SimpleNamespace(make={"src": kind}, reliability=reliability, config=config, custom={})
        self.task = task = AsyncSpoutTask(launch, SETTINGS, 1.0, 1, 1, 1)
        task.topology, task.component, task.instance_id = message.message, "src", "src-1"
        task._frame_max_bytes = 1 << 26
        self.control = task.control = FakeControl()  # type: ignore[assignment]
        self.control.wake_fd, self.wake = os.pipe2(os.O_NONBLOCK)  # type: ignore[misc]
        task.link = DataLink(1, b"t:1:1", "ipc://x", 1 << 26, self.control.wake_fd)
        self.sockets: list[FakeSocket] = []
        task.link._context = SimpleNamespace(socket=self.socket)  # type: ignore[assignment]
        task.registered(control_pb2.RegisterInstanceReply(link_epoch=9))
        task.build(plan)
        task.bind_emit()
        self.source: Source = task.user.object
        self.emit = self.source.emit
        self.seq = 0
        self.come(kind=CREDIT, granted_bytes=1 << 30)

    def socket(self, kind: int) -> FakeSocket:
        self.sockets.append(EdgeSocket())
        os.set_blocking(self.sockets[-1].events, False)
        return self.sockets[-1]

    def come(self, **frame: Any) -> None:
        self.seq += 1
        header = LINK_HEADER.pack(self.task.link.epoch, self.seq)
        self.sockets[-1].inbox.append(message_of(header, Frame(**frame).SerializeToString()))
        os.write(self.sockets[-1]._poke, b"!")

    def order(self, message: Message) -> None:
        self.control.deliver(message)
        os.write(self.wake, b"!")

    def stop(self) -> None:
        self.order(control_pb2.StopTask(reason="test"))

    @property
    def frames(self) -> list[Frame]:
        return [frame for _, _, frame in self.sockets[-1].sent if frame.kind == DATA]

    @property
    def sent(self) -> int:
        return sum(frame.count for frame in self.frames)

    def run(self, script: Callable[[], Awaitable[None]], stops: bool = True) -> None:
        """The task's loop with the script as its `run`, then the orderly end."""

        async def run() -> None:
            await script()
            if stops:
                self.stop()

        self.source.run = run  # type: ignore[method-assign]
        try:
            self.task.run_loop()
        except UserError as error:
            assert error.__cause__ is not None
            raise error.__cause__ from None
        finally:
            self.task.leave()

    def close(self) -> None:
        for sock in self.sockets:
            sock.close()
        os.close(self.wake)
        os.close(self.control.wake_fd)


@pytest.fixture
def harnesses(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Harness]]:
    made: list[Harness] = []

    def make(*args: Any, **options: Any) -> Harness:
        made.append(Harness(monkeypatch, *args, **options))
        return made[-1]

    yield make
    for harness in made:
        harness.close()


async def others() -> None:
    """Let everything happen that can without an event from outside."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_tuples_leave_in_order_and_a_loop_of_emits_gives_way(harnesses: Callable[..., Harness]) -> None:
    h = harnesses()

    async def script() -> None:
        for n in range(3000):
            await h.emit([n], tup_id=n)
        assert len(h.source.told) > 1000, "acks were delivered while it emitted"
        await eventually(lambda: len(h.source.told) == 3000)

    h.run(script)
    assert h.sent == 3000 and h.source.told == [("ack", n) for n in range(3000)]


def test_an_emit_waits_for_a_clamp_a_pause_and_credit(harnesses: Callable[..., Harness]) -> None:
    h = harnesses()

    async def closes_and_opens(close: Callable[[], Any], reopen: Callable[[], Any]) -> None:
        before = h.task.emitter.emitted()
        close()
        # The turn that hears of it takes away the permits that were free.
        await eventually(lambda: h.task._permits.free == 0)
        waiting = asyncio.ensure_future(h.emit([1]))
        await others()
        assert not waiting.done() and h.task.emitter.emitted() == before
        reopen()
        await waiting
        assert h.task.emitter.emitted() == before + 1

    async def script() -> None:
        await h.emit([0])
        await closes_and_opens(lambda: h.come(kind=CLAMP, on=True), lambda: h.come(kind=CLAMP, on=False))

        def change(version: int, state: topology_pb2.TopologyState) -> None:
            new = plan_pb2.PhysicalPlan()
            new.CopyFrom(h.task.plan)
            new.version, new.topology.state = version, state
            h.order(control_pb2.NewPlan(plan=new))

        await closes_and_opens(lambda: change(2, topology_pb2.PAUSED), lambda: change(3, topology_pb2.RUNNING))

    h.run(script)
    assert h.sent == 3


def test_without_credit_no_more_than_a_turn_is_emitted(harnesses: Callable[..., Harness]) -> None:
    h = harnesses()

    async def script() -> None:
        await h.emit([0])
        await eventually(lambda: h.sent == 1)
        h.order(control_pb2.RegisterInstanceReply(link_epoch=10))
        await eventually(lambda: h.task.link.epoch == 10 and h.task._permits.free == 0)
        h.seq = 0
        emits = [asyncio.ensure_future(h.emit([n])) for n in range(100)]
        await others()
        assert not any(emit.done() for emit in emits)
        h.come(kind=CREDIT, granted_bytes=1)
        await eventually(lambda: any(emit.done() for emit in emits))
        await eventually(lambda: h.task.link.blocked())
        await others()
        assert not all(emit.done() for emit in emits)
        h.come(kind=CREDIT, granted_bytes=1 << 30)
        await asyncio.gather(*emits)

    h.run(script)
    assert h.sent == 100 and not h.task.link.outbox


def complete(h: Harness, first: int, length: int, failed: bool = False) -> None:
    h.come(kind=COMPLETE, run_first=pack64([first]), run_length=pack32([length]), failed=failed)


def test_max_spout_pending_holds(harnesses: Callable[..., Harness]) -> None:
    h = harnesses(reliability="ATLEAST_ONCE", **{"topology.max.spout.pending": 5})

    async def script() -> None:
        emits = [asyncio.ensure_future(h.emit([n], tup_id=n)) for n in range(12)]
        await eventually(lambda: h.task.pending.total == 5)
        await others()
        assert [emit.done() for emit in emits] == [True] * 5 + [False] * 7, "first come, first served"
        base = h.frames[0].root_base
        complete(h, base, 2)
        complete(h, base + 2, 1, failed=True)
        await eventually(lambda: sum(emit.done() for emit in emits) == 8)
        await others()
        assert h.task.pending.total == 5 and sum(emit.done() for emit in emits) == 8
        assert h.source.told == [("ack", 0), ("ack", 1), ("fail", 2)]
        for emit in emits:
            emit.cancel()

    h.run(script)


def test_a_coroutine_of_ack_counts_as_pending(harnesses: Callable[..., Harness]) -> None:
    h = harnesses(SlowAcks, reliability="ATLEAST_ONCE", **{"topology.max.spout.pending": 2})

    async def script() -> None:
        await h.emit([0], tup_id=0)
        await h.emit([1], tup_id=1)
        await eventually(lambda: h.frames)
        await eventually(lambda: h.task.pending.total == 2)
        base = h.frames[0].root_base
        complete(h, base, 2)
        await eventually(lambda: h.source.begun == 2)  # type: ignore[attr-defined]
        waiting = asyncio.ensure_future(h.emit([2], tup_id=2))
        await others()
        assert not waiting.done()
        h.source.gate.set()  # type: ignore[attr-defined]
        await waiting

    h.run(script)


def test_many_coroutines_of_ack_hold_up_emits(harnesses: Callable[..., Harness]) -> None:
    h = harnesses(SlowAcks)

    async def script() -> None:
        emits = [asyncio.ensure_future(h.emit([n], tup_id=n)) for n in range(60)]
        await eventually(lambda: h.source.begun >= SETTINGS.async_concurrency)  # type: ignore[attr-defined]
        await others()
        assert not all(emit.done() for emit in emits)
        h.source.gate.set()  # type: ignore[attr-defined]
        await asyncio.gather(*emits)
        await eventually(lambda: len(h.source.told) == 60)

    h.run(script)


def test_fails_that_emit_again_do_not_wait_for_each_other(harnesses: Callable[..., Harness]) -> None:
    class Replaying(Source):
        async def fail(self, tup_id: Any) -> None:  # type: ignore[override]
            async with asyncio.TaskGroup() as group:
                group.create_task(self.emit([tup_id], tup_id=tup_id))

    h = harnesses(Replaying, reliability="ATLEAST_ONCE", **{"topology.max.spout.pending": 3})

    async def script() -> None:
        for n in range(3):
            await h.emit([n], tup_id=n)
        await eventually(lambda: h.task.pending.total == 3)
        for frame in list(h.frames):
            complete(h, frame.root_base, frame.count, failed=True)
        await eventually(lambda: h.sent == 6 and h.task.pending.total == 3)

    h.run(script)


def test_a_cancelled_emit_has_emitted_nothing(harnesses: Callable[..., Harness]) -> None:
    h = harnesses(reliability="ATLEAST_ONCE", **{"topology.max.spout.pending": 1})

    async def script() -> None:
        await h.emit([0], tup_id=0)
        await eventually(lambda: h.task.pending.total == 1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await h.emit([1], tup_id=1)
        complete(h, h.frames[0].root_base, 1)
        await h.emit([2], tup_id=2)
        await eventually(lambda: h.sent == 2)
        assert h.task._permits.waiting == 0

    h.run(script)


def test_it_rests_until_something_happens(harnesses: Callable[..., Harness]) -> None:
    h = harnesses()

    async def script() -> None:
        await h.emit([0])
        await eventually(lambda: h.sent == 1)
        h.task._rest_s()
        assert h.task._rest_s() == IDLE_WAIT_S, "nothing is polled"

    h.run(script)


def test_the_end_of_run_ends_the_input_when_nothing_is_pending(harnesses: Callable[..., Harness]) -> None:
    h = harnesses(reliability="ATLEAST_ONCE")
    seen: list[bool] = []

    async def script() -> None:
        await h.emit([0], tup_id=0)
        loop = asyncio.get_running_loop()

        def after() -> None:
            seen.append(h.task.exhausted)
            if h.task.exhausted:
                h.stop()
            elif h.task.pending.total:
                complete(h, h.frames[0].root_base, 1)
            if not h.task.stopping:
                loop.call_later(0.01, after)

        loop.call_later(0.02, after)

    h.run(script, stops=False)
    assert seen[0] is False and seen[-1] is True
    assert h.task.state == control_pb2.TASK_EXHAUSTED


@pytest.mark.parametrize("error", [ValueError("bad source"), SystemExit(3)])
def test_what_run_raises_ends_the_task(harnesses: Callable[..., Harness], error: BaseException) -> None:
    h = harnesses()

    async def script() -> None:
        await h.emit([0])
        raise error

    with pytest.raises(BaseException) as caught:
        h.run(script)
    assert caught.value is error
    assert h.sent == 1, "what was emitted leaves"


@pytest.mark.parametrize("method", ["ack", "activate"])
def test_what_another_coroutine_raises_ends_the_task(harnesses: Callable[..., Harness], method: str) -> None:
    async def raising(*args: Any) -> None:
        raise ValueError("bad " + method)

    h = harnesses(type("Raising", (Source,), {method: lambda self, *args: raising()}))

    async def script() -> None:
        if method == "activate":
            h.task.active = not h.task.active
            await others()
            h.task._activated, h.task.active = False, True
        await h.emit([0], tup_id=0)
        await asyncio.Event().wait()

    with pytest.raises(ValueError, match="bad " + method):
        h.run(script)


def test_a_run_that_cancels_itself_is_an_error(harnesses: Callable[..., Harness]) -> None:
    h = harnesses()

    async def script() -> None:
        raise asyncio.CancelledError

    with pytest.raises(TopologyError, match="src was cancelled"):
        h.run(script)


def test_a_value_that_cannot_be_sent_is_refused_where_it_is_emitted(harnesses: Callable[..., Harness]) -> None:
    h = harnesses()

    async def script() -> None:
        with pytest.raises(TopologyError, match="n"):
            await h.emit([1, 2])
        await h.emit([1])

    h.run(script)
    assert h.sent == 1


def test_a_stop_lets_acks_end_and_run_clean_up(harnesses: Callable[..., Harness]) -> None:
    class Ending(Source):
        async def ack(self, tup_id: Any) -> None:  # type: ignore[override]
            await asyncio.sleep(0.02)
            self.told.append(("ack", tup_id))

    h = harnesses(Ending)

    async def script() -> None:
        await h.emit([0], tup_id=0)
        await others()
        h.stop()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            h.source.told.append(("run", "ended"))

    h.run(script)
    assert h.source.told == [("ack", 0), ("run", "ended")]


def test_a_coroutine_that_ignores_its_end_does_not_keep_the_task(harnesses: Callable[..., Harness]) -> None:
    h = harnesses()

    async def script() -> None:
        h.stop()
        while not h.task.leaving:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue

    h.run(script)
    assert h.task.stopping


def test_a_wait_is_rest_and_a_blocked_loop_is_not(harnesses: Callable[..., Harness]) -> None:
    h = harnesses()
    resting: list[bool] = []
    select = h.task.falls_asleep

    def falls_asleep() -> None:
        select()
        resting.append(h.task.progress.resting)

    h.task.falls_asleep = falls_asleep  # type: ignore[method-assign]

    async def script() -> None:
        assert not h.task.progress.resting
        await asyncio.sleep(0.01)
        assert not h.task.progress.resting

    h.run(script)
    assert resting and all(resting)
