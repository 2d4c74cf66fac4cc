"""source -> victim and sibling: the victim ends in the way that the configuration says."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder


class Source(Spout):
    outputs = ["number"]

    def initialize(self, config, context):
        self.number = 0

    def next_tuple(self):
        time.sleep(0.005)
        self.number += 1
        self.emit([self.number])


class Victim(Bolt):
    def initialize(self, config, context):
        self.kept: list[bytearray] = []
        self.kind = config["kind"]
        if self.kind == "exit at start":
            os._exit(42)

    def process(self, tup):
        if self.kind == "leak":
            self.kept.append(bytearray(4 << 20))
        elif self.kind == "exit":
            os._exit(42)
        elif self.kind == "raise":
            raise ValueError("no luck today")


class Sibling(Bolt):
    def initialize(self, config, context):
        self.file = os.open(Path(config["out"]) / "seen", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def process(self, tup):
        os.write(self.file, b"x")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--out")
    parser.add_argument("--kind", default="")
    args = parser.parse_args()
    b = TopologyBuilder(args.name)
    source = b.add_spout("source", Source, par=1)
    b.add_bolt("victim", Victim, par=1, inputs={source: Grouping.SHUFFLE})
    b.add_bolt("sibling", Sibling, par=1, inputs={source: Grouping.SHUFFLE})
    b.set_config({"out": args.out, "kind": args.kind, "topology.stmgrs": 1})
    b.build_and_submit()


if __name__ == "__main__":
    main()
