"""Counts lines by two keys in bolts that hold thousands of tuples, like the flight demo but without Spark.

    lines x2 -> parse x2 -> by_carrier x2 (hold 5,000 tuples) -> totals
                         \\-> by_origin x2 (hold 5,000 tuples) -/

A counting bolt emits one tuple per key and delay, anchored to all tuples that it represents, and acknowledges these
tuples key by key, not in the order of arrival.
"""

from __future__ import annotations

from typing import Any

from heronpy.api import api_constants
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.state.stateful_component import StatefulComponent
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.api.topology_context import TopologyContext
from heronpy.loadtest.inputs import KINDS, flight, flight_lines
from heronpy.loadtest.topologies.parts import CountingSink, Report, acked, config_of, submit
from heronpy.loadtest.topologies.words import AckedWordSpout, WordSpout

#: Maximum time for which a counting bolt holds tuples.
FLUSH_MS = 500


class LineSpout(WordSpout):
    outputs = ["line"]

    def read_messages(self, p: dict[str, Any]) -> list[str]:
        return flight_lines(p["lines"], p["carriers"], p["origins"], p["delays"])


class AckedLineSpout(LineSpout, AckedWordSpout):
    """A LineSpout for at-least-once mode: every line has an id, and is emitted again when it fails."""


class ParseBolt(Bolt):
    outputs = ["carrier", "origin", "delay"]

    def process(self, tup: Any) -> None:
        self.emit(list(flight(tup.values[0])))


class AckedParseBolt(ParseBolt):
    def process(self, tup: Any) -> None:
        self.emit(list(flight(tup.values[0])), anchors=[tup])
        self.ack(tup)


class HoldBolt(Bolt, StatefulComponent):
    """Counts by key and delay; holds counted tuples until the tuple that represents them is emitted."""

    outputs = ["kind", "key", "delay", "lines"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        report = Report(config, context, "holder")
        self.hold = report.spec["parameters"]["hold"]
        self.kind = report.facts["component"].removeprefix("by_")
        self.column = KINDS.index(self.kind)
        self.held: dict[tuple[str, int], list[Any]] = {}
        self.count = 0

    def process(self, tup: Any) -> None:
        values = tup.values
        self.held.setdefault((values[self.column], values[2]), []).append(tup)
        self.count += 1
        if self.count >= self.hold:
            self.flush()

    def process_tick(self, tup: Any) -> None:
        self.flush()

    def pre_save(self, checkpoint_id: str) -> None:
        # These tuples precede the barrier, so a restore needs no held counts.
        self.flush()

    def finish(self) -> None:
        self.flush()

    def flush(self) -> None:
        """Emit the counts; the held tuples are acknowledged key by key."""
        for (key, delay), tuples in self.held.items():
            self.emit([self.kind, key, delay, len(tuples)], anchors=tuples)
            self.ack(tuples)
        self.held = {}
        self.count = 0


class TotalsBolt(CountingSink):
    """Sums the counts by kind, key and delay."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        self.lines = self.counted()

    def counted(self) -> int:
        """Return the number of lines counted under the first kind of key; each line counts once under each kind."""
        return sum(count for (kind, _, _), count in self.counts.items() if kind == KINDS[0])

    def process(self, tup: Any) -> None:
        kind, key, delay, count = tup.values
        self.counts[kind, key, delay] = self.counts.get((kind, key, delay), 0) + count
        if kind == KINDS[0]:
            self.lines += count
        self.ack(tup)

    def process_tick(self, tup: Any) -> None:
        self.report.mark(self.lines)

    def finish(self) -> None:
        totals = [[*key, count] for key, count in self.counts.items()]
        self.report.write(self.counted(), totals=totals)


def describe(spec: dict[str, Any], made: TopologyBuilder) -> None:
    """lines -> parse -> by_carrier, by_origin -> totals"""
    if spec["payload_bytes"]:
        raise SystemExit("error: the topology 'aggregate' has no payload; leave out --payload")
    p = spec["parameters"]
    spout, parser = (AckedLineSpout, AckedParseBolt) if acked(spec) else (LineSpout, ParseBolt)
    lines = made.add_spout("lines", spout, par=p["spouts"], config=config_of(spec))
    flights = made.add_bolt("parse", parser, par=p["parsers"], inputs={lines: Grouping.SHUFFLE})
    counts = [
        made.add_bolt(
            f"by_{kind}",
            HoldBolt,
            par=p["counters"],
            inputs={flights: Grouping.fields(kind)},
            config={**config_of(spec), api_constants.TOPOLOGY_TICK_TUPLE_FREQ_MS: FLUSH_MS},
        )
        for kind in KINDS
    ]
    inputs = {count: Grouping.SHUFFLE for count in counts}
    made.add_bolt("totals", TotalsBolt, par=1, inputs=inputs, config=config_of(spec, sink=True))


if __name__ == "__main__":
    submit(describe, __doc__)
