"""source -> work: tuples of few contents, each of them worth a millisecond; some contents kill the task."""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import os
import time
from pathlib import Path

from heronpy.api.bolt.async_bolt import AsyncBolt
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.state.stateful_component import StatefulComponent
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder

POISON = "poison"


class Source(Spout, StatefulComponent):
    outputs = ["word"]

    def init_state(self, state):
        self.state = state

    def initialize(self, config, context):
        self.reliable = config["topology.reliability.mode"] == "ATLEAST_ONCE"
        self.count, self.poison = config["count"], config["poison"]
        self.again: list[int] = []
        self.pending: set[int] = set()
        if self.reliable:
            self.state = {}
        self.acked = os.open(Path(config["out"]) / "acked", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def send(self, number):
        # The poison is in the middle, one in three.
        mine = number - self.count // 2
        word = POISON if 0 <= mine < 3 * self.poison and mine % 3 == 0 else "same"
        if self.reliable:
            self.pending.add(number)
            self.emit([word], tup_id=number)
        else:
            self.emit([word])

    def next_tuple(self):
        number = self.state.get("next", 0)
        if self.again:
            self.send(self.again.pop())
        elif number < self.count:
            self.state["next"] = number + 1
            self.send(number)
        elif not self.pending:
            self.end_of_input()

    def ack(self, tup_id):
        if self.reliable:
            self.pending.discard(tup_id)
            os.write(self.acked, b"%d\n" % tup_id)

    def fail(self, tup_id):
        if tup_id in self.pending:
            self.pending.discard(tup_id)
            self.again.append(tup_id)


class Work(Bolt, StatefulComponent):
    def init_state(self, state):
        self.state = state

    def initialize(self, config, context):
        self.out = Path(config["out"])
        self.pause_s = config["pause_ms"] / 1000
        self.away_s = config["away_s"]
        if config["topology.reliability.mode"] != "EFFECTIVELY_ONCE":
            self.state = {}

    def take(self, tup):
        if self.away_s:
            self.depend()
        if tup.values[0] == POISON:
            with open(self.out / "deaths", "a") as deaths:
                deaths.write("x")
            ctypes.string_at(0)
        self.state["count"] = self.state.get("count", 0) + 1
        self.ack(tup)

    def depend(self):
        """What it depends on is away for a while after the first call."""
        since = self.out / "since"
        if not since.exists():
            since.touch()
        if time.time() < since.stat().st_mtime + self.away_s:
            with open(self.out / "raised", "a") as raised:
                raised.write("x")
            raise ConnectionError("what it depends on is away")

    def process(self, tup):
        time.sleep(self.pause_s)
        self.take(tup)

    def finish(self):
        (self.out / "counted").write_text(str(self.state["count"]))


class AsyncWork(AsyncBolt, StatefulComponent):
    init_state, initialize, take, finish = Work.init_state, Work.initialize, Work.take, Work.finish
    depend = Work.depend

    async def process(self, tup):
        await asyncio.sleep(self.pause_s)
        self.take(tup)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--out")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--poison", type=int, default=0)
    parser.add_argument("--pause-ms", type=float, default=1.0)
    parser.add_argument("--away-s", type=float, default=0.0)
    parser.add_argument("--mode", default="ATLEAST_ONCE")
    parser.add_argument("--asynchronous", action="store_true")
    args = parser.parse_args()
    b = TopologyBuilder(args.name)
    source = b.add_spout("source", Source, par=1)
    work = AsyncWork if args.asynchronous else Work
    b.add_bolt("work", work, par=1, inputs={source: Grouping.SHUFFLE})
    b.set_config(
        {
            "out": args.out,
            "count": args.count,
            "poison": args.poison,
            "pause_ms": args.pause_ms,
            "away_s": args.away_s,
            "topology.reliability.mode": args.mode,
            "topology.stmgrs": 1,
            "topology.max.spout.pending": 300,
            "topology.message.timeout.secs": 5,
        }
    )
    b.build_and_submit()


if __name__ == "__main__":
    main()
