"""The loop of an asynchronous bolt: bound, order of reports, what a stop leaves to the successor."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from heronpy.api import api_constants
from heronpy.api.bolt.async_bolt import AsyncBolt
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.common.errors import TopologyError
from heronpy.common.setting_types import InstanceSettings
from heronpy.plan.component_config import ASYNC_CONCURRENCY, set_key
from heronpy.proto import control_pb2, plan_pb2
from heronpy.wire import codec
from heronpy.wire.frames import CREDIT, DATA, FAIL, LEAVE, Frame
from instance.async_loop import AsyncBoltTask
from instance.time_use import WORKING, Doing, TimeUse
from tests.instance.harness import TaskHarness, closing
from tests.support.waiting import eventually

SETTINGS = replace(InstanceSettings(), poison_tries=0, async_concurrency=4, force_exit_s=0.4)


class Calls(AsyncBolt):
    """Each call waits for its gate; a gate may hold an exception."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.gates: dict[int, asyncio.Future[None]] = {}
        self.open = False
        self.started: list[int] = []
        self.now = self.most = self.ticks = 0

    def gate(self, number: int) -> asyncio.Future[None]:
        return self.gates.setdefault(number, asyncio.get_running_loop().create_future())

    async def process(self, tup: Any) -> None:
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

    async def process_tick(self, tup: Any) -> None:
        self.ticks += 1
        await self.gate(-1)


class Numbers(Spout):
    outputs = ["n"]


class Harness(TaskHarness):
    """A task of `Calls`."""

    def __init__(self, reliability: str = "ATMOST_ONCE", **config: Any) -> None:
        made = TopologyBuilder("test")
        source = made.add_spout("src", Numbers, par=1)
        made.add_bolt("calls", Calls, par=1, inputs={source: Grouping.SHUFFLE})
        made.set_config({api_constants.TOPOLOGY_RELIABILITY_MODE: reliability, **config})
        super().__init__(AsyncBoltTask, made, "calls", SETTINGS)

    def tuples(self, *numbers: int, tracked: bool = False, pad: int = 0) -> None:
        """They come in one frame."""
        frame = Frame(kind=DATA, source_task=1, dest_task=2, count=len(numbers), payload=codec.encode(list(numbers)))
        if tracked:
            frame.tracked, frame.root_task, frame.root_base, frame.edge = True, 1, 100 + numbers[0], 5
        frame.reason = "x" * pad
        self.come(frame)

    def concurrency(self, number: int) -> None:
        """A plan with this number."""
        new = plan_pb2.PhysicalPlan()
        new.CopyFrom(self.task.plan)
        new.version += 1
        set_key(new.topology.bolts[0].comp.config, ASYNC_CONCURRENCY, str(number))
        self.order(control_pb2.NewPlan(plan=new))

    def run(self, script: Callable[[], Awaitable[None]]) -> None:
        """Run the script concurrently with the bolt's coroutines, from the first turn of the loop; then end in order."""
        playing: list[asyncio.Task[None]] = []

        async def play() -> None:
            try:
                await script()
            finally:
                self.stop()

        def first_turn(now: float) -> None:
            del self.task.turn
            playing.append(asyncio.get_running_loop().create_task(play()))
            self.task.turn(now)

        self.task.turn = first_turn
        try:
            self.run_task()
        finally:
            if playing[0].done() and not playing[0].cancelled():
                playing[0].result()

    def farewell(self) -> Frame:
        [leave] = self.sent(LEAVE)
        return leave


@pytest.fixture
def harnesses() -> Iterator[Callable[..., Harness]]:
    with closing(Harness) as make:
        yield make


def test_the_bound_holds_and_all_is_done(harnesses: Callable[..., Harness]) -> None:
    h = harnesses()

    async def script() -> None:
        h.tuples(1, 2, 3)
        h.tuples(4, 5, 6)
        await eventually(lambda: len(h.user.started) == 4)
        assert h.user.most == 4
        h.user.open = True
        for number in range(1, 7):
            if not h.user.gate(number).done():
                h.user.gate(number).set_result(None)
        await eventually(lambda: h.task.link.consumed_frames == 2)

    h.run(script)
    assert sorted(h.user.started) == [1, 2, 3, 4, 5, 6] and h.user.most == 4
    assert h.task.progress.in_tuples == 0
    assert (h.farewell().consumed_frames, h.farewell().consumed_tuples, h.farewell().skip) == (2, 6, 0)


