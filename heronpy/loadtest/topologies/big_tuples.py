"""Payloads of many sizes, up to megabytes; the sink compares every byte.

heron submit local big_tuples.py - --spec spec.json
"""

from __future__ import annotations

import time
from typing import Any

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.stream import Grouping
from heronpy.api.topology_context import TopologyContext
from heronpy.loadtest.topologies.parts import LoadSpout, Pace, Report, builder, config_of, read_spec, share


def payload_of(size: int) -> bytes:
    """A payload of the given size, with varying bytes."""
    pattern = b"%08d" % size + bytes(range(256))
    return (pattern * (size // len(pattern) + 1))[:size]


def sizes_of(spec: dict[str, Any]) -> list[int]:
    """The sizes in turn: doubling from the smallest to the largest, or the requested one."""
    if spec["payload_bytes"]:
        return [spec["payload_bytes"]]
    p = spec["parameters"]
    sizes, size = [], p["smallest_bytes"]
    while size <= p["largest_bytes"]:
        sizes.append(size)
        size *= 2
    return sizes


class BigSpout(LoadSpout):
    """Emits payloads of all sizes in turn."""

    outputs = ["size", "payload"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.report = Report(config, context, "spout")
        spec = self.report.spec
        self.payloads = [(size, payload_of(size)) for size in sizes_of(spec)]
        self.duration_s = spec["duration_s"]
        self.limit = share(spec["tuples"], self.report) if spec["tuples"] else 0
        self.pace = Pace(spec["rate"]) if spec["rate"] else None
        self.end_at = 0.0
        self.start_acks()

    def message(self, number: int) -> list[Any]:
        return list(self.payloads[number % len(self.payloads)])

    def next_tuple(self) -> None:
        now = time.monotonic()
        if not self.end_at:
            self.end_at = now + self.duration_s
            if self.pace is not None:
                self.pace.start_ns = int(now * 1e9)
        if self.again:
            self.replay()
        elif self.sent >= self.limit if self.limit else now >= self.end_at:
            self.finish_when_acked(bytes=self.bytes_of(self.sent))
        elif self.pace is None or now * 1e9 >= self.pace.due_ns(self.sent):
            self.emit(self.message(self.sent), self.sent)
            self.sent += 1
            self.report.mark(self.sent, now)

    def bytes_of(self, sent: int) -> int:
        """The payload bytes of a number of tuples."""
        full, rest = divmod(sent, len(self.payloads))
        sizes = [size for size, _ in self.payloads]
        return full * sum(sizes) + sum(sizes[:rest])


class CompareBolt(Bolt):
    """Compares every payload with the expected one."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.report = Report(config, context, "sink")
        self.expected = {size: payload_of(size) for size in sizes_of(self.report.spec)}
        self.received = self.bytes = self.wrong = 0

    def process(self, tup: Any) -> None:
        size, payload = tup.values
        self.wrong += payload != self.expected[size]
        self.received += 1
        self.bytes += len(payload)
        self.ack(tup)

    def process_tick(self, tup: Any) -> None:
        self.report.mark(self.received)

    def finish(self) -> None:
        self.report.write(self.received, bytes=self.bytes, wrong=self.wrong)


def main() -> None:
    """Describe the topology and submit it."""
    spec = read_spec(__doc__)
    p, made = spec["parameters"], builder(spec)
    source = made.add_spout("source", BigSpout, par=p["spouts"], config=config_of(spec))
    inputs = {source: Grouping.SHUFFLE}
    made.add_bolt("sink", CompareBolt, par=p["sinks"], inputs=inputs, config=config_of(spec, sink=True))
    made.build_and_submit()


if __name__ == "__main__":
    main()
