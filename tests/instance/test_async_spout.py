"""The loop of an asynchronous spout: when emits wait, what a cut and a stop find, how errors end the task."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from heronpy.api import api_constants
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.async_spout import AsyncSpout
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.common.errors import TopologyError
from heronpy.common.setting_types import InstanceSettings
from heronpy.proto import control_pb2, plan_pb2, topology_pb2
from heronpy.task import emitter
from heronpy.wire.frames import CLAMP, COMPLETE, CREDIT, DATA, Frame, pack32, pack64
from instance import linger
from instance.async_spout import AsyncSpoutTask
from instance.awake import Sleeps
from instance.linger import BURST, PATIENCE
from instance.spout_loop import BLOCKED_WAIT_S
from instance.time_use import BLOCKED, IDLE, Doing, TimeUse
from instance.tracing import LatencyMarkers
from tests.instance.harness import TaskHarness, closing
from tests.support.waiting import eventually

SETTINGS = replace(InstanceSettings(), force_exit_s=0.4, async_concurrency=4, linger_max_us=0.0)


class Source(AsyncSpout):
    """Its `run` is the test's script."""

    outputs = ["n"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.told: list[tuple[str, Any]] = []

    def ack(self, tup_id: Any) -> Awaitable[None] | None:
        self.told.append(("ack", tup_id))
        return None

    def fail(self, tup_id: Any) -> Awaitable[None] | None:
        self.told.append(("fail", tup_id))
        return None


class SlowAcks(Source):
    """Each ack waits for a gate."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        super().initialize(config, context)
        self.gate = asyncio.Event()
        self.begun = 0

    async def ack(self, tup_id: Any) -> None:
        self.begun += 1
        await self.gate.wait()
        self.told.append(("ack", tup_id))


class Sink(Bolt):
    def process(self, tup: Any) -> None: ...


class Harness(TaskHarness):
    """A task of an asynchronous spout."""

    def __init__(
        self,
        kind: type = Source,
        reliability: str = "ATMOST_ONCE",
        settings: InstanceSettings = SETTINGS,
        **config: Any,
    ) -> None:
        made = TopologyBuilder("test")
        source = made.add_spout("src", kind, par=1)
        made.add_bolt("sink", Sink, par=1, inputs={source: Grouping.SHUFFLE})
        made.set_config({api_constants.TOPOLOGY_RELIABILITY_MODE: reliability, **config})
        super().__init__(AsyncSpoutTask, made, "src", settings)
        self.emit = self.user.emit
        self.come(Frame(kind=CREDIT, granted_bytes=1 << 30))

    @property
    def frames(self) -> list[Frame]:
        return self.sent(DATA)

    @property
    def count(self) -> int:
        """Tuples sent."""
        return sum(frame.count for frame in self.frames)

    def activate(self, on: bool) -> None:
        """A plan in which the topology runs, or is paused."""
        new = plan_pb2.PhysicalPlan()
        new.CopyFrom(self.task.plan)
        new.version += 1
        new.topology.state = topology_pb2.RUNNING if on else topology_pb2.PAUSED
        self.order(control_pb2.NewPlan(plan=new))

    def run(self, script: Callable[[], Awaitable[None]], stops: bool = True) -> None:
        """The task's loop with the script as its `run`, then the orderly end."""

        async def run() -> None:
            await script()
            if stops:
                self.stop()

        self.user.run = run
        self.run_task()


@pytest.fixture
def harnesses() -> Iterator[Callable[..., Harness]]:
    with closing(Harness) as make:
        yield make


async def others() -> None:
    """Let everything happen that can without an event from outside."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_tuples_leave_in_order_and_a_loop_of_emits_gives_way(harnesses: Callable[..., Harness]) -> None:
    h = harnesses()

    async def script() -> None:
        for n in range(3000):
            await h.emit([n], tup_id=n)
        assert len(h.user.told) > 1000, "acks were delivered while it emitted"
        await eventually(lambda: len(h.user.told) == 3000)

    h.run(script)
    assert h.count == 3000 and h.user.told == [("ack", n) for n in range(3000)]


def test_an_emit_waits_for_a_clamp_a_pause_and_credit(harnesses: Callable[..., Harness]) -> None:
    h = harnesses()

    async def opens_again(closed: Callable[[], bool], reopen: Callable[[], Any]) -> None:
        """The turn that hears of it takes away the permits that were free."""
        await eventually(closed)
        before = h.task.emitter.emitted()
        waiting = asyncio.ensure_future(h.emit([1]))
        await others()
        assert not waiting.done() and h.task.emitter.emitted() == before
        reopen()
        await waiting
        assert h.task.emitter.emitted() == before + 1

    async def script() -> None:
        await h.emit([0])
        h.come(Frame(kind=CLAMP, on=True))
        await opens_again(lambda: h.task.clamped, lambda: h.come(Frame(kind=CLAMP, on=False)))
        h.activate(False)
        await opens_again(lambda: not h.task.active, lambda: h.activate(True))

    h.run(script)
    assert h.count == 3


def test_without_credit_no_more_than_a_turn_is_emitted(harnesses: Callable[..., Harness]) -> None:
    h = harnesses()

    async def script() -> None:
        await h.emit([0])
        await eventually(lambda: h.count == 1)
        h.order(control_pb2.RegisterInstanceReply(link_epoch=10))
        await eventually(lambda: h.task.link.epoch == 10)
        h.seq = 0
        emits = [asyncio.ensure_future(h.emit([n])) for n in range(100)]
        await others()
        assert not any(emit.done() for emit in emits)
        h.come(Frame(kind=CREDIT, granted_bytes=1))
        await eventually(lambda: any(emit.done() for emit in emits))
        await eventually(lambda: h.task.link.blocked())
        await others()
        assert not all(emit.done() for emit in emits)
        h.come(Frame(kind=CREDIT, granted_bytes=1 << 30))
        await asyncio.gather(*emits)

    h.run(script)
    assert h.count == 100 and not h.task.link.outbox


def complete(h: Harness, first: int, length: int, failed: bool = False) -> None:
    h.come(Frame(kind=COMPLETE, run_first=pack64([first]), run_length=pack32([length]), failed=failed))


def test_max_spout_pending_holds(harnesses: Callable[..., Harness]) -> None:
    h = harnesses(reliability="ATLEAST_ONCE", **{"topology.max.spout.pending": 5})

    async def script() -> None:
        emits = [asyncio.ensure_future(h.emit([n], tup_id=n)) for n in range(12)]
        await eventually(lambda: h.task.pending.total == 5)
        await others()
        assert [emit.done() for emit in emits] == [True] * 5 + [False] * 7, "first come, first served"
        await eventually(lambda: h.task.time_use.totals(time.monotonic_ns()).at_limit > 0)
        base = h.frames[0].root_base
        complete(h, base, 2)
        complete(h, base + 2, 1, failed=True)
        await eventually(lambda: sum(emit.done() for emit in emits) == 8)
        await others()
        assert h.task.pending.total == 5 and sum(emit.done() for emit in emits) == 8
        assert h.user.told == [("ack", 0), ("ack", 1), ("fail", 2)]
        for emit in emits:
            emit.cancel()

    h.run(script)


def test_at_the_limit_it_goes_on_with_enough_tuples_for_a_frame(
    harnesses: Callable[..., Harness], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bolt that acks a few at a time must not make it send a few at a time for ever."""
    monkeypatch.setattr(linger, "WAIT_MAX_S", 60.0)
    monkeypatch.setattr(emitter, "START_TUPLES", 10**6)
    limit, acked_at_once = 100, 3
    patient = replace(SETTINGS, linger_max_us=1_000_000.0)
    h = harnesses(reliability="ATLEAST_ONCE", settings=patient, **{"topology.max.spout.pending": limit})

    async def source() -> None:
        n = 0
        while True:
            n += 1
            await h.emit([n], tup_id=n)

    async def script() -> None:
        emitting = asyncio.ensure_future(source())
        await eventually(lambda: h.task.pending.total == limit)
        first, acked = len(h.frames), 0
        base = h.frames[0].root_base
        while acked < 5 * limit:
            complete(h, base + acked, acked_at_once)
            acked += acked_at_once
            await eventually(lambda: h.task.progress.acked == acked)  # noqa: B023
            await others()
        emitting.cancel()
        assert len(h.frames) > first
        assert min(frame.count for frame in h.frames[first:]) >= limit // 4

    h.run(script)


def test_with_room_for_less_it_goes_on_after_a_moment(harnesses: Callable[..., Harness]) -> None:
    """A bolt may hold back its tuples until more of them arrive."""
    h = harnesses(reliability="ATLEAST_ONCE", **{"topology.max.spout.pending": 100})

    async def script() -> None:
        emits = [asyncio.ensure_future(h.emit([n], tup_id=n)) for n in range(101)]
        await eventually(lambda: h.task.pending.total == 100)
        complete(h, h.frames[0].root_base, 1)
        await asyncio.gather(*emits)

    h.run(script)


def test_a_saturated_spout_sends_more_rarely(
    harnesses: Callable[..., Harness], monkeypatch: pytest.MonkeyPatch
) -> None:
    longest_s, least_s = 0.001, 0.1
    monkeypatch.setattr(emitter, "START_TUPLES", 10**6)
    h = harnesses(settings=replace(SETTINGS, linger_max_us=longest_s * 1e6, batch_tuples=100_000))
    took: list[float] = []

    async def script() -> None:
        began = time.monotonic()
        while time.monotonic() < began + least_s:
            await h.emit([1])
        took.append(time.monotonic() - began)
        took.append(len(h.frames))

    monkeypatch.setattr(Sleeps, "any", lambda sleeps: False)
    h.run(script)
    assert took[1] <= took[0] / ((PATIENCE - BURST + 1) * longest_s) + BURST + 1


def test_a_coroutine_of_ack_counts_as_pending(harnesses: Callable[..., Harness]) -> None:
    h = harnesses(SlowAcks, reliability="ATLEAST_ONCE", **{"topology.max.spout.pending": 2})

    async def script() -> None:
        await h.emit([0], tup_id=0)
        await h.emit([1], tup_id=1)
        await eventually(lambda: h.frames)
        await eventually(lambda: h.task.pending.total == 2)
        base = h.frames[0].root_base
        complete(h, base, 2)
        await eventually(lambda: h.user.begun == 2)
        waiting = asyncio.ensure_future(h.emit([2], tup_id=2))
        await others()
        assert not waiting.done()
        h.user.gate.set()
        await waiting

    h.run(script)


def test_many_coroutines_of_ack_hold_up_emits(harnesses: Callable[..., Harness]) -> None:
    h = harnesses(SlowAcks)

    async def script() -> None:
        emits = [asyncio.ensure_future(h.emit([n], tup_id=n)) for n in range(60)]
        await eventually(lambda: h.user.begun >= SETTINGS.async_concurrency)
        await others()
        assert not all(emit.done() for emit in emits)
        h.user.gate.set()
        await asyncio.gather(*emits)
        await eventually(lambda: len(h.user.told) == 60)

    h.run(script)


def test_fails_that_emit_again_do_not_wait_for_each_other(harnesses: Callable[..., Harness]) -> None:
    class Replaying(Source):
        async def fail(self, tup_id: Any) -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.emit([tup_id], tup_id=tup_id))

    h = harnesses(Replaying, reliability="ATLEAST_ONCE", **{"topology.max.spout.pending": 3})

    async def script() -> None:
        for n in range(3):
            await h.emit([n], tup_id=n)
        await eventually(lambda: h.task.pending.total == 3)
        for frame in list(h.frames):
            complete(h, frame.root_base, frame.count, failed=True)
        await eventually(lambda: h.count == 6 and h.task.pending.total == 3)

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
        await eventually(lambda: h.count == 2)

    h.run(script)


