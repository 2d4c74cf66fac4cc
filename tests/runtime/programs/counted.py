"""Two regions that know nothing of each other: source -> count -> store, twice, counted exactly.

Each source emits the keys of 0, 1, 2, ... until there is a file `stop`, then it says how many there were. The
counts are keyed state, and what is published at the end must be those of that many numbers.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from heronpy import Bolt, Grouping, Spout, StatefulComponent, TopologyBuilder
from heronpy.connectors.files import FileSink

KEYS = 97


class Source(Spout, StatefulComponent):
    outputs = ["key"]

    def init_state(self, stateful_state):
        self.state = stateful_state

    def initialize(self, config, context):
        self.out = Path(config["out"])
        self.name = context.get_component_id()
        self.number = self.state.get("number", 0)

    def pre_save(self, checkpoint_id):
        self.state["number"] = self.number

    def next_tuple(self):
        if self.number % 20 == 0:
            time.sleep(0.005)
            self.tell("progress")
            if (self.out / "stop").exists():
                self.tell("total")
                self.end_of_input()
                return
        self.emit([f"k{self.number % KEYS}"])
        self.number += 1

    def tell(self, what):
        whole = self.out / f".{what}.{self.name}.{os.getpid()}"
        whole.write_text(str(self.number))
        whole.rename(self.out / f"{what}.{self.name}")


class Count(Bolt):
    outputs = ["key", "count"]

    def initialize(self, config, context):
        self.counts = context.keyed_state("counts")

    def process(self, tup):
        key = tup.values[0]
        self.counts[key] = self.counts.get(key, 0) + 1

    def finish(self):
        for key, count in self.counts.items():
            self.emit([key, count])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--out", required=True)
    parser.add_argument("--regions", type=int, default=1)
    parser.add_argument("--counters", type=int, default=1)
    args = parser.parse_args()
    builder = TopologyBuilder(args.name)
    for letter in "ab"[: args.regions]:
        source = builder.add_spout(f"source-{letter}", Source, par=1)
        count = builder.add_bolt(f"count-{letter}", Count, par=args.counters, inputs={source: Grouping.fields("key")})
        folder = f"{args.out}/{letter}"
        builder.add_spec(
            FileSink.spec(f"store-{letter}", {count: Grouping.SHUFFLE}, folder=folder, fields=["key", "count"])
        )
    builder.set_config({"topology.reliability.mode": "EFFECTIVELY_ONCE", "out": args.out})
    builder.build_and_submit()


if __name__ == "__main__":
    main()
