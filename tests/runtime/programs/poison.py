"""source -> work -> store, with numbers at which work raises, hangs or dies; and work's dead letters -> letters."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path

from heronpy.api.bolt.async_bolt import AsyncBolt
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping, Stream
from heronpy.api.topology import TopologyBuilder

OUTPUTS = ["number", Stream(fields=["payload", "traceback", "task", "tries"], name="dead_letters")]


def explode(number):
    raise RuntimeError(f"number {number} does not come back")


class Undecodable:
    """It can be pickled and not unpickled."""

    def __init__(self, number, decode=explode):
        self.number = number
        self.decode = decode

    def __reduce__(self):
        return self.decode, (self.number,)


def leave(number):
    os._exit(13)


def segfault(number):
    ctypes.string_at(0)


#: What becomes of a value, by the kind of its poison.
DECODING = {"undecodable": explode, "decode-exit": leave, "decode-segfault": segfault}


class Source(Spout):
    outputs = ["number"]

    def initialize(self, config, context):
        self.todo = list(range(config["count"] - 1, -1, -1))
        self.reliable = config["topology.reliability.mode"] == "ATLEAST_ONCE" and not config["untracked"]
        self.undecodable = {int(n): DECODING[kind] for n, kind in config["poison"].items() if kind in DECODING}
        self.pending: set[int] = set()
        self.acked = os.open(Path(config["out"]) / "acked", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def next_tuple(self):
        if self.todo:
            number = self.todo.pop()
            value = Undecodable(number, self.undecodable[number]) if number in self.undecodable else number
            if self.reliable:
                self.pending.add(number)
                self.emit([value], tup_id=number)
            else:
                self.emit([value])
        elif not self.pending:
            self.end_of_input()

    def ack(self, tup_id):
        if self.reliable and tup_id in self.pending:
            self.pending.discard(tup_id)
            os.write(self.acked, b"%d\n" % tup_id)

    def fail(self, tup_id):
        if tup_id in self.pending:
            self.pending.discard(tup_id)
            self.todo.append(tup_id)


def bite(kind: str, emit) -> None:
    if kind == "raise":
        raise ValueError("this tuple is poison")
    if kind == "hang":
        while True:
            pass
    if kind == "sleep":
        time.sleep(3600)
    if kind.startswith("exit"):
        os._exit(int(kind.removeprefix("exit") or 13))
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "segfault":
        ctypes.string_at(0)
    if kind == "recursion":
        bite(kind, emit)
    if kind == "huge":
        emit(["x" * (64 << 20)])
    if kind == "sysexit":
        sys.exit(3)


class Work(Bolt):
    outputs = OUTPUTS

    def initialize(self, config, context):
        self.poison = {int(number): kind for number, kind in config["poison"].items()}
        self.tries = Path(config["out"])

    def process(self, tup):
        [number] = tup.values
        kind = self.poison.get(number)
        if kind:
            with open(self.tries / f"tried.{number}", "a") as tries:
                tries.write("x")
            bite(kind, lambda values: self.emit(values, anchors=[tup]))
        self.emit([number], anchors=[tup])
        self.ack(tup)


class AsyncWork(AsyncBolt):
    outputs = OUTPUTS

    def initialize(self, config, context):
        Work.initialize(self, config, context)

    async def process(self, tup):
        import asyncio

        if self.poison.get(tup.values[0]) == "sleep":
            with open(self.tries / f"tried.{tup.values[0]}", "a") as tries:
                tries.write("x")
            await asyncio.sleep(3600)
        Work.process(self, tup)


class BatchWork(Bolt):
    outputs = OUTPUTS

    def initialize(self, config, context):
        Work.initialize(self, config, context)
        self.largest = Path(config["out"]) / "largest"
        self.most = 0

    def process_batch(self, batch):
        if len(batch) > self.most:
            self.most = len(batch)
            with open(self.largest, "a") as largest:
                largest.write(f"{self.most}\n")
        for number in batch.columns["number"]:
            kind = self.poison.get(number)
            if kind:
                with open(self.tries / f"tried.{number}", "a") as tries:
                    tries.write("x")
                bite(kind, lambda values: self.emit(values, anchors=batch))
        self.emit_batch(batch, anchors=batch)
        self.ack(batch)


class Store(Bolt):
    def initialize(self, config, context):
        self.file = os.open(Path(config["out"]) / "stored", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def process(self, tup):
        os.write(self.file, b"%d\n" % tup.values[0])
        self.ack(tup)


class Letters(Bolt):
    def initialize(self, config, context):
        self.file = os.open(Path(config["out"]) / "letters", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def process(self, tup):
        os.write(self.file, json.dumps(tup.values, default=repr).encode() + b"\n")
        self.ack(tup)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--out")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--poison", type=json.loads, default={})
    parser.add_argument("--guarantee", default="ATLEAST_ONCE")
    parser.add_argument("--asynchronous", action="store_true")
    parser.add_argument("--batches", action="store_true")
    parser.add_argument("--untracked", action="store_true", help="tuples have no id, in any mode")
    args = parser.parse_args()
    b = TopologyBuilder(args.name)
    source = b.add_spout("source", Source, par=1)
    kind = AsyncWork if args.asynchronous else BatchWork if args.batches else Work
    work = b.add_bolt("work", kind, par=1, inputs={source: Grouping.SHUFFLE})
    b.add_bolt("store", Store, par=1, inputs={work: Grouping.SHUFFLE})
    b.add_bolt("letters", Letters, par=1, inputs={work["dead_letters"]: Grouping.SHUFFLE})
    b.set_config(
        {
            "out": args.out,
            "count": args.count,
            "untracked": args.untracked,
            "poison": args.poison,
            "topology.reliability.mode": args.guarantee,
            "topology.stmgrs": 1,
            "topology.max.spout.pending": 50,
            "topology.message.timeout.secs": 3,
        }
    )
    b.build_and_submit()


if __name__ == "__main__":
    main()
