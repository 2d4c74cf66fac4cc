"""numbers -> store until a file `end` is there; the store needs something that is away while `away` is there."""

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
    outputs = ["number"]

    def initialize(self, config, context):
        self.end = Path(config["out"]) / "end"
        self.number = 0
        self.again: list[int] = []
        self.pending: set[int] = set()

    def next_tuple(self):
        time.sleep(0.001)
        if self.again:
            number = self.again.pop()
        elif not self.end.exists():
            self.number += 1
            number = self.number
        else:
            if not self.pending:
                self.end_of_input()
            return
        self.pending.add(number)
        self.emit([number], tup_id=number)

    def ack(self, tup_id):
        self.pending.discard(tup_id)

    def fail(self, tup_id):
        self.pending.discard(tup_id)
        self.again.append(tup_id)


class DeafNumbers(Numbers):
    """Nobody tells it what has failed."""

    fail = Spout.fail

    def next_tuple(self):
        self.pending.clear()  # it does not wait for what may have failed
        super().next_tuple()


class Store(Bolt):
    def initialize(self, config, context):
        self.poison, self.refuse = config["poison"], config["refuse"]
        self.away = Path(config["out"]) / "away"
        self.file = os.open(Path(config["out"]) / "stored", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.connect()

    def connect(self):
        if self.away.exists():
            raise ConnectionRefusedError("the database is away")

    def process(self, tup):
        self.connect()
        if tup.values[0] == self.poison:
            raise ValueError("this number cannot be stored")
        if tup.values[0] == self.refuse:
            self.refuse = 0
            self.fail(tup)
            return
        os.write(self.file, b"%d\n" % tup.values[0])
        self.ack(tup)


SPOUTS = {"plain": Numbers, "deaf": DeafNumbers}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--out")
    parser.add_argument("--poison", type=int, default=0)
    parser.add_argument("--refuse", type=int, default=0)
    parser.add_argument("--spout", choices=SPOUTS, default="plain")
    parser.add_argument("--guarantee", default="ATLEAST_ONCE")
    args = parser.parse_args()
    b = TopologyBuilder(args.name)
    numbers = b.add_spout("numbers", SPOUTS[args.spout], par=1)
    b.add_bolt("store", Store, par=2, inputs={numbers: Grouping.SHUFFLE})
    b.set_config(
        {
            "out": args.out,
            "poison": args.poison,
            "refuse": args.refuse,
            "topology.stmgrs": 1,
            "topology.reliability.mode": args.guarantee,
            # Without effect, and warned of, in the other modes.
            **({"topology.stateful.checkpoint.interval.seconds": 1} if args.guarantee == "EFFECTIVELY_ONCE" else {}),
        }
    )
    b.build_and_submit()


if __name__ == "__main__":
    main()
