"""A bolt that is far slower than its spout, then becomes fast: backpressure and its end.

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
from heronpy.loadtest.topologies.parts import LoadSink, TimedSpout, config_of, submit


class FirehoseSpout(TimedSpout):
    """Emits through the slow and the fast phase of the bolt."""

    outputs = ["number", "payload"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        spec = self.report.spec
        self.payload = "x" * spec["payload_bytes"]
        # Through both phases, however many tuples that makes.
        self.limit, self.duration_s = 0, spec["duration_s"] + spec["parameters"]["fast_s"]

    def message(self, number: int) -> list[Any]:
        return [number, self.payload]


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


def describe(spec: dict[str, Any], made: TopologyBuilder) -> None:
    """source -> slow"""
    source = made.add_spout("source", FirehoseSpout, par=1, config=config_of(spec))
    inputs = {source: Grouping.SHUFFLE}
    made.add_bolt("slow", SlowBolt, par=1, inputs=inputs, config=config_of(spec, sink=True))


if __name__ == "__main__":
    submit(describe, __doc__)