def test_it_rests_until_something_happens(harnesses: Callable[..., Harness]) -> None:
    h = harnesses()

    async def script() -> None:
        await h.emit([0])
        await eventually(lambda: h.count == 1)
        h.task.rest_s()
        assert h.task.rest_s() == BLOCKED_WAIT_S, "nothing is polled"

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
    assert h.task.standing.state == control_pb2.TASK_EXHAUSTED


@pytest.mark.parametrize("error", [ValueError("bad source"), SystemExit(3)])
def test_what_run_raises_ends_the_task(harnesses: Callable[..., Harness], error: BaseException) -> None:
    h = harnesses()

    async def script() -> None:
        await h.emit([0])
        raise error

    with pytest.raises(BaseException) as caught:
        h.run(script)
    assert caught.value is error
    assert h.count == 1, "what was emitted leaves"


@pytest.mark.parametrize("method", ["ack", "activate"])
def test_what_another_coroutine_raises_ends_the_task(harnesses: Callable[..., Harness], method: str) -> None:
    async def raising(*args: Any) -> None:
        raise ValueError("bad " + method)

    class Raising(Source): ...

    setattr(Raising, method, lambda self, *args: raising())
    h = harnesses(Raising)

    async def script() -> None:
        if method == "activate":
            h.activate(False)
            await eventually(lambda: not h.task.active)
            h.activate(True)
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
    assert h.count == 1


