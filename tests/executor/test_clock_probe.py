"""An executor compares its host's clock with that of a topology master on another host, and with no other."""

from __future__ import annotations

import asyncio

from heronpy.common.errors import InvalidRpcError
from heronpy.executor.clock_probe import ClockProbe
from heronpy.proto import control_pb2


class Host:
    """A clock that goes on by 100 ns whenever it is looked at, and a master whose clock is 5000 ns before it."""

    def __init__(self, clock: int) -> None:
        self.at, self.clock, self.asked, self.refuses, self.replaced = 0, clock, 0, False, False
        self.probe = ClockProbe(self.ask, self.now, lambda: 1)

    def now(self) -> int:
        self.at += 100
        return self.at

    async def ask(self, body: object) -> control_pb2.ClockReply:
        assert isinstance(body, control_pb2.GetClock)
        self.asked += 1
        if self.replaced:
            self.probe.registered()
        if self.refuses:
            raise InvalidRpcError("the topology master does not answer get_clock")
        return control_pb2.ClockReply(at=self.at + 50 + 5000, clock=self.clock)


def test_another_host_is_compared() -> None:
    host = Host(2)
    assert host.probe.offset() is None
    asyncio.run(host.probe.ask())
    assert host.probe.offset() == control_pb2.ClockOffset(clock=1, offset=5000, error=51)
    host.probe.registered()
    assert host.probe.offset() is None, "the next master may be elsewhere"
    host.clock = 3
    asyncio.run(host.probe.ask())
    assert host.probe.offset() is not None


def test_a_master_on_this_host_is_asked_once() -> None:
    host = Host(1)
    for _ in range(3):
        asyncio.run(host.probe.ask())
    assert host.asked == 1 and host.probe.offset() is None
    host.probe.registered()
    asyncio.run(host.probe.ask())
    assert host.asked == 2


def test_a_master_of_an_earlier_release_is_not_compared() -> None:
    host = Host(2)
    host.refuses = True
    asyncio.run(host.probe.ask())
    asyncio.run(host.probe.ask())
    assert host.asked == 2 and host.probe.offset() is None


def test_an_answer_of_the_master_before_is_not_taken() -> None:
    host = Host(2)
    host.replaced = True
    asyncio.run(host.probe.ask())
    assert host.probe.offset() is None
