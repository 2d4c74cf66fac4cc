"""What spouts say about their next call, and spouts of coroutines, on the simulator's virtual time."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.async_spout import AsyncSpout
from heronpy.api.spout.spout import Spout
from heronpy.api.state.stateful_component import StatefulComponent
from heronpy.api.topology import TopologyBuilder
from heronpy.simulator import SimulationError, Simulator
from tests.simulator.parts import ATLEAST, PassBolt, SinkBolt


def of(kind: type, bolt: type = PassBolt, **config: Any) -> TopologyBuilder:
    builder = TopologyBuilder("spouts")
    source = builder.add_spout("source", kind, par=1, config=config.pop("spout", None))
    builder.add_bolt("bolt", bolt, par=1, inputs=[source])
    builder.set_config(config)
    return builder


class Timed(Spout):
    """Notes when it is called."""

    outputs = ["value"]

    def initialize(self, config: Any, context: Any) -> None:
        self.calls: list[float] = []

    def now(self) -> float:
        return round(time.monotonic(), 2)

    def next_tuple(self) -> None:
        self.calls.append(self.now())
        self.say()

    def say(self) -> None: ...


@pytest.mark.parametrize("emits", [False, True])
def test_a_spout_that_waits_is_not_called_before(emits: bool) -> None:
    class Waiting(Timed):
        def say(self) -> None:
            if emits:
                self.emit([len(self.calls)])
            self.wait(0.25)

    with Simulator(of(Waiting)) as sim:
        sim.run(seconds=1.1)
        assert sim.task("source").calls == [0, 0.25, 0.5, 0.75, 1.0]


def test_acks_do_not_wait() -> None:
    class Waiting(Timed):
        def say(self) -> None:
            self.emit([1], tup_id=1)
            self.wait(5)

        def ack(self, tup_id: Any) -> None:
            self.acked_at = self.now()

    with Simulator(of(Waiting, **ATLEAST)) as sim:
        sim.run(seconds=6)
        assert sim.task("source").calls == [0, 5] and sim.task("source").acked_at == 5
        sim.run(seconds=1)
    with Simulator(of(Waiting, **ATLEAST)) as sim:
        sim.run(seconds=1)
        assert sim.task("source").acked_at == 0


def test_what_was_said_is_for_the_next_call_only() -> None:
    class Changing(Timed):
        def say(self) -> None:
            if len(self.calls) == 1:
                self.wait(1)
            elif len(self.calls) == 2:
                self.busy()

    with Simulator(of(Changing)) as sim:
        sim.run(until_idle=False, seconds=1.05)
        calls = sim.task("source").calls
        assert calls[:3] == [0, 1, 1] and 3 < len(calls) < 20


def test_a_busy_spout_is_neither_idle_nor_paused() -> None:
    class Skipping(Timed):
        def say(self) -> None:
            if len(self.calls) < 100:
                self.busy()
            elif len(self.calls) == 100:
                self.emit([1])
                self.end_of_input()

    with Simulator(of(Skipping)) as sim:
        assert sim.run().reason == "finished"
        assert sim.emitted("bolt") == [[1]] and sim.now < 0.02


def test_a_spout_that_keeps_waiting_for_nothing_is_idle() -> None:
    class Waiting(Timed):
        def say(self) -> None:
            self.wait(10)

    with Simulator(of(Waiting)) as sim:
        assert sim.run().reason == "idle" and sim.task("source").calls == [0, 10, 20]


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


class Reading(Timed):
    def say(self) -> None:
        if self.readable():
            data = os.read(self.fd, 1)
            if not data:
                self.end_of_input()
                return
            self.emit([data], tup_id=len(self.calls))
        self.wait_readable(self.fd)

    def initialize(self, config: Any, context: Any) -> None:
        super().initialize(config, context)
        self.fd = config["fd"]
        self.failed = 0

    def readable(self) -> bool:
        import select

        return bool(select.select([self.fd], [], [], 0)[0])

    def fail(self, tup_id: Any) -> None:
        self.failed += 1


def test_a_spout_waits_for_a_descriptor(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    with Simulator(of(Reading, spout={"fd": reading})) as sim:
        assert sim.run().reason == "idle" and len(sim.task("source").calls) == 1
        os.write(writing, b"ab")
        assert sim.run().reason == "idle"
        assert sim.emitted("bolt") == [[b"a"], [b"b"]] and len(sim.task("source").calls) < 6
        # Written while the simulator waits.
        thread = threading.Thread(target=os.write, args=(writing, b"c"))
        thread.start()
        sim.run()
        thread.join()
        sim.run()
        assert len(sim.emitted("bolt")) == 3


def test_a_descriptor_or_the_time_whichever_comes_first(pipe: tuple[int, int]) -> None:
    class Patient(Reading):
        def say(self) -> None:
            super().say()
            self.wait(2)

    reading, writing = pipe
    with Simulator(of(Patient, spout={"fd": reading})) as sim:
        sim.run(seconds=3)
        assert sim.task("source").calls == [0, 2]
        os.write(writing, b"a")
        sim.run(seconds=0.5)
        assert sim.emitted("bolt") == [[b"a"]] and sim.task("source").calls[2] == 3


def test_it_is_called_after_a_fail_too(pipe: tuple[int, int]) -> None:
    class Failing(Bolt):
        def process(self, tup: Any) -> None:
            self.fail(tup)

    reading, writing = pipe
    with Simulator(of(Reading, Failing, spout={"fd": reading}, **ATLEAST)) as sim:
        os.write(writing, b"a")
        sim.run()
        assert sim.task("source").failed == 1
        before = len(sim.task("source").calls)
        assert before >= 2


# ---- coroutines -----------------------------------------------------------------------------


class Numbers(AsyncSpout):
    """As many as configured, with ids."""

    outputs = ["value"]

    def initialize(self, config: Any, context: Any) -> None:
        self.count = config["count"]
        self.told: list[tuple[str, Any]] = []
        self.ended: list[str] = []

    async def run(self) -> None:
        try:
            for number in range(self.count):
                await self.emit([number], tup_id=number)
        finally:
            self.ended.append("run")

    def ack(self, tup_id: Any) -> Any:
        self.told.append(("ack", tup_id))

    def fail(self, tup_id: Any) -> Any:
        self.told.append(("fail", tup_id))

    def close(self) -> None:
        self.ended.append("close")


@pytest.mark.parametrize("config", [{}, ATLEAST])
def test_a_coroutine_emits_in_order_and_its_return_ends_the_input(config: Any) -> None:
    with Simulator(of(Numbers, spout={"count": 300}, **config)) as sim:
        assert sim.run().reason == "finished"
        assert sim.emitted("bolt") == [[n] for n in range(300)]
        assert sorted(sim.acked("source")) == list(range(300))
        source = sim.task("source")
    assert source.ended == ["run", "close"]


def test_an_emit_waits_for_pending_tuples() -> None:
    class Forgetting(Bolt):
        def process(self, tup: Any) -> None:
            if tup.values[0] != 2:
                self.ack(tup)

    config = {**ATLEAST, "topology.max.spout.pending": 1, "topology.message.timeout.secs": 30}
    with Simulator(of(Numbers, Forgetting, spout={"count": 4}, **config)) as sim:
        sim.run(seconds=20)
        assert sim.emitted("source") == [[0], [1], [2]] and sim.pending("source") == 1
        sim.run()
        assert sim.task("source").told == [("ack", 0), ("ack", 1), ("fail", 2), ("ack", 3)] and sim.is_finished


def test_a_paused_topology_takes_no_emit() -> None:
    with Simulator(of(Numbers, spout={"count": 50}), run_spouts=False) as sim:
        assert sim.run().reason == "idle" and sim.emitted("source") == []
        sim.activate()
        sim.run()
        assert len(sim.emitted("source")) == 50


def test_sleeps_cost_no_real_time() -> None:
    class Steady(Numbers):
        async def run(self) -> None:
            for number in range(self.count):
                await asyncio.sleep(100)
                await self.emit([number])

    real = time.monotonic()
    with Simulator(of(Steady, spout={"count": 10})) as sim:
        sim.run()
        assert len(sim.emitted("bolt")) == 10 and 1000 <= sim.now < 1001
    assert time.monotonic() - real < 5


def test_several_coroutines_and_replays() -> None:
    class Flaky(SinkBolt):
        seen: set[Any] = set()

        def process(self, tup: Any) -> None:
            if tup.values[0] not in self.seen:
                self.seen.add(tup.values[0])
                self.fail(tup)
            else:
                self.ack(tup)

    class Replaying(Numbers):
        async def run(self) -> None:
            async with asyncio.TaskGroup() as group:
                for part in range(4):
                    group.create_task(self.emit([part], tup_id=part))

        async def fail(self, tup_id: Any) -> None:
            self.told.append(("fail", tup_id))
            await asyncio.sleep(1)
            await self.emit([tup_id], tup_id=tup_id)

        async def ack(self, tup_id: Any) -> None:
            await asyncio.sleep(1)
            self.told.append(("ack", tup_id))

    config = {**ATLEAST, "topology.max.spout.pending": 2}
    with Simulator(of(Replaying, Flaky, spout={"count": 4}, **config)) as sim:
        assert sim.run().reason == "finished"
        assert sorted(sim.task("source").told) == sorted((what, n) for what in ("ack", "fail") for n in range(4))


@pytest.mark.parametrize("method", ["run", "ack"])
def test_what_a_coroutine_raises_names_the_task(method: str) -> None:
    class Raising(Numbers):
        async def run(self) -> None:
            await super().run()
            if method == "run":
                raise ValueError("the source is gone")
            await asyncio.sleep(1)

        async def ack(self, tup_id: Any) -> None:
            if method == "ack":
                raise ValueError("the source is gone")

    sentence = rf"source\[0\].* failed in {method}: ValueError: the source is gone"
    with Simulator(of(Raising, spout={"count": 1})) as sim, pytest.raises(SimulationError, match=sentence):
        sim.run()


def test_a_coroutine_that_waits_for_something_else_is_idle() -> None:
    class Queued(Numbers):
        async def run(self) -> None:
            self.queue: asyncio.Queue[int] = asyncio.Queue()
            while True:
                await self.emit([await self.queue.get()])

    with Simulator(of(Queued, spout={"count": 0})) as sim:
        assert sim.run().reason == "idle"
        sim.task("source").queue.put_nowait(5)
        assert sim.run().reason == "idle" and sim.emitted("bolt") == [[5]]


def test_a_checkpoint_falls_between_two_emits() -> None:
    class Counting(Numbers, StatefulComponent):
        def init_state(self, state: Any) -> None:
            self.state = state

        async def run(self) -> None:
            while self.state.get("next", 0) < self.count:
                number = self.state.get("next", 0)
                await self.emit([number])
                self.state["next"] = number + 1

    config = {"topology.reliability.mode": "EFFECTIVELY_ONCE"}
    with Simulator(of(Counting, spout={"count": 40}, **config)) as sim:
        sim.run(max_steps=25)
        before = len(sim.emitted("source"))
        sim.checkpoint()
        assert sim.task("source").state["next"] == len(sim.emitted("source")) >= before > 2
        kept = len(sim.emitted("source"))
        sim.run(max_steps=20)
        assert len(sim.emitted("source")) > kept
        lost = sim.emitted("source")[kept:]
        sim.restore()
        sim.run()
        assert sim.emitted("source") == [[n] for n in range(kept)] + lost + [[n] for n in range(kept, 40)]


def test_a_killed_task_begins_again() -> None:
    with Simulator(of(Numbers, spout={"count": 20})) as sim:
        sim.run(max_steps=15)
        sim.kill_task("source")
        sim.run()
        assert sim.emitted("source")[-20:] == [[n] for n in range(20)]


def test_run_must_be_a_coroutine() -> None:
    class Yielding(AsyncSpout):
        outputs = ["value"]

        async def run(self) -> Any:  # type: ignore[override]
            yield [1]

    with pytest.raises(TypeError, match=r"Yielding.run is not a coroutine.*await self.emit"):
        of(Yielding)
