"""An asynchronous bolt: many slow look-ups run concurrently in one task.

    heron submit local topologies/async_bolt.py AsyncBolt

Each look-up takes 0.1 s, like a call to a web service. A plain bolt makes ten look-ups a second. This bolt runs up to
50 look-ups concurrently in one process, and acks each tuple separately.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
from typing import Any

from heronpy.api.bolt.async_bolt import AsyncBolt
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.api.topology_context import TopologyContext
from heronpy.api.tuple import Tuple

CITIES = ("Athens", "Berlin", "Cairo", "Dublin", "Essen")


class CitySpout(Spout):
    """Emits city names as fast as the bolt processes them: backpressure sets the pace."""

    outputs = ["number", "city"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.numbers = itertools.count()
        self.limit = config.get("async_bolt.count", 0)

    def next_tuple(self) -> None:
        number = next(self.numbers)
        if self.limit and number >= self.limit:
            self.end_of_input()
            return
        self.emit([number, CITIES[number % len(CITIES)]])


class LookUpBolt(AsyncBolt):
    """Looks up the weather. Results are emitted in the order in which the look-ups end."""

    outputs = ["number", "weather"]

    async def process(self, tup: Tuple) -> None:
        number, city = tup.values
        weather = await self.look_up(city)
        # No lock is needed: all look-ups of a task share one thread, and take turns only at an await.
        self.emit([number, f"{weather} in {city}"], anchors=[tup])
        self.ack(tup)

    @staticmethod
    async def look_up(city: str) -> str:
        """Simulate a call to a service with an asynchronous client."""
        await asyncio.sleep(0.1)
        return "sunny" if len(city) % 2 else "rainy"


class ReportBolt(Bolt):
    """Logs every thousandth result."""

    def process(self, tup: Tuple) -> None:
        number, weather = tup.values
        if number % 1000 == 0:
            self.logger.info("%d: %s", number, weather)
        self.ack(tup)


def async_bolt(name: str, count: int = 0) -> TopologyBuilder:
    """Return the topology cities -> look up -> report. With a count, the input ends."""
    builder = TopologyBuilder(name)
    cities = builder.add_spout("cities", CitySpout, par=1, config={"async_bolt.count": count})
    weather = builder.add_bolt(
        "look_up",
        LookUpBolt,
        par=1,
        inputs={cities: Grouping.SHUFFLE},
        # Maximum number of tuples that one task processes concurrently.
        config={"heron.instance.async_concurrency": 50},
    )
    builder.add_bolt("report", ReportBolt, par=1, inputs={weather: Grouping.SHUFFLE})
    return builder


def main() -> None:
    """Describe the topology and submit it."""
    parser = argparse.ArgumentParser(description="Wait for many services concurrently.")
    parser.add_argument("name", nargs="?", default="AsyncBolt", help="name of the topology")
    parser.add_argument("--count", type=int, default=0, help="end after this many look-ups; 0: never")
    args = parser.parse_args()
    async_bolt(args.name, args.count).build_and_submit()


if __name__ == "__main__":
    main()
