"""A topology that is submitted by the path of its class; its spout and bolt keep state."""

from __future__ import annotations

import heronpy.api.api_constants as api_constants
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.state.stateful_component import StatefulComponent
from heronpy.api.stream import Grouping
from heronpy.api.topology import Topology


class Numbers(Spout, StatefulComponent):
    outputs = ["n"]

    def init_state(self, stateful_state):
        self.state = stateful_state

    def pre_save(self, checkpoint_id):
        self.state.put("next", self.next)

    def initialize(self, config, context):
        self.next = self.state.get("next") or 0

    def next_tuple(self):
        if self.next < 50:
            self.next += 1
            self.emit([self.next])


class Sum(Bolt, StatefulComponent):
    def init_state(self, stateful_state):
        self.state = stateful_state

    def pre_save(self, checkpoint_id):
        self.log(f"saving for {checkpoint_id}")

    def process(self, tup):
        self.state.put("sum", (self.state.get("sum") or 0) + tup.values[0])
        if tup.values[0] == 50:
            self.log(f"sum is {self.state.get('sum')}")


class Stateful(Topology):
    config = {
        api_constants.TOPOLOGY_RELIABILITY_MODE: api_constants.TopologyReliabilityMode.EFFECTIVELY_ONCE,
        api_constants.TOPOLOGY_STATEFUL_CHECKPOINT_INTERVAL_SECONDS: 1,
    }
    numbers = Numbers.spec()
    sum = Sum.spec(inputs={numbers: Grouping.LOWEST})
