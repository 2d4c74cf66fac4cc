"""A fast source -> a slow bolt by fields grouping; what does not fit is dropped, or not."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from heronpy import Bolt, Grouping, Spout, TopologyBuilder
from heronpy.api import api_constants


class Source(Spout):
    outputs = ["number"]

    def initialize(self, config, context):
        self.number, self.count = 0, config["count"]

    def next_tuple(self):
        for _ in range(100):
            if self.number == self.count:
                self.end_of_input()
                return
            self.emit([self.number])
            self.number += 1
        time.sleep(0.02)


class Slow(Bolt):
    def initialize(self, config, context):
        self.path = Path(config["out"]) / f"seen.{context.get_task_id()}"
        self.seen: list[int] = []

    def process(self, tup):
        time.sleep(0.002)
        self.seen.append(tup.values[0])

    def finish(self):
        self.path.write_text("\n".join(map(str, self.seen)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--out", required=True)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--guarantee", default="ATMOST_ONCE")
    parser.add_argument("--policy", default="sample")
    args = parser.parse_args()
    builder = TopologyBuilder(args.name)
    source = builder.add_spout("source", Source, par=1)
    builder.add_bolt("slow", Slow, par=2, inputs={source: Grouping.fields("number")})
    builder.set_config(
        {
            "out": args.out,
            "count": args.count,
            api_constants.TOPOLOGY_RELIABILITY_MODE: args.guarantee,
            api_constants.TOPOLOGY_STMGRS: 2,
            api_constants.TOPOLOGY_DROPTUPLES_UPON_BACKPRESSURE: args.policy,
        }
    )
    builder.build_and_submit()


if __name__ == "__main__":
    main()
