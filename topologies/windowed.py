"""Windows over time: an average per sliding window and a count per tumbling window.

    heron submit local topologies/windowed.py Windowed

Sliding windows overlap: here each lasts ten seconds, and a new window begins every two seconds. Tumbling
windows follow each other. A window bolt acks a tuple when the tuple leaves its last window.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

from heronpy.api.bolt.window_bolt import SlidingWindowBolt, TumblingWindowBolt, WindowContext
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.api.topology_context import TopologyContext
from heronpy.api.tuple import Tuple


class TemperatureSpout(Spout):
    """Emits ten readings a second."""

    outputs = ["celsius"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.count = 0

    def next_tuple(self) -> None:
        self.count += 1
        self.emit([20.0 + 5.0 * math.sin(self.count / 50.0)])
        self.wait(0.1)


class AverageBolt(SlidingWindowBolt):
    """Emits the average of the last ten seconds, every two seconds."""

    outputs = ["start", "end", "average"]

    def processWindow(self, window_info: WindowContext, tuples: list[Tuple]) -> None:
        if not tuples:
            return
        average = sum(tup.values[0] for tup in tuples) / len(tuples)
        self.logger.info("average of %d readings: %.2f", len(tuples), average)
        self.emit([window_info.start, window_info.end, average])


class CountBolt(TumblingWindowBolt):
    """Emits the number of readings every five seconds."""

    outputs = ["start", "end", "count"]

    def processWindow(self, window_info: WindowContext, tuples: list[Tuple]) -> None:
        self.logger.info("%d readings in this window", len(tuples))
        self.emit([window_info.start, window_info.end, len(tuples)])


def windowed(name: str) -> TopologyBuilder:
    """Return the topology: one spout, and two bolts with different windows over the same readings."""
    builder = TopologyBuilder(name)
    readings = builder.add_spout("readings", TemperatureSpout, par=1)
    builder.add_bolt(
        "average",
        AverageBolt,
        par=1,
        inputs={readings: Grouping.SHUFFLE},
        config={
            AverageBolt.WINDOW_DURATION_SECS: 10,
            AverageBolt.WINDOW_SLIDEINTERVAL_SECS: 2,
        },
    )
    builder.add_bolt(
        "count",
        CountBolt,
        par=1,
        inputs={readings: Grouping.SHUFFLE},
        config={CountBolt.WINDOW_DURATION_SECS: 5},
    )
    return builder


def main() -> None:
    """Describe the topology and submit it."""
    parser = argparse.ArgumentParser(description="Aggregate readings in time windows.")
    parser.add_argument("name", nargs="?", default="Windowed", help="name of the topology")
    windowed(parser.parse_args().name).build_and_submit()


if __name__ == "__main__":
    main()
