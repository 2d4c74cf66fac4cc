"""A bolt that is far slower than its spout, then becomes fast: backpressure and its end.

    heron submit local slow_bolt.py - --spec spec.json

In its slow phase the bolt serves exactly `capacity` tuples a second while it has input: a tuple's
service starts when the previous one has ended, however late the timer fired. So a rate below the
capacity means that backpressure starved the bolt.
"""

from __future__ import annotations

import time
from typing import Any

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.stream import Grouping
from heronpy.api.topology_context import TopologyContext
from heronpy.loadtest.topologies.parts import LoadSpout, Pace, Report, builder, config_of, read_spec


class FirehoseSpout(LoadSpout):
    """Emits as fast as it is allowed to, or at a rate, through the slow and the fast phase of the bolt."""

    outputs = ["number", "payload"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.report = Report(config, context, "spout")
        spec = self.report.spec
        self.payload = "x" * spec["payload_bytes"]
        self.slow_s, self.fast_s = spec["duration_s"], spec["parameters"]["fast_s"]
        self.pace = Pace(spec["rate"]) if spec["rate"] else None
        self.started_at = 0.0
        self.start_acks()

    def message(self, number: int) -> list[Any]:
        return [number, self.payload]

    def next_tuple(self) -> None:
        now = time.monotonic()
        if not self.started_at:
            self.started_at = now
        after = now - self.started_at
        if self.again:
            self.replay()
        elif after >= self.slow_s + self.fast_s:
            self.finish_when_acked(started_at=self.started_at)
        elif self.pace is None or (now - self.started_at) * 1e9 >= self.pace.due_ns(self.sent):
            self.emit([self.sent, self.payload], self.sent)
            self.sent += 1
            self.report.mark(self.sent, now)


class SlowBolt(Bolt):
    """Serves `capacity` tuples a second for a time, then as fast as possible."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.report = Report(config, context, "sink")
        p = self.report.spec["parameters"]
        self.service_s = 1.0 / p["capacity"]
        self.slow_s = self.report.spec["duration_s"]
        self.received = self.numbers = 0
        self.free_at = self.first_at = self.fast_at = 0.0
        self.starved_s = 0.0
        self.slow_count = 0

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

    def process_tick(self, tup: Any) -> None:
        self.report.mark(self.received)

    def finish(self) -> None:
        self.report.write(
            self.received,
            numbers=self.numbers,
            first_at=self.first_at,
            fast_at=self.fast_at,
            slow_count=self.slow_count,
            starved_s=self.starved_s,
        )


def main() -> None:
    """Describe the topology and submit it."""
    spec = read_spec(__doc__)
    made = builder(spec)
    source = made.add_spout("source", FirehoseSpout, par=1, config=config_of(spec))
    inputs = {source: Grouping.SHUFFLE}
    made.add_bolt("slow", SlowBolt, par=1, inputs=inputs, config=config_of(spec, sink=True))
    made.build_and_submit()


if __name__ == "__main__":
    main()
