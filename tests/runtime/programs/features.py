"""One component per feature of the runtime that users see; the tests read logs, metrics and files."""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path

from heronpy.api import global_metrics
from heronpy.api.bolt.async_bolt import AsyncBolt
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.metrics import CountMetric, MeanReducedMetric
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping
from heronpy.api.task_hook import ITaskHook
from heronpy.api.topology import TopologyBuilder


class Hook(ITaskHook):
    """Counts its own calls."""

    def __init__(self, log):
        self.log, self.counts = log, {}

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1
        if self.counts[what] in (1, 20):
            self.log(f"hook {what} {self.counts[what]}")

    def prepare(self, conf, context):
        self.count("prepare")

    def clean_up(self):
        self.count("clean_up")

    def emit(self, info):
        self.count("emit")

    def spout_ack(self, info):
        self.count("spout_ack")

    def spout_fail(self, info):
        self.count("spout_fail")

    def bolt_execute(self, info):
        self.count("bolt_execute")

    def bolt_ack(self, info):
        self.count("bolt_ack")

    def bolt_fail(self, info):
        self.count("bolt_fail")


class Patient(Spout):
    """Five tuples; those with odd numbers are never acked and time out."""

    outputs = ["number"]

    def initialize(self, config, context):
        self.next = 0
        self.emit([100], tup_id=100)  # from initialize, too

    def next_tuple(self):
        if self.next < 5:
            self.emit([self.next], tup_id=self.next)
            self.next += 1

    def ack(self, tup_id):
        self.logger.info("acked %d", tup_id)

    def fail(self, tup_id):
        self.logger.info("failed %d", tup_id)


class Sloth(Bolt):
    def process(self, tup):
        if tup.values[0] % 2 == 0:
            self.ack(tup)


class Held(Spout):
    """Emits as fast as it may."""

    outputs = ["number"]

    def initialize(self, config, context):
        self.number = self.open = self.most = 0

    def next_tuple(self):
        self.number += 1
        self.open += 1
        if self.open > self.most:
            self.most = self.open
            self.logger.info("most pending %d", self.most)
        self.emit([self.number], tup_id=self.number)

    def ack(self, tup_id):
        self.open -= 1

    def fail(self, tup_id):
        self.open -= 1


class Batcher(Bolt):
    """Acks only on ticks."""

    def initialize(self, config, context):
        self.held, self.ticks = [], 0

    def process(self, tup):
        self.held.append(tup)

    def process_tick(self, tup):
        self.ticks += 1
        for held in self.held:
            self.ack(held)
        self.held.clear()
        if self.ticks in (1, 5):
            self.logger.info("tick %d", self.ticks)


class Calls(Spout):
    """A finite input for the asynchronous bolt; replays."""

    outputs = ["number"]

    def initialize(self, config, context):
        self.todo, self.pending = list(range(300, 0, -1)), set()

    def next_tuple(self):
        if self.todo:
            number = self.todo.pop()
            self.pending.add(number)
            self.emit([number], tup_id=number)

    def ack(self, tup_id):
        self.pending.discard(tup_id)
        if not self.todo and not self.pending:
            self.logger.info("all calls acked")

    def fail(self, tup_id):
        self.pending.discard(tup_id)
        self.todo.append(tup_id)


class Caller(AsyncBolt):
    outputs = ["number"]

    def initialize(self, config, context):
        self.now = self.most = self.ticks = 0
        self.flag = Path(config["out"]) / "call.raised"

    async def process(self, tup):
        self.now += 1
        if self.now > self.most:
            self.most = self.now
            self.logger.info("most at once %d", self.most)
        try:
            await asyncio.sleep(0.01)
            if tup.values[0] == 150 and not self.flag.exists():
                self.flag.touch()
                raise ValueError("the call failed")
            self.emit([tup.values[0]], anchors=[tup])
            self.ack(tup)
        finally:
            self.now -= 1

    async def process_tick(self, tup):
        self.ticks += 1
        await asyncio.sleep(0)
        if self.ticks == 3:
            self.logger.info("async tick 3")


class Ids(Spout):
    """Hooks, metrics, prints."""

    outputs = ["number"]

    def initialize(self, config, context):
        self.number = 0
        context.add_task_hook(Hook(self.logger.info))
        self.counter, self.mean = CountMetric(), MeanReducedMetric()
        context.register_metric("my_count", self.counter, 1)
        context.register_metric("my_mean", self.mean, 1)
        print("printed by a spout")
        self.logger.warning("logged by a spout")
        self.log("logged the old way")

    def next_tuple(self):
        self.number += 1
        self.counter.incr()
        self.mean.update(self.number % 2 * 10)
        global_metrics.incr("everywhere")
        self.emit([self.number], tup_id=self.number)
        time.sleep(0.01)

    def ack(self, tup_id):
        if tup_id == 10:
            self.logger.info("acked 10")


class Hooked(Bolt):
    def initialize(self, config, context):
        context.add_task_hook(Hook(self.logger.info))

    def process(self, tup):
        if tup.values[0] % 2:
            self.ack(tup)
        else:
            self.fail(tup)


class Hanging(Bolt):
    """Does not come back from its 50th tuple, once."""

    def initialize(self, config, context):
        self.flag = Path(config["out"]) / "hung"
        self.seen = 0

    def process(self, tup):
        self.seen += 1
        self.ack(tup)
        if self.seen == 50 and not self.flag.exists():
            self.flag.touch()
            self.hang_here()
        if self.seen == 50:
            self.logger.info("fifty tuples")

    def hang_here(self):
        while True:
            time.sleep(0.01)


def features(args: argparse.Namespace) -> TopologyBuilder:
    b = TopologyBuilder(args.name)
    shuffle = Grouping.SHUFFLE
    if args.mode == "ATLEAST_ONCE":
        patient = b.add_spout("patient", Patient, par=1, config={"topology.message.timeout.secs": 10})
        b.add_bolt("sloth", Sloth, par=1, inputs={patient: shuffle})
        held = b.add_spout("held", Held, par=1, config={"topology.max.spout.pending": 7})
        b.add_bolt("batcher", Batcher, par=1, inputs={held: shuffle}, config={"topology.tick.tuple.freq.ms": 50})
        calls = b.add_spout("calls", Calls, par=1)
        b.add_bolt(
            "caller",
            Caller,
            par=1,
            inputs={calls: shuffle},
            config={"heron.instance.async_concurrency": 16, "topology.tick.tuple.freq.ms": 100},
        )
    else:
        ids = b.add_spout("ids", Ids, par=1)
        b.add_bolt("hooked", Hooked, par=1, inputs={ids: shuffle})
        b.add_bolt("seconds", Batcher, par=1, inputs={ids: shuffle}, config={"topology.tick.tuple.freq.secs": 1})
        b.add_bolt("hanging", Hanging, par=1, inputs={ids: shuffle}, config={"heron.instance.hang_timeout_s": 1.0})
    b.set_config({"out": args.out, "topology.reliability.mode": args.mode})
    return b


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--out", required=True)
    parser.add_argument("--mode", required=True)
    features(parser.parse_args()).build_and_submit()


if __name__ == "__main__":
    main()
