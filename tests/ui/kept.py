"""A topology with checkpoints: a spout that goes back, one that cannot, and a count that is kept."""

from __future__ import annotations

import itertools
from typing import Any

from heronpy import Bolt, Grouping, HashMapState, Spout, StatefulComponent, TopologyBuilder, TopologyContext, Tuple


class Numbers(Spout, StatefulComponent):
    """Emits numbers, from where its state says."""

    outputs = ["number"]

    def init_state(self, stateful_state: HashMapState) -> None:
        self.state = stateful_state

    def pre_save(self, checkpoint_id: str) -> None:
        self.state["next"] = self.next

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.next = self.state.get("next", 0)

    def next_tuple(self) -> None:
        self.emit([self.next])
        self.next += 1
        self.wait(0.01)


class Clock(Spout):
    """Keeps no position."""

    outputs = ["number"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.numbers = itertools.count()

    def next_tuple(self) -> None:
        self.emit([next(self.numbers)])
        self.wait(0.1)


class Count(Bolt, StatefulComponent):
    def init_state(self, stateful_state: HashMapState) -> None:
        self.state = stateful_state

    def process(self, tup: Tuple) -> None:
        self.state["count"] = self.state.get("count", 0) + 1


builder = TopologyBuilder("kept")
numbers = builder.add_spout("numbers", Numbers, par=1)
clock = builder.add_spout("clock", Clock, par=1)
builder.add_bolt("count", Count, par=1, inputs={numbers: Grouping.SHUFFLE, clock: Grouping.SHUFFLE})
builder.set_config({"topology.reliability.mode": "EFFECTIVELY_ONCE"})

if __name__ == "__main__":
    builder.build_and_submit()