def test_a_plan_changes_how_many_are_in_progress(harnesses: Callable[..., Harness]) -> None:
    h = harnesses()

    async def script() -> None:
        h.tuples(*range(1, 21))
        await eventually(lambda: h.user.now == 4)
        h.concurrency(7)
        await eventually(lambda: h.user.now == 7)
        h.concurrency(2)
        await eventually(lambda: h.task.plan.version == 3)
        for number in range(1, 8):
            h.user.gate(number).set_result(None)
        await eventually(lambda: h.user.now == 2)
        h.concurrency(0)
        await eventually(lambda: h.user.now == 4)
        h.user.open = True
        for number in range(8, 21):
            h.user.gate(number).set_result(None)
        await eventually(lambda: not h.task.progress.in_tuples)

    h.run(script)
    assert h.user.most == 7 and len(h.user.started) == 20


def test_calls_in_progress_use_no_space_of_the_queue(harnesses: Callable[..., Harness]) -> None:
    """A task of any pace is granted as many tuples as it may have in progress, also when no call ever ends."""
    h = harnesses()

    def granted() -> int:
        return h.sent(CREDIT)[-1].granted_tuples

    async def script() -> None:
        assert granted() > 4
        h.tuples(1, 2, 3, 4)
        await eventually(lambda: h.user.now == 4)
        h.task.link.pace = 0.1
        h.task.in_capacity.aim(0.1)
        for number in range(1, 5):
            h.user.gate(number).set_result(None)
        # The calls have ended, so the task asks for more at once, although a quarter of its window is not used.
        await eventually(lambda: h.sent(CREDIT)[-1].consumed_tuples == 4)
        assert granted() >= 4 + 4
        before = granted()
        h.concurrency(40)
        await eventually(lambda: granted() > before)
        assert granted() >= 4 + 40

    h.run(script)


def test_frames_are_reported_in_order(harnesses: Callable[..., Harness]) -> None:
    h = harnesses()

    async def script() -> None:
        h.tuples(1)
        h.tuples(2)
        h.tuples(3)
        await eventually(lambda: len(h.user.started) == 3)
        for number in (3, 2):
            h.user.gate(number).set_result(None)
        await eventually(lambda: h.user.now == 1)
        assert h.task.link.consumed_frames == 0
        h.user.gate(1).set_result(None)
        await eventually(lambda: h.task.link.consumed_frames == 3)

    h.run(script)


