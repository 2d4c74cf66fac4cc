"""A source -> an asynchronous bolt that says how many calls are in progress, which end when `go` is there, and -> a bolt that keeps its process."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from heronpy import AsyncBolt, Bolt, Grouping, Spout, TopologyBuilder


class Numbers(Spout):
    outputs = ["number"]

    def next_tuple(self):
        self.emit([1])
        self.wait(0.001)


class Call(AsyncBolt):
    def initialize(self, config, context):
        out = Path(config["out"])
        self.path, self.go, self.now = out / "calls", out / "go", 0

    async def process(self, tup):
        self.now += 1
        self.path.write_text(str(self.now))
        while not self.go.exists():
            await asyncio.sleep(0.05)
        self.now -= 1


class Work(Bolt):
    def process(self, tup):
        pass


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    builder = TopologyBuilder(args.name)
    numbers = builder.add_spout("numbers", Numbers, par=1)
    few = {"heron.instance.async_concurrency": 3}
    builder.add_bolt("call", Call, par=1, inputs={numbers: Grouping.SHUFFLE}, config=few)
    builder.add_bolt("work", Work, par=2, inputs={numbers: Grouping.SHUFFLE})
    builder.set_config({"out": args.out})
    builder.build_and_submit()