def test_a_stop_lets_acks_end_and_run_clean_up(harnesses: Callable[..., Harness]) -> None:
    class Ending(Source):
        async def ack(self, tup_id: Any) -> None:
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
            h.user.told.append(("run", "ended"))

    h.run(script)
    assert h.user.told == [("ack", 0), ("run", "ended")]


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
        assert not h.task.stopping, "a stop is not slept over"
        select()
        resting.append(h.task.progress.resting)

    h.task.falls_asleep = falls_asleep  # type: ignore[method-assign]

    async def script() -> None:
        assert not h.task.progress.resting
        await asyncio.sleep(0.01)
        assert not h.task.progress.resting

    h.run(script)
    assert resting and all(resting)


def test_a_spout_that_may_not_emit_is_blocked_and_one_that_waits_for_its_source_idle(
    harnesses: Callable[..., Harness],
) -> None:
    h = harnesses()
    seen: list[Doing] = []

    class Doings(TimeUse):
        def turn(self, doing: Doing, now_ns: int) -> None:
            seen.append(doing)
            super().turn(doing, now_ns)

    h.task.time_use = Doings(0)

    async def script() -> None:
        await eventually(lambda: IDLE in seen)
        assert BLOCKED not in seen
        h.come(Frame(kind=CLAMP, on=True))
        await eventually(lambda: h.task.clamped)
        emitting = asyncio.get_running_loop().create_task(h.emit([1]))
        await eventually(lambda: BLOCKED in seen)
        h.come(Frame(kind=CLAMP, on=False))
        await emitting
        seen.clear()
        await eventually(lambda: IDLE in seen)
        assert BLOCKED not in seen

    h.run(script)


def test_what_it_emits_is_marked_with_the_time_of_the_emit_and_not_of_the_rest_before(
    harnesses: Callable[..., Harness],
) -> None:
    h = harnesses()
    h.task.marks = LatencyMarkers(h.task.emitter, 1000.0, lambda: 0)

    async def script() -> None:
        for _ in range(10):
            before, sent = time.time_ns(), len(h.frames)
            await asyncio.sleep(0.02)
            await h.emit([1])
            await eventually(lambda sent=sent: len(h.frames) > sent)
            assert before + 15_000_000 <= h.frames[-1].origin_ns <= time.time_ns()

    h.run(script)
