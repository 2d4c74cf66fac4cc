"""Tuples from one byte to 40 MB; what is too large is refused at emit, and the spout goes on."""

from __future__ import annotations

import argparse
import hashlib

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder

SIZES = [1, 1000, 1025, 65_536, 1_000_000, 8_000_000, 33_000_000, 31_000_000, 40_000_000, 2, 20_000_000, 3]


class Blobs(Spout):
    outputs = ["size", "blob"]

    def initialize(self, config, context):
        self.todo = list(reversed(SIZES))
        self.pending = set()

    def next_tuple(self):
        if not self.todo:
            if not self.pending:
                self.end_of_input()
            return
        size = self.todo.pop()
        try:
            self.emit([size, b"\xa5" * size], tup_id=size)
            self.pending.add(size)
        except Exception as error:
            self.logger.info("refused %d: %s: %s", size, type(error).__name__, error)

    def ack(self, tup_id):
        self.pending.discard(tup_id)
        self.logger.info("acked %d", tup_id)


class Pass(Bolt):
    outputs = ["size", "blob"]

    def process(self, tup):
        self.emit(tup.values, anchors=[tup])
        self.ack(tup)


class Check(Bolt):
    def process(self, tup):
        size, blob = tup.values
        assert len(blob) == size and hashlib.sha256(blob).digest() == hashlib.sha256(b"\xa5" * size).digest()
        self.logger.info("received %d", size)
        self.ack(tup)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    args = parser.parse_args()
    b = TopologyBuilder(args.name)
    blobs = b.add_spout("blobs", Blobs, par=1)
    through = b.add_bolt("pass", Pass, par=1, inputs={blobs: Grouping.SHUFFLE})
    b.add_bolt("check", Check, par=2, inputs={through: Grouping.fields("size")})
    b.set_config({"topology.reliability.mode": "ATLEAST_ONCE", "topology.stmgrs": 2})
    b.build_and_submit()


if __name__ == "__main__":
    main()
