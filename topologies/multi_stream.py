"""Several output streams of one component.

    heron submit local topologies/multi_stream.py MultiStream

A spout reads sensors. Good readings are emitted on the default stream, errors on a separate stream
with other fields, so that each consumer subscribes only to the streams that it can handle.
"""

from __future__ import annotations

import argparse
from typing import Any

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.component.component_spec import GlobalStreamId
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping, Stream
from heronpy.api.topology import TopologyBuilder
from heronpy.api.topology_context import TopologyContext
from heronpy.api.tuple import Tuple


class SensorSpout(Spout):
    """Emits ten readings a second; every fifth reading is an error."""

    # A plain string is a field of the default stream; a Stream is a separate stream.
    outputs = ["sensor", "celsius", Stream(fields=["sensor", "error"], name="broken")]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.count = 0

    def next_tuple(self) -> None:
        self.wait(0.1)
        self.count += 1
        sensor = f"s{self.count % 3}"
        if self.count % 5 == 0:
            self.emit([sensor, "no contact"], stream="broken")
        else:
            self.emit([sensor, 15.0 + self.count % 10])


class AverageBolt(Bolt):
    """Emits the running average of each sensor."""

    outputs = ["sensor", "average"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.sums: dict[str, tuple[float, int]] = {}

    def process(self, tup: Tuple) -> None:
        sensor, celsius = tup.values
        total, count = self.sums.get(sensor, (0.0, 0))
        self.sums[sensor] = (total + celsius, count + 1)
        self.emit([sensor, (total + celsius) / (count + 1)], anchors=[tup])
        self.ack(tup)


class ReportBolt(Bolt):
    """Consumes two streams, and distinguishes them by the attribute `stream` of a tuple."""

    def process(self, tup: Tuple) -> None:
        if tup.stream == "broken":
            self.logger.warning("%s is broken: %s", *tup.values)
        else:
            self.logger.info("%s is at %.1f degrees on average", *tup.values)
        self.ack(tup)


def multi_stream(name: str) -> TopologyBuilder:
    """Return the topology sensors -> average -> report; errors go directly from sensors to report."""
    builder = TopologyBuilder(name)
    sensors = builder.add_spout("sensors", SensorSpout, par=1)
    averages = builder.add_bolt("average", AverageBolt, par=2, inputs={sensors: Grouping.fields("sensor")})
    # `averages` alone means its default stream; spec["name"] or a GlobalStreamId means another stream.
    broken = GlobalStreamId("sensors", "broken")
    inputs = {averages: Grouping.SHUFFLE, broken: Grouping.SHUFFLE}
    builder.add_bolt("report", ReportBolt, par=1, inputs=inputs)
    return builder


def main() -> None:
    """Describe the topology and submit it."""
    parser = argparse.ArgumentParser(description="Use several streams of one component.")
    parser.add_argument("name", nargs="?", default="MultiStream", help="name of the topology")
    multi_stream(parser.parse_args().name).build_and_submit()


if __name__ == "__main__":
    main()
