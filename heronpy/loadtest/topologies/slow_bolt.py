"""Bolts that are slow for a time, or stop once (`stall_s`), to measure when backpressure begins and ends.

In its slow phase a bolt serves exactly `capacity` tuples a second while it has input. The service of a tuple starts at
the end of the previous service, even if a timer fired late. So a rate below the capacity means that backpressure
starved the bolt. `first` is the pace of the first task, relative to other tasks. `hot` is the share of tuples with the
same key. After each `pause_every` tuples a bolt pauses for `pause_s`. Spouts record the pauses between two emits, and
bolts record how late the machine woke them. The remaining pauses are due to backpressure.
"""

from __future__ import annotations

import time
from typing import Any

from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.api.topology_context import TopologyContext
from heronpy.loadtest.topologies.parts import Latencies, LoadSink, config_of, submit
from heronpy.loadtest.topologies.passthrough import LatencySink, PacedSpout

#: Number of tuples between two reads of the clock, for the bolt that stalls.
LOOK_EVERY = 256
#: Minimum seconds of a recorded pause.
STOP_S = 0.01


class Stops:
    """The longest pause in each second, as (monotonic end, seconds)."""

    def __init__(self) -> None:
        self.kept: list[tuple[float, float]] = []

    def note(self, end: float, seconds: float) -> None:
        if seconds < STOP_S:
            return
        if self.kept and int(self.kept[-1][0]) == int(end):
            self.kept[-1] = max(self.kept[-1], (end, seconds), key=lambda stop: stop[1])
        else:
            self.kept.append((end, seconds))


class FirehoseSpout(PacedSpout):
    """Emits during the slow and the fast phase of the bolts, without a limit on tuples."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        self.parameters = self.report.spec["parameters"]
        self.duration_s += self.parameters["fast_s"]
        self.limit = self.pace.total(self.duration_s) if self.pace is not None else 0
        self.makes_up_ns = int(1e9 * self.parameters.get("makes_up_s", 0.0))
        self.stops = Stops()
        self.last_ns = 0

    def emit_one(self) -> None:
        """Emit the next tuple with the current time, because its due time is meaningless under overload."""
        now = time.monotonic_ns()
        if self.makes_up_ns and self.pace is not None:
            # Postpone later tuples: the source offers its rate and has no backlog.
            self.pace.start_ns += max(0, now - self.due_ns - self.makes_up_ns)
        self.due_ns = now
        self.stops.note(now / 1e9, (now - (self.last_ns or now)) / 1e9)
        self.last_ns = now
        super().emit_one()

    def catch_up(self, now: int) -> None:
        """Do nothing: late tuples are emitted one per call, so that backpressure applies to each."""

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "stops": self.stops.kept}


class SkewedSpout(FirehoseSpout):
    """Emits the share `hot` of its tuples with one payload, and its other tuples with 100 other payloads."""

    def emit_one(self) -> None:
        number = self.sent % 100
        self.payload = b"hot" if number < 100 * self.parameters["hot"] else b"%d" % (self.sent // 7 % 100)
        super().emit_one()


class SlowBolt(LatencySink):
    """Serves `capacity` tuples a second for a time, then as fast as possible; latencies are those of the slow phase."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        p = self.report.spec["parameters"]
        self.pause_s, self.pause_every = p["pause_s"], p["pause_every"]
        self.service_s = 1.0 / (p["capacity"] * (1.0 if self.report.place else p["first"]))
        self.slow_s = self.report.spec["duration_s"]
        self.late = Stops()
        self.slow_count = 0
        self.free_at = self.first_at = self.fast_at = 0.0

    def process(self, tup: Any) -> None:
        super().process(tup)
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
            self.slow_latencies, self.latencies = self.latencies, Latencies()
            return
        if now > self.free_at + 0.1:
            # Capacity is lost if there is no input for longer than a timer can be late.
            self.free_at = now
        self.free_at += self.service_s + (0.0 if self.received % self.pause_every else self.pause_s)
        if self.free_at > now:
            time.sleep(self.free_at - now)
            woken = time.monotonic()
            self.late.note(woken, woken - self.free_at)

    def facts(self) -> dict[str, Any]:
        if self.fast_at:
            self.latencies = self.slow_latencies
        return {
            **super().facts(),
            "capacity": 1.0 / (self.service_s + self.pause_s / self.pause_every),
            "first_at": self.first_at,
            "fast_at": self.fast_at or time.monotonic(),
            "slow_count": self.slow_count or self.received,
            "late": self.late.kept,
        }


class StallingBolt(LoadSink):
    """Counts tuples, and stalls once while it processes a tuple."""

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
        """Record the progress, and stall once at the configured time."""
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
    p = spec["parameters"]
    if "stall_s" in p:
        source = made.add_spout("source", FirehoseSpout, par=1, config=config_of(spec))
        # The stalling bolt records its own progress.
        made.add_bolt("stalls", StallingBolt, par=1, inputs={source: Grouping.SHUFFLE}, config=config_of(spec))
        return
    spout, grouping = (SkewedSpout, Grouping.fields("payload")) if p["hot"] else (FirehoseSpout, Grouping.SHUFFLE)
    source = made.add_spout("source", spout, par=1, config=config_of(spec))
    made.add_bolt("slow", SlowBolt, par=p["tasks"], inputs={source: grouping}, config=config_of(spec, sink=True))


if __name__ == "__main__":
    submit(describe, __doc__)
