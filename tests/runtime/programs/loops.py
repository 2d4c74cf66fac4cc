"""A topology with a loop: numbers go round, one step of the Collatz sequence at a time, until they are 1."""

from __future__ import annotations

import argparse
from pathlib import Path

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.component.component_spec import GlobalStreamId
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping, Stream
from heronpy.api.topology import TopologyBuilder

LAST = 400
#: It comes by in the sequences of several numbers, and fails when it does so first.
FAILS_ONCE = 40


class Numbers(Spout):
    outputs = ["start", "now", "load"]

    def initialize(self, config, context):
        self.waiting = list(range(1, LAST + 1))
        self.load = "x" * int(config["load.bytes"])
        self.pending, self.acks, self.fails = set(), [], []
        self.out = Path(config["out"])

    def next_tuple(self):
        if self.waiting:
            number = self.waiting.pop()
            self.pending.add(number)
            self.emit([number, number, self.load], tup_id=number)
        elif not self.pending:
            (self.out / "acks").write_text(repr(sorted(self.acks)))
            (self.out / "fails").write_text(repr(sorted(self.fails)))
            self.end_of_input()

    def ack(self, number):
        self.pending.discard(number)
        self.acks.append(number)

    def fail(self, number):
        self.pending.discard(number)
        self.fails.append(number)
        self.waiting.append(number)


class Step(Bolt):
    outputs = ["start", "now", "load", Stream(fields=["start"], name="done")]

    def initialize(self, config, context):
        self.failed = False

    def process(self, tup):
        start, now, load = tup.values
        if now == FAILS_ONCE and not self.failed:
            self.failed = True
            self.fail(tup)
            return
        if now == 1:
            self.emit([start], stream="done", anchors=[tup])
        else:
            self.emit([start, now // 2 if now % 2 == 0 else 3 * now + 1, load[: len(load) // 2]], anchors=[tup])
        self.ack(tup)

    def finish(self):
        # Goes round twice after every component of the loop may have finished.
        self.emit([-1, 4, ""])


class Back(Bolt):
    outputs = ["start", "now", "load"]

    def process(self, tup):
        self.emit(list(tup.values), anchors=[tup])
        self.ack(tup)


class Done(Bolt):
    def initialize(self, config, context):
        self.seen = []
        self.out = Path(config["out"])

    def process(self, tup):
        self.seen.append(tup.values[0])
        self.ack(tup)

    def finish(self):
        (self.out / "done").write_text(repr(sorted(self.seen)))


def build(name, out, mode, load_bytes=0):
    builder = TopologyBuilder(name)
    numbers = builder.add_spout("numbers", Numbers, par=1)
    back = GlobalStreamId("back", "default")
    step = builder.add_bolt("step", Step, par=1, inputs={numbers: Grouping.SHUFFLE, back: Grouping.SHUFFLE})
    builder.add_bolt("back", Back, par=2, inputs={step: Grouping.fields("start")})
    builder.add_bolt("done", Done, par=1, inputs={GlobalStreamId("step", "done"): Grouping.SHUFFLE})
    builder.set_config({"topology.reliability.mode": mode, "topology.stmgrs": 2, "out": out, "load.bytes": load_bytes})
    return builder


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--out")
    parser.add_argument("--guarantee", default="ATLEAST_ONCE")
    parser.add_argument("--load-bytes", type=int, default=0)
    args = parser.parse_args()
    build(args.name, args.out, args.guarantee, args.load_bytes).build_and_submit()


if __name__ == "__main__":
    main()
