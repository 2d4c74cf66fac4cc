"""The topology `fish`, which tests submit to engines: one spout and three counters in two containers."""

from __future__ import annotations

import itertools
import time

from heronpy import Bolt, Grouping, Spout, TopologyBuilder


class Words(Spout):
    outputs = ["word"]

    def initialize(self, config, context):
        self.words = itertools.cycle(["one", "fish", "two"])

    def next_tuple(self):
        time.sleep(0.01)
        self.emit([next(self.words)])


class Count(Bolt):
    def process(self, tup):
        self.ack(tup)


if __name__ == "__main__":
    builder = TopologyBuilder("fish")
    words = builder.add_spout("words", Words, par=1)
    builder.add_bolt("count", Count, par=3, inputs={words: Grouping.fields("word")})
    builder.set_config({"topology.stmgrs": 2, "topology.reliability.mode": "ATLEAST_ONCE"})
    builder.build_and_submit()
