"""A spout of coroutines -> a bolt that counts: replays, several coroutines at once, an exception, a source that blocks."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import Counter
from pathlib import Path

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.async_spout import AsyncSpout
from heronpy.api.stream import Grouping, Stream
from heronpy.api.topology import TopologyBuilder

READERS = 4


class Numbers(AsyncSpout):
    """READERS coroutines emit the numbers below `count`; what fails is emitted again by a coroutine."""

    outputs = ["number", Stream(["number"], "odd")]

    def initialize(self, config, context):
        self.out, self.count = Path(config["out"]), config["count"]
        self.open = self.most = 0

    async def run(self):
        self.log("run begins")
        try:
            async with asyncio.TaskGroup() as readers:
                for reader in range(READERS):
                    readers.create_task(self.read(reader))
        finally:
            self.log("run has ended")

    async def read(self, reader):
        for number in range(reader, self.count, READERS):
            if number % 1000 == 0:
                await asyncio.sleep(0.001)
            if number == self.count // 2 and not (self.out / "raised").exists():
                (self.out / "raised").touch()
                raise ValueError("the source broke down")
            await self.send(number)

    async def send(self, number):
        await self.emit([number], tup_id=number, stream="odd" if number % 2 else "default")
        self.open += 1
        if self.open > self.most:
            self.most = self.open
            (self.out / "most").write_text(str(self.most))

    async def ack(self, tup_id):
        self.open -= 1
        await asyncio.sleep(0)

    async def fail(self, tup_id):
        self.open -= 1
        await self.send(tup_id)

    async def activate(self):
        self.log("activate called")

    async def deactivate(self):
        self.log("deactivate called")


class Blocking(Numbers):
    """Waits for a long time, which is no fault, then blocks its loop."""

    async def run(self):
        await asyncio.sleep(3)
        self.log("waited")
        await self.emit([1])
        if not (self.out / "blocked").exists():
            (self.out / "blocked").touch()
            self.block_here()
        await asyncio.Event().wait()

    def block_here(self):
        while True:
            time.sleep(0.01)


class Count(Bolt):
    """Fails every 100th number the first time."""

    def initialize(self, config, context):
        self.out = Path(config["out"]) / f"counts.{context.get_task_id()}.json"
        self.counts = Counter()
        self.fails = config["topology.reliability.mode"] == "ATLEAST_ONCE"

    def process(self, tup):
        number = tup.values[0]
        self.counts[number] += 1
        if self.fails and number % 100 == 0 and self.counts[number] == 1:
            self.fail(tup)
        else:
            self.ack(tup)

    def finish(self):
        self.out.write_text(json.dumps(self.counts))


def async_sources(
    name: str, out: str, mode: str = "ATLEAST_ONCE", count: int = 5000, pending: int = 200, blocking: bool = False
) -> TopologyBuilder:
    b = TopologyBuilder(name)
    settings = {"heron.instance.hang_timeout_s": 2.0} if blocking else {}
    source = b.add_spout("numbers", Blocking if blocking else Numbers, par=1, config=settings)
    inputs = {source: Grouping.fields("number"), source["odd"]: Grouping.SHUFFLE}
    b.add_bolt("count", Count, par=2, inputs=inputs)
    b.set_config({"out": out, "count": count, "topology.reliability.mode": mode, "topology.max.spout.pending": pending})
    return b


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--out", required=True)
    parser.add_argument("--mode", default="ATLEAST_ONCE")
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--pending", type=int, default=200)
    parser.add_argument("--blocking", action="store_true")
    async_sources(**vars(parser.parse_args())).build_and_submit()


if __name__ == "__main__":
    main()
