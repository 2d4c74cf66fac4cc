"""What is written for the next topology master, and that nothing is while nothing moves."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from google.protobuf.message import Message

from heronpy.metrics.cache import MetricsCache
from heronpy.proto import control_pb2
from heronpy.tmaster.events import Node
from heronpy.tmaster.minutes import Minutes
from heronpy.tmaster.recorder import Recorder
from heronpy.tmaster.totals import Totals
from tests.support.waiting import eventually

FIRST = 29_000_000
REST = {"count": {"executed": 0.0, "cpu": 0.1, "memory_bytes": 1e8}}


class World:
    """A recorder, and what it has written; needs a running loop."""

    def __init__(self) -> None:
        self.minutes, self.written = Minutes(), list[tuple[Node, Message]]()
        shared: Any = SimpleNamespace(
            book=SimpleNamespace(topology=SimpleNamespace(id="wc-1")),
            registry=SimpleNamespace(totals=Totals()),
            event_log=SimpleNamespace(last=0, ledger=lambda topology_id: control_pb2.EventLedger()),
        )
        self.event_log = shared.event_log
        #: Whether the location of the topology master is in the state manager.
        self.is_there = False
        store: Any = SimpleNamespace(
            write=lambda node, value: self.written.append((node, value)), check_fence=lambda: self.is_there
        )
        self.answers: Any = SimpleNamespace(
            changes=0, growth=0, message=lambda now, at_end: control_pb2.LastAnswers(topology_id=f"{now} {at_end}")
        )
        self.recorder = Recorder(store, shared, self.minutes, MetricsCache(60.0, 1.0), self.answers, lambda: 5.0)

    async def look(self) -> None:
        self.recorder.look()
        for _ in range(5):  # a write that is due begins in these turns, and an end waits for it
            await asyncio.sleep(0)


def test_at_rest_nothing_is_written() -> None:
    async def scenario() -> None:
        world = World()
        for number in range(3):
            world.minutes.add(FIRST + number, REST)
            await world.look()
        await world.recorder.close()
        assert world.written == []

    asyncio.run(scenario())


def test_a_minute_in_which_something_moved_is_written_and_an_orderly_end_hands_over_the_others() -> None:
    async def scenario() -> None:
        world = World()
        world.minutes.add(FIRST, {"count": {"executed": 5.0}})
        await world.look()
        await eventually(lambda: world.written, 20)
        assert [node for node, _ in world.written] == [Node.MINUTES]
        world.minutes.add(FIRST + 1, REST)
        await world.look()
        await world.recorder.close()
        assert [node for node, _ in world.written] == [Node.MINUTES] * 2
        told = cast(control_pb2.MinutesLedger, world.written[-1][1])
        assert [one.number for one in told.minutes] == [FIRST, FIRST + 1]

    asyncio.run(scenario())


def test_the_last_answers_are_written_when_the_topology_fails_and_at_the_end() -> None:
    async def scenario() -> None:
        world = World()
        world.is_there = True
        await world.look()
        assert world.written == []
        world.answers.changes = 1
        await world.look()
        await eventually(lambda: world.written, 20)
        await world.recorder.close()
        told = [(node, value.topology_id) for node, value in world.written]  # type: ignore[attr-defined]
        assert told == [(Node.LAST, "5.0 False"), (Node.LAST, "5.0 True")]

    asyncio.run(scenario())


def test_a_master_whose_location_is_gone_writes_no_first_answers() -> None:
    """The topology may be gone as well."""

    async def scenario() -> None:
        world = World()
        await world.recorder.close()
        world.is_there = True
        assert world.written == []
        await world.recorder.close()
        assert [node for node, _ in world.written] == [Node.LAST]

    asyncio.run(scenario())


def test_the_events_of_a_short_topology_are_written_at_its_end() -> None:
    async def scenario() -> None:
        world = World()
        world.is_there = True
        world.event_log.last = 1
        await world.recorder.close()
        assert [node for node, _ in world.written] == [Node.EVENTS, Node.LAST]

    asyncio.run(scenario())
