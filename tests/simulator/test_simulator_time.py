"""The simulator's clock: ticks, windows, sleeps, limits, and asynchronous bolts."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from heronpy.api.bolt.async_bolt import AsyncBolt
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.bolt.window_bolt import SlidingWindowBolt, TumblingWindowBolt
from heronpy.api.spout.spout import Spout
from heronpy.simulator import SimulationError, Simulator
from tests.simulator.parts import ATLEAST, ListSpout, PassBolt, SinkBolt, line


def test_infinite_spout_needs_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(Spout):
        outputs = ["value"]

        def next_tuple(self) -> None:
            self.emit([1])

    sim = Simulator(line([], SinkBolt, spout=Endless))
    assert sim.run(max_steps=100).reason == "max_steps"
    assert sim.run(seconds=0.1).reason == "seconds"
    monkeypatch.setattr("heronpy.simulator.simulator.STEPS_MAX", 500)
    with pytest.raises(SimulationError, match="did not become idle"):
        sim.run()


def test_silent_spout_is_idle() -> None:
    class Silent(ListSpout):
        def end_of_input(self) -> None:
            """Stays open."""

    sim = Simulator(line([1], spout=Silent))
    assert sim.run().reason == "idle"
    assert sim.emitted("bolt") == [[1]]
    assert sim.finish().reason == "finished"
    assert sim.task("bolt").finished == 1


def test_ticks_come_on_virtual_time() -> None:
    class TickBolt(Bolt):
        def initialize(self, config: Any, context: Any) -> None:
            self.started = time.time()
            self.ticks: list[float] = []

        def process_tick(self, tup: Any) -> None:
            assert self.is_tick(tup)
            self.ack(tup)
            self.ticks.append(round(time.time() - self.started, 3))

        def process(self, tup: Any) -> None:
            self.ack(tup)

    real = time.monotonic()
    config = {"topology.tick.tuple.freq.ms": 500}
    sim = Simulator(line([1], TickBolt, config=config), run_spouts=False)
    sim.run(seconds=2)
    assert sim.task("bolt").ticks == [0.5, 1.0, 1.5, 2.0]
    assert time.monotonic() - real < 2
    assert time.time.__name__ == "time"  # the real one is back


def test_sleep_costs_no_real_time_and_blocks_only_its_task() -> None:
    class SlowBolt(PassBolt):
        def process(self, tup: Any) -> None:
            time.sleep(10)
            super().process(tup)

    sim = Simulator(line([1, 2], SlowBolt, par=2))
    real = time.monotonic()
    sim.run()
    assert time.monotonic() - real < 2
    assert 10 <= sim.now < 11


@pytest.mark.parametrize(
    ("bolt", "config", "sizes"),
    [
        (TumblingWindowBolt, {"tumblingwindowbolt_duration_secs": 0.5}, [5, 5, 5, 5]),
        (
            SlidingWindowBolt,
            {"slidingwindowbolt_duration_secs": 1, "slidingwindowbolt_slideinterval_secs": 0.5},
            [5, 10, 10, 10],
        ),
    ],
)
def test_windows_follow_the_virtual_clock(bolt: type, config: Any, sizes: list[int]) -> None:
    class Steady(Spout):
        outputs = ["value"]

        def next_tuple(self) -> None:
            self.emit([1])
            time.sleep(0.1)

    class CountBolt(bolt):  # type: ignore[misc, valid-type]
        outputs = ["size"]

        def processWindow(self, window_info: Any, tuples: list[Any]) -> None:
            self.emit([len(tuples)])

    sim = Simulator(line([], CountBolt, spout=Steady, config=config))
    sim.run(seconds=2.05)
    assert [size for [size] in sim.emitted("bolt")] == sizes


class SlowLookUp(AsyncBolt):
    outputs = ["value"]

    def initialize(self, config: Any, context: Any) -> None:
        self.inside = self.most = 0

    async def process(self, tup: Any) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await asyncio.sleep(1.0 if tup.values[0] % 2 else 0.5)
        self.inside -= 1
        if tup.values[0] == 99:
            raise ValueError("ninety-nine")
        self.emit(tup.values, anchors=[tup])
        self.ack(tup)


def test_async_bolt_is_bounded_and_deterministic() -> None:
    config = {"heron.instance.async_concurrency": 4}
    sim = Simulator(line(list(range(12)), SlowLookUp, config=config, topology_config=ATLEAST))
    with sim:
        assert sim.run().reason == "finished"
        assert sim.task("bolt").most == 4
        assert sim.metrics("bolt")["__async-concurrency-max"] == 4
        assert sorted(sim.acked("source")) == list(range(12))
        assert 2 < sim.now < 3
        again = Simulator(line(list(range(12)), SlowLookUp, config=config, topology_config=ATLEAST))
        with again:
            again.run()
            assert again.emitted("bolt") == sim.emitted("bolt")


def test_async_bolt_error_names_the_task() -> None:
    sentence = r"bolt\[0\].*process: ValueError: ninety-nine"
    with Simulator(line([99], SlowLookUp)) as sim, pytest.raises(SimulationError, match=sentence):
        sim.run()


def test_async_bolts_run_inside_a_coroutine_too() -> None:
    async def test() -> list[list[Any]]:
        with Simulator(line([1, 2], SlowLookUp)) as sim:
            sim.run()
            await asyncio.sleep(0)
            return sim.emitted("bolt")

    assert sorted(asyncio.run(test())) == [[1], [2]]


def test_async_bolt_may_wait_for_real_work() -> None:
    class ThreadBolt(AsyncBolt):
        outputs = ["value"]

        async def process(self, tup: Any) -> None:
            self.emit([await asyncio.to_thread(str, tup.values[0])])
            self.ack(tup)

    with Simulator(line([1, 2], ThreadBolt)) as sim:
        sim.run()
        assert sorted(sim.emitted("bolt")) == [["1"], ["2"]]


def test_async_bolt_may_wait_for_its_own_tick() -> None:
    class BatchBolt(AsyncBolt):
        outputs = ["size"]

        def initialize(self, config: Any, context: Any) -> None:
            self.waiting: list[asyncio.Future[int]] = []

        async def process(self, tup: Any) -> None:
            future = asyncio.get_running_loop().create_future()
            self.waiting.append(future)
            self.emit([await future])
            self.ack(tup)

        async def process_tick(self, tup: Any) -> None:
            waiting, self.waiting = self.waiting, []
            for future in waiting:
                future.set_result(len(waiting))

    config = {"topology.tick.tuple.freq.secs": 1}
    with Simulator(line([1, 2, 3], BatchBolt, config=config)) as sim:
        assert sim.run().reason == "finished"
        assert sim.emitted("bolt") == [[3]] * 3
