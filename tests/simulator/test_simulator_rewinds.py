"""Effectively once in a simulation: a killed task takes everything that streams connect with it back to a checkpoint."""

from __future__ import annotations

import random
from typing import Any

import pytest

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.state.stateful_component import StatefulComponent
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.simulator import Simulator

COUNT, KEYS = 60, 5


class Numbers(Spout, StatefulComponent):
    outputs = ["key", "number"]

    def init_state(self, state: Any) -> None:
        self.state = state

    def initialize(self, config: Any, context: Any) -> None:
        self.next = self.state.get("next") or 0

    def pre_save(self, checkpoint_id: str) -> None:
        self.state.put("next", self.next)

    def next_tuple(self) -> None:
        if self.next == COUNT:
            self.end_of_input()
            return
        self.emit([self.next % KEYS, self.next])
        self.next += 1


class Sums(Bolt):
    outputs = ["key", "sum"]

    def initialize(self, config: Any, context: Any) -> None:
        self.sums = context.keyed_state("sums")
        self.finished = 0

    def process(self, tup: Any) -> None:
        key, number = tup.values
        self.sums[key] = self.sums.get(key, 0) + number
        self.emit([key, self.sums[key]])

    def finish(self) -> None:
        self.finished += 1


def simulator(mode: str, seed: int = 0) -> Simulator:
    builder = TopologyBuilder("sums")
    for name in ("", "other-"):
        source = builder.add_spout(f"{name}source", Numbers, par=1)
        builder.add_bolt(f"{name}sums", Sums, par=2, inputs={source: Grouping.fields("key")})
    builder.set_config({"topology.reliability.mode": mode})
    return Simulator(builder, seed=seed)


def sums(sim: Simulator, component: str = "sums") -> dict[int, int]:
    found: dict[int, int] = {}
    for index in (0, 1):
        found.update(dict(sim.task(component, index).sums.items()))
    return found


EXACT = {key: sum(range(key, COUNT, KEYS)) for key in range(KEYS)}


@pytest.mark.parametrize("seed", range(20))
def test_keyed_state_is_exact_whatever_is_killed(seed: int) -> None:
    dice = random.Random(seed)
    with simulator("EFFECTIVELY_ONCE", seed) as sim:
        rewinds: list[str] = []
        for _ in range(6):
            rewinds += sim.run(max_steps=dice.randint(1, 60)).rewinds
            if dice.random() < 0.5:
                sim.checkpoint()
            sim.kill_task(dice.choice(("source", "sums")))
        result = sim.run()
        rewinds += result.rewinds
        assert result.reason == "finished" and sums(sim) == sums(sim, "other-sums") == EXACT
        assert len(rewinds) == 6 and all("was killed: source, sums went back to " in why for why in rewinds)


def test_only_what_streams_connect_goes_back_and_a_run_says_why() -> None:
    with simulator("EFFECTIVELY_ONCE") as sim:
        sim.run(max_steps=40)
        assert sim.checkpoint() == "1"
        sim.run(max_steps=40)
        kept = sim.task("other-sums"), sim.task("other-source")
        sim.kill_task("sums", 1)
        assert (sim.task("other-sums"), sim.task("other-source")) == kept
        task = sim.task_ids("sums")[1]
        [why] = sim.run().rewinds
        assert why == f"sums[1] (task {task}) was killed: source, sums went back to checkpoint 1"
        assert sums(sim) == EXACT and sim.run().rewinds == ()


def test_without_a_checkpoint_it_begins_again_also_after_the_end() -> None:
    with simulator("EFFECTIVELY_ONCE") as sim:
        assert sim.run().reason == "finished"
        sim.kill_task("source")
        assert not sim.is_finished
        result = sim.run()
        assert result.reason == "finished" and "the beginning, because there is no checkpoint" in result.rewinds[0]
        assert sums(sim) == EXACT and sim.task("sums").finished == 1


def test_at_most_once_a_task_alone_begins_again() -> None:
    with simulator("ATMOST_ONCE") as sim:
        sim.run(max_steps=60)
        source = sim.task("source")
        sim.kill_task("sums")
        assert sim.task("source") is source and sim.run().rewinds == () and sums(sim) != EXACT
