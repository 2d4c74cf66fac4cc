"""A topology that asks for memory and CPU; its spout takes memory, or a core, as soon as a file is there."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder


class Takes(Spout):
    outputs = ["number"]

    def initialize(self, config, context):
        self.out, self.taken = Path(config["out"]), []

    def next_tuple(self):
        if (self.out / "memory").exists():
            self.taken.append(b"\xa5" * (16 << 20))
        if (self.out / "cpu").exists():
            end = time.monotonic() + 0.2
            while time.monotonic() < end:
                pass
        else:
            time.sleep(0.02)


class Nothing(Bolt):
    def process(self, tup):
        self.ack(tup)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    builder = TopologyBuilder(args.name)
    builder.set_config(
        {"topology.container.ram.requested": 400 << 20, "topology.container.cpu.requested": 0.25, "out": args.out}
    )
    takes = builder.add_spout("takes", Takes, par=1)
    builder.add_bolt("nothing", Nothing, par=1, inputs={takes: Grouping.SHUFFLE})
    builder.build_and_submit()


if __name__ == "__main__":
    main()