def test_one_slow_tuple_does_not_hold_up_the_credit_for_ever(harnesses: Callable[..., Harness]) -> None:
    h = harnesses()

    async def script() -> None:
        h.tuples(1)
        await eventually(lambda: h.user.started == [1])
        h.user.open = True
        for number in range(2, 12):
            h.tuples(number, pad=h.task.link.window_bytes // 8)
        await eventually(lambda: len(h.user.started) == 11)
        await eventually(lambda: h.task.link.consumed_frames >= 4)
        h.user.gate(1).set_result(None)
        await eventually(lambda: h.task.link.consumed_frames == 11)

    h.run(script)
    assert h.task.link.consumed_tuples == 11 and h.task.progress.in_tuples == 0


def test_done_tuples_beside_a_slow_one_use_none_of_the_window(harnesses: Callable[..., Harness]) -> None:
    """Four tuples of a frame are done and a fifth is slow: the task is granted as many as it may start."""
    h = harnesses()

    async def script() -> None:
        h.task.in_capacity.aim(0.1)
        h.tuples(1, 2, 3, 4, 5)
        await eventually(lambda: h.user.now == 4)
        for number in range(2, 6):
            h.user.gate(number).set_result(None)
        await eventually(lambda: h.user.now == 1)
        await eventually(lambda: h.task.link.consumed_tuples == 5)
        h.user.gate(1).set_result(None)
        await eventually(lambda: h.task.progress.in_tuples == 0)

    h.run(script)


def test_large_tuples_in_progress_use_none_of_the_queues_bytes(harnesses: Callable[..., Harness]) -> None:
    h = harnesses()
    size = SETTINGS.in_queue_bytes_max // 2

    async def script() -> None:
        h.tuples(1, pad=size)
        await eventually(lambda: h.user.now == 1)
        await eventually(lambda: h.sent(CREDIT)[-1].granted_bytes >= SETTINGS.in_queue_bytes_max + 4 * size)
        h.user.gate(1).set_result(None)

    h.run(script)


def test_a_cancelled_call_fails_its_tuple(harnesses: Callable[..., Harness]) -> None:
    """Several calls may wait for one future, which the first of them cancels."""
    h = harnesses(reliability="ATLEAST_ONCE")

    async def script() -> None:
        h.tuples(1, tracked=True)
        await eventually(lambda: h.user.now == 1)
        h.user.gate(1).cancel()

    with pytest.raises(TopologyError, match="was cancelled"):
        h.run(script)
    assert len(h.sent(FAIL)) == 1


def test_messages_are_served_while_finish_waits(harnesses: Callable[..., Harness]) -> None:
    h = harnesses()

    async def finish() -> None:
        await h.user.gate(0)

    h.user.finish = finish

    async def script() -> None:
        h.task.finish_requested = True
        h.task._awake.set()  # noqa: SLF001
        await eventually(lambda: 0 in h.user.gates)
        h.concurrency(7)
        await eventually(lambda: h.task.plan.version == 2)
        assert h.task.standing.state != control_pb2.TASK_FINISHED
        h.user.gate(0).set_result(None)
        await eventually(lambda: h.task.standing.state == control_pb2.TASK_FINISHED)

    h.run(script)


def test_a_stop_lets_what_runs_finish_and_leaves_the_rest_to_the_successor(harnesses: Callable[..., Harness]) -> None:
    h = harnesses()

    async def script() -> None:
        h.tuples(1, 2)
        h.tuples(3, 4, 5)
        h.tuples(6)
        await eventually(lambda: len(h.user.started) == 4)
        loop = asyncio.get_running_loop()
        for number in range(1, 5):
            loop.call_later(0.05, h.user.gate(number).set_result, None)

    h.run(script)
    assert h.user.started == [1, 2, 3, 4]
    # The first frame is consumed, and two tuples of the second.
    assert (h.farewell().consumed_frames, h.farewell().skip) == (1, 2)


def test_a_stop_is_not_slept_over(harnesses: Callable[..., Harness]) -> None:
    h = harnesses()
    falls_asleep = h.task.note_outgoing

    def awake() -> None:
        assert not h.task.stopping
        falls_asleep()

    h.task.note_outgoing = awake

    async def script() -> None:
        await asyncio.sleep(0)

    h.run(script)


def test_a_stop_cancels_what_is_stuck_and_fails_it(harnesses: Callable[..., Harness]) -> None:
    h = harnesses(reliability="ATLEAST_ONCE")

    async def script() -> None:
        h.tuples(1, 2, tracked=True)
        h.tuples(3, tracked=True)
        await eventually(lambda: len(h.user.started) == 3)
        h.user.gate(2).set_result(None)
        await eventually(lambda: h.user.now == 2)

    h.run(script)
    assert sorted(root for frame in h.sent(FAIL) for root in memoryview(frame.roots).cast("Q")) == [101, 103]
    assert (h.farewell().consumed_frames, h.farewell().skip) == (2, 0)
    assert h.task.acks.ack_count == 1 and h.task.acks.fail_count == 2


def test_an_exception_fails_its_tuple_and_lets_the_others_finish(harnesses: Callable[..., Harness]) -> None:
    h = harnesses(reliability="ATLEAST_ONCE")

    async def script() -> None:
        h.tuples(1, 2, tracked=True)
        await eventually(lambda: len(h.user.started) == 2)
        h.user.gate(1).set_exception(ValueError("bad call"))
        asyncio.get_running_loop().call_later(0.05, h.user.gate(2).set_result, None)

    with pytest.raises(ValueError, match="bad call"):
        h.run(script)
    assert (h.task.acks.ack_count, h.task.acks.fail_count) == (1, 1)
    assert h.farewell().consumed_frames == 1


def test_ticks_do_not_pile_up(harnesses: Callable[..., Harness]) -> None:
    h = harnesses(**{api_constants.TOPOLOGY_TICK_TUPLE_FREQ_MS: 10})

    async def script() -> None:
        await eventually(lambda: h.user.ticks == 1)
        h.tuples(1)
        await eventually(lambda: h.user.started == [1])
        await asyncio.sleep(0.05)
        assert h.user.ticks == 1
        h.user.gates.pop(-1).set_result(None)
        await eventually(lambda: h.user.ticks == 2)
        for gate in h.user.gates.values():
            gate.set_result(None)

    h.run(script)


def test_a_new_stream_manager_in_the_middle(harnesses: Callable[..., Harness]) -> None:
    """Tuples of the old link are finished and not counted on the new one."""
    h = harnesses()

    async def script() -> None:
        h.tuples(1, 2)
        h.tuples(3)
        await eventually(lambda: len(h.user.started) == 3)
        h.order(control_pb2.RegisterInstanceReply(link_epoch=20))
        await eventually(lambda: h.task.link.epoch == 20)
        h.seq = 0
        h.tuples(4)
        await eventually(lambda: len(h.user.started) == 4)
        for number in (4, 1, 2, 3):
            h.user.gate(number).set_result(None)
        await eventually(lambda: h.task.link.consumed_frames == 1)

    h.run(script)
    assert h.task.link.consumed_tuples == 1 and h.task.progress.in_tuples == 0


class Doings(TimeUse):
    """Keeps what the task did."""

    def __init__(self) -> None:
        super().__init__(0)
        self.seen: list[Doing] = []

    def turn(self, doing: Doing, now_ns: int) -> None:
        self.seen.append(doing)
        super().turn(doing, now_ns)


def test_it_is_busy_to_the_part_of_its_bound_that_is_in_use(harnesses: Callable[..., Harness]) -> None:
    h = harnesses()
    h.task.time_use = doings = Doings()

    async def asleep(work: float) -> None:
        """Until the task sleeps with this part of its bound in use."""
        doings.seen.clear()
        await eventually(lambda: doings.seen[-2:] == [Doing(work, False), WORKING])

    async def script() -> None:
        await asleep(0.0)
        h.tuples(1)
        await asleep(0.25)
        h.tuples(2, 3, 4, 5, 6)
        await asleep(1.0)
        h.user.open = True
        for number in range(1, 7):
            if not h.user.gate(number).done():
                h.user.gate(number).set_result(None)
        await asleep(0.0)

    h.run(script)
    assert h.task.progress.executed == 6


def test_its_time_per_tuple_is_that_of_the_coroutine_and_the_slowest_is_kept(harnesses: Callable[..., Harness]) -> None:
    h = harnesses()

    async def script() -> None:
        h.tuples(1)
        await eventually(lambda: h.user.started == [1])
        before = time.monotonic()
        await eventually(lambda: time.monotonic() > before + 0.02)
        h.user.gate(1).set_result(None)
        await eventually(lambda: h.task.progress.executed == 1)

    h.run(script)
    took = h.task.metrics.histograms["__execute-latency", "src/default"]
    assert took.count == 1 and took.sum >= 20e6
    assert h.task.metrics.slowest["src/default"].at(time.monotonic()) == took.sum


def test_the_age_of_a_marked_tuple_is_measured_where_its_path_ends(harnesses: Callable[..., Harness]) -> None:
    h = harnesses()
    h.user.open = True

    async def script() -> None:
        frame = Frame(kind=DATA, source_task=1, dest_task=2, count=3, payload=codec.encode([1, 2, 3]))
        frame.origin_ns = time.time_ns() - 10**9
        h.come(frame)
        h.tuples(4)
        await eventually(lambda: h.task.progress.executed == 4)

    h.run(script)
    age = h.task.metrics.histograms["__end-to-end-latency", "src/default"]
    assert age.count == 3 and age.sum >= 3e9
