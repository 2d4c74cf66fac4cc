"""Payloads of many sizes, up to megabytes; the sink compares every byte."""

from __future__ import annotations

from typing import Any

from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.api.topology_context import TopologyContext
from heronpy.loadtest.topologies.parts import LoadSink, config_of, submit
from heronpy.loadtest.topologies.passthrough import PacedSpout


def payload_of(size: int) -> bytes:
    """Return a payload of the given size, with varying bytes."""
    pattern = b"%08d" % size + bytes(range(256))
    return (pattern * (size // len(pattern) + 1))[:size]


def sizes_of(spec: dict[str, Any]) -> list[int]:
    """Return the sizes in order, doubling from the smallest to the largest, or only the requested size."""
    if spec["payload_bytes"]:
        return [spec["payload_bytes"]]
    p = spec["parameters"]
    sizes, size = [], p["smallest_bytes"]
    while size <= p["largest_bytes"]:
        sizes.append(size)
        size *= 2
    return sizes


class BigSpout(PacedSpout):
    """Emits payloads of all sizes in turn."""

    outputs = ["size", "payload"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        self.payloads = [(size, payload_of(size)) for size in sizes_of(self.report.spec)]

    def emit_one(self) -> None:
        self.due[self.sent] = self.due_ns
        self.emit(self.message(self.sent), self.sent)
        self.sent += 1
        if self.pace is not None:
            self.due_ns = self.pace.due_ns(self.sent - self.first)

    def message(self, number: int) -> list[Any]:
        return list(self.payloads[number % len(self.payloads)])

    def facts(self) -> dict[str, Any]:
        full, rest = divmod(self.sent, len(self.payloads))
        sizes = [size for size, _ in self.payloads]
        return {**super().facts(), "bytes": full * sum(sizes) + sum(sizes[:rest])}


class CompareBolt(LoadSink):
    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        self.expected = {size: payload_of(size) for size in sizes_of(self.report.spec)}
        self.bytes = self.wrong = 0

    def process(self, tup: Any) -> None:
        size, payload = tup.values
        self.wrong += payload != self.expected[size]
        self.received += 1
        self.bytes += len(payload)
        self.ack(tup)

    def finish(self) -> None:
        self.report.write(self.received, bytes=self.bytes, wrong=self.wrong)


def describe(spec: dict[str, Any], made: TopologyBuilder) -> None:
    """source -> sink"""
    p = spec["parameters"]
    source = made.add_spout("source", BigSpout, par=p["spouts"], config=config_of(spec))
    inputs = {source: Grouping.SHUFFLE}
    made.add_bolt("sink", CompareBolt, par=p["sinks"], inputs=inputs, config=config_of(spec, sink=True))


if __name__ == "__main__":
    submit(describe, __doc__)
