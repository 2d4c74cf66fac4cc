"""A bolt at full speed that stalls for a time: how soon the throughput recovers."""

from __future__ import annotations

import time
from typing import Any

from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.api.topology_context import TopologyContext
from heronpy.loadtest.topologies.parts import LoadSink, config_of, submit
from heronpy.loadtest.topologies.slow_bolt import FirehoseSpout

#: Number of tuples between two reads of the clock.
LOOK_EVERY = 256


class StallingBolt(LoadSink):
    """Counts tuples, and stalls once, in the middle of one."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        p = self.report.spec["parameters"]
        self.stall_at_s, self.stall_s = p["stall_at_s"], p["stall_s"]
        self.numbers = 0
        self.first_at = self.stalled_at = self.resumed_at = 0.0

    def process(self, tup: Any) -> None:
        self.received += 1
        self.numbers += tup.values[0]
        if not self.received % LOOK_EVERY:
            self.look(time.monotonic())
        self.ack(tup)

    def look(self, now: float) -> None:
        """Record the progress, and stall when it is time."""
        self.first_at = self.first_at or now
        self.report.mark(self.received, now)
        if not self.stalled_at and now - self.first_at >= self.stall_at_s:
            self.stalled_at = now
            time.sleep(self.stall_s)
            self.resumed_at = time.monotonic()

    def finish(self) -> None:
        self.report.write(self.received, numbers=self.numbers, stalled_at=self.stalled_at, resumed_at=self.resumed_at)


def describe(spec: dict[str, Any], made: TopologyBuilder) -> None:
    """source -> stalls"""
    source = made.add_spout("source", FirehoseSpout, par=1, config=config_of(spec))
    made.add_bolt("stalls", StallingBolt, par=1, inputs={source: Grouping.SHUFFLE}, config=config_of(spec))


if __name__ == "__main__":
    submit(describe, __doc__)
