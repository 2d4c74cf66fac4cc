"""A bolt that is slow for a time, or, with `stall_s`, one that stands still once: backpressure, and its end.

In its slow phase the bolt serves exactly `capacity` tuples a second while it has input: a tuple's
service starts when the previous one has ended, however late the timer fired. So a rate below the
capacity means that backpressure starved the bolt.
"""

from __future__ import annotations

import time
from typing import Any

from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.api.topology_context import TopologyContext
from heronpy.loadtest.topologies.parts import LoadSink, config_of, submit
from heronpy.loadtest.topologies.passthrough import PacedSpout

#: Number of tuples between two reads of the clock, for the bolt that stalls.
LOOK_EVERY = 256


class FirehoseSpout(PacedSpout):
    """Emits through the slow and the fast phase of the bolt, however many tuples that makes."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        spec = self.report.spec
        self.duration_s += spec["parameters"]["fast_s"]
        self.limit = self.pace.total(self.duration_s) if self.pace is not None else 0


class SlowBolt(LoadSink):
    """Serves `capacity` tuples a second for a time, then as fast as possible."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        p = self.report.spec["parameters"]
        self.service_s = 1.0 / p["capacity"]
        self.slow_s = self.report.spec["duration_s"]
        self.numbers = self.slow_count = 0
        self.free_at = self.first_at = self.fast_at = self.starved_s = 0.0

    def process(self, tup: Any) -> None:
        self.received += 1
        self.numbers += tup.values[0]
        if not self.fast_at:
            self.serve()
        self.ack(tup)

    def serve(self) -> None:
        """Wait for the service time of one tuple."""
        now = time.monotonic()
        if not self.first_at:
            self.first_at = self.free_at = now
        if now - self.first_at >= self.slow_s:
            self.fast_at, self.slow_count = now, self.received
            return
        if now > self.free_at + 0.1:
            # No input for a while (a late timer stays below this): the capacity of that time is lost.
            self.starved_s += now - self.free_at
            self.free_at = now
        self.free_at += self.service_s
        if self.free_at > now:
            time.sleep(self.free_at - now)

    def finish(self) -> None:
        self.report.write(
            self.received,
            numbers=self.numbers,
            first_at=self.first_at,
            fast_at=self.fast_at,
            slow_count=self.slow_count,
            starved_s=self.starved_s,
        )


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
    """source -> slow, or source -> stalls"""
    stalls = "stall_s" in spec["parameters"]
    source = made.add_spout("source", FirehoseSpout, par=1, config=config_of(spec))
    name, bolt = ("stalls", StallingBolt) if stalls else ("slow", SlowBolt)
    # The bolt that stalls records its progress by itself.
    config = config_of(spec, sink=not stalls)
    made.add_bolt(name, bolt, par=1, inputs={source: Grouping.SHUFFLE}, config=config)


if __name__ == "__main__":
    submit(describe, __doc__)
