"""source -> work -> store: numbers that survive everything, for tests that kill, stop and slow down.

The input is outside of the processes: a source task writes what was acked to a file and begins with what
is missing there. It has no end until there is a file `stop`, or until `--count`. A store task appends each number to a file at once. Every task says when it processed
its first tuple.
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

#: After this many numbers a source checks whether to stop, and records its position.
REACH = 100


class Source(Spout):
    outputs = ["number", "pad"]

    def initialize(self, config, context):
        tasks = sorted(context.get_component_tasks("source"))
        me = tasks.index(context.get_task_id())
        self.reliable = config["topology.reliability.mode"] == "ATLEAST_ONCE"
        self.out, self.me, self.step = Path(config["out"]), me, len(tasks)
        acked = self.out / f"acked.{me}"
        self.done = {int(line) for line in acked.read_text().split()} if acked.exists() else set()
        self.number, self.count, self.again = me, config["count"], []
        # What a predecessor has emitted is emitted again before anything ends.
        reached = self.out / f"reached.{me}"
        self.reached = int(reached.read_text()) if reached.exists() else 0
        self.acked = open(acked, "a")
        self.pending: set[int] = set()
        self.pause_s = config["source_pause_ms"] / 1000
        self.fails = 0
        self.pad = "x" * config["pad"]
        self.started = False

    def next_number(self):
        if self.again:
            return self.again.pop()
        while self.number in self.done:
            self.number += self.step
        number = self.number
        if self.count and number >= self.count:
            return None
        if number >= self.reached:
            if (self.out / "stop").exists():
                return None
            self.reached = number + REACH
            draft = self.out / f".reached.{self.me}"
            draft.write_text(str(self.reached))
            draft.rename(self.out / f"reached.{self.me}")
        self.number += self.step
        return number

    def next_tuple(self):
        number = self.next_number()
        if number is not None:
            if self.pause_s:
                time.sleep(self.pause_s)
            if self.reliable:
                self.pending.add(number)
                self.emit([number, self.pad], tup_id=number)
            else:
                self.emit([number, self.pad])
            if not self.started:
                self.started = True
                self.logger.info("first tuple at %.3f", time.time())
        elif not self.pending:
            self.logger.info("%d fails", self.fails)
            (self.out / f"total.{self.me}").write_text(str(self.number))
            self.end_of_input()

    def ack(self, tup_id):
        if tup_id in self.pending:
            self.pending.discard(tup_id)
            self.acked.write(f"{tup_id}\n")
            self.acked.flush()

    def fail(self, tup_id):
        self.fails += 1
        if tup_id in self.pending:
            self.pending.discard(tup_id)
            self.again.append(tup_id)


class Work(Bolt):
    outputs = ["number"]

    def initialize(self, config, context):
        self.pause_s = config["work_pause_ms"] / 1000
        self.raise_at = config.get("raise_at", "")
        self.flag = Path(config["out"]) / f"raised.{context.get_task_id()}"
        self.started = False
        self.seen = 0

    def update(self, changed):
        self.pause_s = float(changed.get("work_pause_ms", self.pause_s * 1000)) / 1000
        self.logger.info("pause is %s s", self.pause_s)

    def process(self, tup):
        if not self.started:
            self.started = True
            self.logger.info("first tuple at %.3f", time.time())
        self.seen += 1
        if self.pause_s:
            time.sleep(self.pause_s)
        self.emit([tup.values[0]], anchors=[tup])
        self.ack(tup)
        if self.raise_at and self.seen >= int(self.raise_at) and not self.flag.exists():
            self.flag.touch()
            raise ValueError("poison in the middle of a frame")


class Store(Bolt):
    def initialize(self, config, context):
        path = Path(config["out"]) / f"stored.{context.get_task_id()}"
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.lines: list[bytes] = []
        self.started = False

    def process(self, tup):
        if not self.started:
            self.started = True
            self.logger.info("first tuple at %.3f", time.time())
        os.write(self.file, b"%d\n" % tup.values[0])
        self.ack(tup)


def faults(args: argparse.Namespace) -> TopologyBuilder:
    b = TopologyBuilder(args.name)
    config = {
        "out": args.out,
        "count": args.count,
        "pad": args.pad,
        "source_pause_ms": args.source_pause_ms,
        "work_pause_ms": args.work_pause_ms,
        "raise_at": args.raise_at,
        "topology.reliability.mode": args.guarantee,
        "topology.stmgrs": args.containers,
        "topology.max.spout.pending": args.pending,
        "topology.message.timeout.secs": args.message_timeout,
    }
    source = b.add_spout("source", Source, par=args.par)
    work = b.add_bolt("work", Work, par=args.par, inputs={source: Grouping.SHUFFLE})
    b.add_bolt("store", Store, par=args.par, inputs={work: Grouping.fields("number")})
    b.set_config(config)
    return b


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--out", required=True)
    parser.add_argument("--count", type=int, default=0, help="0: endless")
    parser.add_argument("--guarantee", default="ATLEAST_ONCE")
    parser.add_argument("--containers", type=int, default=1)
    parser.add_argument("--par", type=int, default=2)
    parser.add_argument("--pending", type=int, default=200)
    parser.add_argument("--message-timeout", type=int, default=30)
    parser.add_argument("--source-pause-ms", type=float, default=0)
    parser.add_argument("--work-pause-ms", type=float, default=0)
    parser.add_argument("--raise-at", default="")
    parser.add_argument("--pad", type=int, default=0)
    faults(parser.parse_args()).build_and_submit()


if __name__ == "__main__":
    main()
