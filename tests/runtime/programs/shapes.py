"""Many small topologies in one: every grouping and shape, finite input, exact tallies at the end.

Each sink writes what it has counted to a file of its own in `finish`.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.custom_grouping import ICustomGrouping
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping, Stream
from heronpy.api.topology import TopologyBuilder

WORDS = "the quick brown fox jumps over the lazy dog and a river of tuples é 日本 a b c".split()


class Finite(Spout):
    """Emits `count` tuples per task, replays what fails, ends when all is acked."""

    def initialize(self, config, context):
        self.count = config["count"]
        self.reliable = config["topology.reliability.mode"] == "ATLEAST_ONCE"
        self.next, self.pending, self.again = 0, set(), []
        self.task = context.get_task_id()
        self.context = context

    def next_tuple(self):
        if self.again:
            number = self.again.pop()
        elif self.next < self.count:
            number = self.next
            self.next += 1
        else:
            if not self.pending:
                self.end_of_input()
            return
        if self.reliable:
            self.pending.add(number)
        self.send(number, number if self.reliable else None)

    def ack(self, tup_id):
        self.pending.discard(tup_id)

    def fail(self, tup_id):
        self.again.append(tup_id)


class Words(Finite):
    outputs = ["word"]

    def send(self, number, tup_id):
        self.emit([WORDS[number % len(WORDS)]], tup_id=tup_id)


class Sentences(Finite):
    outputs = ["sentence"]

    def send(self, number, tup_id):
        start = number % 7
        self.emit([" ".join(WORDS[start : start + 5])], tup_id=tup_id)


class Numbers(Finite):
    outputs = ["source", "number"]

    def send(self, number, tup_id):
        self.emit([self.task, number], tup_id=tup_id)


class Two(Finite):
    """Two streams to one consumer, alternating: their order must hold."""

    outputs = [Stream(["source", "number"], "default"), Stream(["number", "source", "extra"], "odd")]

    def send(self, number, tup_id):
        if number % 2:
            self.emit([number, self.task, {"odd": True}], tup_id=tup_id, stream="odd")
        else:
            self.emit([self.task, number], tup_id=tup_id)


class Jobs(Finite):
    """Names the receiver itself."""

    outputs = [Stream(["number"], direct=True)]

    def send(self, number, tup_id):
        tasks = self.context.get_component_tasks("workers")
        self.emit([number], tup_id=tup_id, direct_task=tasks[number % len(tasks)])


class Split(Bolt):
    outputs = ["word"]

    def process(self, tup):
        for word in tup.values[0].split():
            self.emit([word], anchors=[tup])
        self.ack(tup)


class Pass(Bolt):
    outputs = ["source", "number"]

    def process(self, tup):
        self.emit(tup.values, anchors=[tup])
        self.ack(tup)


class Pairs(Bolt):
    """Joins two tuples of perhaps the same tree into one that is anchored to both."""

    outputs = ["source", "number"]

    def initialize(self, config, context):
        self.held = None

    def process(self, tup):
        if self.held is None:
            self.held = tup
            return
        first, self.held = self.held, None
        self.emit(first.values, anchors=[first, tup])
        self.emit(tup.values, anchors=[first, tup])
        self.ack(first)
        self.ack(tup)

    def process_tick(self, tup):
        # A replay, or a tick, may have left one without its partner.
        self.finish()

    def finish(self):
        """There are no more ticks at the end of the input."""
        if self.held is not None:
            self.emit(self.held.values, anchors=[self.held])
            self.ack(self.held)
            self.held = None


class Tally(Bolt):
    """Counts what it gets by its first value, and checks the order of numbers."""

    def initialize(self, config, context):
        self.counts: Counter[str] = Counter()
        self.last: dict[object, int] = {}
        self.disorder = 0
        self.ordered = config.get("ordered", False)
        self.path = Path(config["out"]) / f"{context.get_component_id()}.{context.get_task_id()}.json"

    def process(self, tup):
        values = tup.values
        if tup.stream == "odd":
            assert values[2] == {"odd": True}
            values = [values[1], values[0]]
        self.counts[str(values[0])] += 1
        if self.ordered:
            if values[1] <= self.last.get(values[0], -1):
                self.disorder += 1
            self.last[values[0]] = values[1]
        self.ack(tup)

    def finish(self):
        self.path.write_text(json.dumps({"counts": self.counts, "disorder": self.disorder}))


class Pulse(Bolt):
    """Emits on every tick: the end of the input must end that, too."""

    outputs = ["source", "number"]

    def process(self, tup):
        self.ack(tup)

    def process_tick(self, tup):
        self.emit(["pulse", 1])


class Mod(ICustomGrouping):
    """Task by number."""

    def prepare(self, context, component, stream, target_tasks):
        self.tasks = target_tasks

    def choose_tasks(self, values):
        return [self.tasks[values[1] % len(self.tasks)]]


def shapes(args: argparse.Namespace) -> TopologyBuilder:
    b = TopologyBuilder(args.name)
    ticks = {"topology.tick.tuple.freq.ms": 250}
    count, out = {"count": args.count}, {"out": args.out}
    ordered = {**out, "ordered": args.guarantee == "ATMOST_ONCE"}
    words = b.add_spout("words", Words, par=1, config=count)
    b.add_bolt("word_count", Tally, par=2, inputs={words: Grouping.fields("word")}, config=out)

    sentences = b.add_spout("sentences", Sentences, par=1, config=count)
    split = b.add_bolt("split", Split, par=2, inputs={sentences: Grouping.SHUFFLE})
    b.add_bolt("split_count", Tally, par=2, inputs={split: Grouping.fields("word")}, config=out)

    fan = b.add_spout("fan", Numbers, par=1, config=count)
    b.add_bolt("fan_all", Tally, par=3, inputs={fan: Grouping.ALL}, config=ordered)
    b.add_bolt("fan_one", Tally, par=2, inputs={fan: Grouping.SHUFFLE}, config=ordered)

    wide = b.add_spout("wide", Numbers, par=4, config=count)
    b.add_bolt("wide_tally", Tally, par=4, inputs={wide: Grouping.fields("number")}, config=ordered)
    b.add_bolt("chosen", Tally, par=2, inputs={wide: Grouping.custom(Mod())}, config=ordered)

    deep = b.add_spout("deep", Numbers, par=1, config=count)
    for number in range(1, 4):
        kind = Pairs if number == 2 else Pass
        deep = b.add_bolt(f"deep_{number}", kind, par=1, inputs={deep: Grouping.SHUFFLE}, config=ticks)
    b.add_bolt("deep_tally", Tally, par=1, inputs={deep: Grouping.LOWEST}, config=ordered)

    two = b.add_spout("two", Two, par=1, config=count)
    b.add_bolt(
        "two_tally",
        Tally,
        par=2,
        inputs={two["default"]: Grouping.fields("source"), two["odd"]: Grouping.fields("source")},
        config=ordered,
    )
    pulse = b.add_bolt("pulse", Pulse, par=1, inputs={two: Grouping.SHUFFLE}, config=ticks)
    b.add_bolt("pulse_tally", Tally, par=1, inputs={pulse: Grouping.SHUFFLE}, config=out)
    jobs = b.add_spout("jobs", Jobs, par=1, config=count)
    b.add_bolt("workers", Tally, par=3, inputs={jobs: Grouping.DIRECT}, config=out)
    b.set_config(
        {
            "topology.reliability.mode": args.guarantee,
            "topology.stmgrs": args.containers,
            "topology.max.spout.pending": 500,
            "topology.message.timeout.secs": 30,
        }
    )
    return b


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--out", required=True)
    parser.add_argument("--count", type=int, default=4000)
    parser.add_argument("--guarantee", default="ATMOST_ONCE")
    parser.add_argument("--containers", type=int, default=1)
    shapes(parser.parse_args()).build_and_submit()


if __name__ == "__main__":
    main()
