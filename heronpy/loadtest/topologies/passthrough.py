"""Tuples at a fixed rate through any number of relays; the sink measures from the intended send time.

Without a rate the spout emits as fast as possible, and the latency is that of a saturated topology.
"""

from __future__ import annotations

import time
from typing import Any

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.state.stateful_component import StatefulComponent
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.api.topology_context import TopologyContext
from heronpy.loadtest.topologies.parts import Latencies, LoadSink, LoadSpout, Pace, acked, config_of, submit

#: Maximum tuples per call to next_tuple, because the task handles acks and barriers between calls.
DUE_MAX = 500


class PacedSpout(LoadSpout):
    """Emits tuple n when it is due, or immediately if it is late."""

    outputs = ["number", "due_ns", "payload"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        spec = self.report.spec
        p, rate = spec["parameters"], spec["rate"]
        if rate:
            self.pace = Pace(rate, p.get("burst_factor", 1.0), p.get("burst_at_s", 0.0), p.get("burst_s", 0.0))
            self.limit = self.limit if spec["tuples"] else self.pace.total(self.duration_s)
        self.payload = bytes(spec["payload_bytes"])
        self.polled = p.get("polled", False)
        self.due: dict[int, int] = {}
        self.ack_latencies = Latencies()
        self.started_ns = 0
        self.sent = self.first = self.kept_position()

    def start(self) -> None:
        self.started_ns = self.due_ns = time.monotonic_ns()
        self.end_ns = self.started_ns + int(self.duration_s * 1e9)
        if self.pace is not None:
            self.pace.start_ns = self.started_ns
        self.report.mark(0)

    def message(self, number: int) -> list[Any]:
        return [number, self.due[number], self.payload]

    def next_tuple(self) -> None:
        now = time.monotonic_ns()
        if not self.started_ns:
            self.start()
        if self.pace is None:
            self.due_ns = now
        elif now < self.due_ns:
            if self.again:
                self.replay()
            self.wait_until_due(now)
            return
        if self.sent >= self.limit if self.limit else now >= self.end_ns:
            self.finish_when_acked(**self.facts())
            return
        self.emit_one()
        if self.pace is not None:
            self.catch_up(now)
            self.wait_until_due(now)
        self.report.mark(self.sent, now / 1e9)

    def emit_one(self) -> None:
        """Emit the next tuple, and compute the due time of the following tuple."""
        number = self.sent
        if self.tracked:
            self.due[number] = self.due_ns
            self.emit([number, self.due_ns, self.payload], number)
        else:
            self.emit([number, self.due_ns, self.payload])
        self.sent = number + 1
        if self.pace is not None:
            self.due_ns = self.pace.due_ns(number + 1 - self.first)

    def catch_up(self, now: int) -> None:
        """Emit all due tuples, so that the call frequency of next_tuple does not limit the rate."""
        last = min(self.limit, self.sent + DUE_MAX)
        while self.due_ns <= now and self.sent < last:
            self.emit_one()

    def wait_until_due(self, now: int) -> None:
        """Request the next call to next_tuple at the due time, unless the run measures a polled spout."""
        if now < self.due_ns and not self.polled and not self.again:
            self.wait((self.due_ns - now) / 1e9)

    def ack(self, tup_id: int) -> None:
        self.acked_count += 1
        self.ack_latencies.record(time.monotonic_ns() - self.due.pop(tup_id))
        if len(self.ack_latencies.fresh) > 10_000:
            self.ack_latencies.fold()

    def facts(self) -> dict[str, Any]:
        """The content of the report in addition to the counts."""
        acks = {"ack_latency": self.ack_latencies.as_json()} if self.tracked else {}
        return {"started_at": self.started_ns / 1e9, **acks}


class Relay(Bolt):
    outputs = ["number", "due_ns", "payload"]

    def process(self, tup: Any) -> None:
        self.emit(tup.values)


class AckedRelay(Relay):
    def process(self, tup: Any) -> None:
        self.emit(tup.values, anchors=[tup])
        self.ack(tup)


class LatencySink(LoadSink, StatefulComponent):
    """Measures each tuple's latency and sums the tuples' numbers; the sums are its state."""

    kept: Any = None

    def init_state(self, stateful_state: Any) -> None:
        self.kept = stateful_state

    def pre_save(self, checkpoint_id: str) -> None:
        self.kept["sums"] = (self.received, self.numbers)

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        self.latencies = Latencies()
        sums: tuple[int, int] = self.kept.get("sums", (0, 0)) if self.kept else (0, 0)
        self.received, self.numbers = sums
        self.last_ns = 0

    def process(self, tup: Any) -> None:
        self.last_ns = now = time.monotonic_ns()
        self.latencies.record(now - tup.values[1])
        self.received += 1
        self.numbers += tup.values[0]

    def process_tick(self, tup: Any) -> None:
        super().process_tick(tup)
        self.latencies.fold()

    def finish(self) -> None:
        if self.last_ns:
            # There are no ticks after the end of the spouts, and the last tuples may have arrived after the last tick.
            self.report.arrived(self.received, self.last_ns / 1e9)
        self.report.write(self.received, **self.facts())

    def facts(self) -> dict[str, Any]:
        """The content of the report in addition to the counts."""
        return {"numbers": self.numbers, "latency": self.latencies.as_json()}


class AckedLatencySink(LatencySink):
    def process(self, tup: Any) -> None:
        super().process(tup)
        self.ack(tup)


def describe(spec: dict[str, Any], made: TopologyBuilder) -> None:
    """source -> relays -> sink"""
    p, tracked = spec["parameters"], acked(spec)
    stage = made.add_spout("source", PacedSpout, par=p["spouts"], config=config_of(spec))
    for number in range(1, p["relays"] + 1):
        relay = AckedRelay if tracked else Relay
        stage = made.add_bolt(f"relay{number}", relay, par=p["relay_tasks"], inputs={stage: Grouping.SHUFFLE})
    sink = AckedLatencySink if tracked else LatencySink
    grouping = Grouping.ALL if p["copies"] else Grouping.SHUFFLE
    made.add_bolt("sink", sink, par=p["sinks"], inputs={stage: grouping}, config=config_of(spec, sink=True))


if __name__ == "__main__":
    submit(describe, __doc__)
