"""What credit calls done has been sent on: else a task that is killed takes it along, and nobody knows before the timeout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from heronpy.api import api_constants
from heronpy.api.bolt.async_bolt import AsyncBolt
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.common.setting_types import InstanceSettings
from heronpy.wire import codec
from heronpy.wire.frames import ACK, CREDIT, DATA, Frame
from instance.async_loop import AsyncBoltTask
from instance.bolt_loop import BoltTask
from tests.instance.harness import TaskHarness, closing
from tests.instance.test_async import Harness as AsyncHarness
from tests.support.waiting import eventually

#: Tuples and acks could wait for others for seconds; a quarter of the window is due every 16 tuples.
SETTINGS = replace(InstanceSettings(), linger_max_us=1e6, in_queue_tuples_max=64, in_queue_expected_tuples=64)
TUPLES = 60
#: After silence four sends do not wait, so that the fifth does.
WAITING = 5


class Numbers(Spout):
    outputs = ["n"]


class Pass(Bolt):
    outputs = ["n"]
    stop: Callable[[], None]

    def process(self, tup: Any) -> None:
        self.emit(list(tup.values), anchors=[tup])
        self.ack(tup)
        if tup.values[0] == TUPLES - 1:
            self.stop()


class Sink(Bolt):
    def process(self, tup: Any) -> None: ...


class Harness(TaskHarness):
    """A task that passes tuples on, one a frame."""

    def __init__(self) -> None:
        made = TopologyBuilder("test")
        source = made.add_spout("src", Numbers, par=1)
        passing = made.add_bolt("pass", Pass, par=1, inputs={source: Grouping.SHUFFLE})
        made.add_bolt("sink", Sink, par=1, inputs={passing: Grouping.SHUFFLE})
        made.set_config(
            {
                api_constants.TOPOLOGY_RELIABILITY_MODE: "ATLEAST_ONCE",
                api_constants.TOPOLOGY_MAX_SPOUT_PENDING: 100_000,
            }
        )
        super().__init__(BoltTask, made, "pass", SETTINGS)
        self.user.stop = self.stop
        self.come(Frame(kind=CREDIT, granted_bytes=1 << 30, granted_tuples=1 << 30))

    def tuple(self, number: int) -> None:
        self.come(
            Frame(
                kind=DATA, source_task=1, dest_task=2, count=1, payload=codec.encode([number]),
                tracked=True, root_task=1, root_base=100 + number, edge=5,
            )
        )  # fmt: skip


class PassLater(AsyncBolt):
    outputs = ["n"]

    async def process(self, tup: Any) -> None:
        self.emit(list(tup.values), anchors=[tup])


class Resting(AsyncHarness):
    """An asynchronous task whose tuples wait for others for 0.2 s, which is longer than credit does."""

    def __init__(self) -> None:
        made = TopologyBuilder("test")
        source = made.add_spout("src", Numbers, par=1)
        passing = made.add_bolt("calls", PassLater, par=1, inputs={source: Grouping.SHUFFLE})
        made.add_bolt("sink", Sink, par=1, inputs={passing: Grouping.SHUFFLE})
        made.set_config({api_constants.TOPOLOGY_RELIABILITY_MODE: "ATLEAST_ONCE"})
        TaskHarness.__init__(self, AsyncBoltTask, made, "calls", replace(InstanceSettings(), linger_max_us=2e5))
        self.come(Frame(kind=CREDIT, granted_bytes=1 << 30, granted_tuples=1 << 30))


@pytest.fixture
def harnesses() -> Iterator[Callable[..., Any]]:
    with closing(Harness) as make:
        yield make


def test_credit_follows_the_tuples_and_acks_of_what_it_calls_done(harnesses: Callable[..., Any]) -> None:
    h = harnesses()
    for number in range(TUPLES):
        h.tuple(number)
    h.run_task()
    done = {ACK: 0, DATA: 0}
    reported = []
    for _, _, frame in h.context.made[-1].sent:
        if frame.kind in done:
            done[frame.kind] += frame.count
        elif frame.kind == CREDIT and frame.consumed_tuples:
            reported.append(frame.consumed_tuples)
            assert min(done.values()) >= frame.consumed_tuples, (done, frame.consumed_tuples)
    assert len(reported) > 2 and done == {ACK: TUPLES, DATA: TUPLES}, (reported, done)


def test_an_asynchronous_bolt_that_rests_sends_what_waits_before_credit() -> None:
    with closing(Resting) as make:
        h = make()

        async def script() -> None:
            for number in range(WAITING):
                h.tuples(number, tracked=True)
                await eventually(lambda consumed=number + 1: h.task.link.consumed_tuples == consumed)
            await eventually(lambda: max((one.consumed_tuples for one in h.sent(CREDIT)), default=0) >= WAITING)

        h.run(script)
        sent = 0
        for _, _, frame in h.context.made[-1].sent:
            sent += frame.count if frame.kind == DATA else 0
            if frame.kind == CREDIT:
                assert sent >= frame.consumed_tuples
