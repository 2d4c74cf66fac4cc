"""Reads its arguments when it is imported, as scripts do, with a parser that knows no topology name."""

from __future__ import annotations

import argparse
import sys

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.topology import TopologyBuilder

parser = argparse.ArgumentParser()
parser.add_argument("--greeting", required=True)
ARGS = parser.parse_args()


class Words(Spout):
    outputs = ["word"]

    def initialize(self, config, context):
        print(f"spout has {sys.argv[1:]!r}, greets {ARGS.greeting!r}")

    def next_tuple(self):
        self.end_of_input()


class Count(Bolt):
    def initialize(self, config, context):
        print(f"bolt has {sys.argv[1:]!r} of {sys.argv[0]!r}")

    def process(self, tup):
        self.ack(tup)


def main() -> None:
    builder = TopologyBuilder("args")
    words = builder.add_spout("words", Words, par=1)
    builder.add_bolt("count", Count, par=1, inputs=[words])
    builder.build_and_submit()


if __name__ == "__main__":
    main()
