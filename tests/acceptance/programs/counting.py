"""Numbers that can be counted afterwards: numbers -> work -> store, with what the tests need to turn.

Each store task appends what it gets to a file of its own, at once, so that nothing is lost when it is
killed. Under ATLEAST_ONCE the spout repeats what failed and ends when everything was acked.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder


class Numbers(Spout):
    """Emits its share of 0 .. count - 1; without a count until the file `stop` appears next to the output."""

    outputs = ["number", "pad"]

    def initialize(self, config, context):
        tasks = sorted(context.get_component_tasks("numbers"))
        self.next = tasks.index(context.get_task_id())
        self.step = len(tasks)
        self.count = config["count"]
        self.stop = Path(config["out"]).parent / "stop"
        self.pause_s = config["spout_pause_ms"] / 1000
        self.reliable = config["topology.reliability.mode"] == "ATLEAST_ONCE"
        self.pending: set[int] = set()
        self.again: list[int] = []
        self.pad = "x" * config["pad"]

    def next_tuple(self):
        if self.pause_s:
            time.sleep(self.pause_s)
        if self.again:
            self.send(self.again.pop())
        elif self.count == 0 or self.next < self.count:
            self.send(self.next)
            self.next += self.step
            if self.count == 0 and self.next % 50 == 0 and self.stop.exists():
                self.count = self.next
        elif not self.pending:
            self.end_of_input()

    def send(self, number):
        if self.reliable:
            self.pending.add(number)
            self.emit([number, self.pad], tup_id=number)
        else:
            self.emit([number, self.pad])

    def ack(self, tup_id):
        self.pending.discard(tup_id)

    def fail(self, tup_id):
        self.logger.info("failed: %d", tup_id)
        if tup_id in self.pending:
            self.again.append(tup_id)


class Work(Bolt):
    """Passes numbers on, slowly if asked to."""

    outputs = ["number"]

    def initialize(self, config, context):
        self.config = config
        self.pause_s = config["work_pause_ms"] / 1000
        self.logger.info("work pauses for %s ms", config["work_pause_ms"])

    def update(self, changed):
        self.pause_s = changed.get("work_pause_ms", self.pause_s * 1000) / 1000
        self.logger.info("updated: %s, config has %s", sorted(changed.items()), self.config["work_pause_ms"])

    def process(self, tup):
        if self.pause_s:
            time.sleep(self.pause_s)
        self.emit([tup.values[0]], anchors=[tup])
        self.ack(tup)


class Store(Bolt):
    """Writes every number down."""

    def initialize(self, config, context):
        folder = Path(config["out"])
        name = f"{context.get_task_id()}-{os.getpid()}.txt"
        self.file = open(folder / name, "ab", buffering=0)

    def process(self, tup):
        self.file.write(b"%d\n" % tup.values[0])
        self.ack(tup)

    def finish(self):
        self.logger.info("stored everything")


def main() -> None:
    """Describe the topology and submit it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--out", required=True)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--spouts", type=int, default=1)
    parser.add_argument("--works", type=int, default=2)
    parser.add_argument("--stores", type=int, default=1)
    parser.add_argument("--containers", type=int, default=1)
    parser.add_argument("--spout-pause-ms", type=float, default=0.0)
    parser.add_argument("--work-pause-ms", type=float, default=0.0)
    parser.add_argument("--pad", type=int, default=0, help="characters of each tuple besides its number")
    parser.add_argument("--pending", type=int, default=500)
    parser.add_argument("--message-timeout", type=int, default=30)
    parser.add_argument("--guarantee", default="ATMOST_ONCE")
    args = parser.parse_args()
    builder = TopologyBuilder(args.name)
    numbers = builder.add_spout("numbers", Numbers, par=args.spouts)
    worked = builder.add_bolt("work", Work, par=args.works, inputs={numbers: Grouping.SHUFFLE})
    builder.add_bolt("store", Store, par=args.stores, inputs={worked: Grouping.fields("number")})
    builder.set_config(
        {
            "topology.reliability.mode": args.guarantee,
            "topology.stmgrs": args.containers,
            "topology.max.spout.pending": args.pending,
            "topology.message.timeout.secs": args.message_timeout,
            "pad": args.pad,
            "count": args.count,
            "out": args.out,
            "spout_pause_ms": args.spout_pause_ms,
            "work_pause_ms": args.work_pause_ms,
        }
    )
    builder.build_and_submit()


if __name__ == "__main__":
    main()
