"""Topologies in files, as users write them, for tests of submits."""

from __future__ import annotations

import textwrap
from pathlib import Path

#: Prelude of each program: a finite counting spout, a bolt that passes tuples on, and a sink.
PRELUDE = """\
import time

from heronpy.api import api_constants
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.component.component_spec import GlobalStreamId
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping, Stream
from heronpy.api.topology import Topology, TopologyBuilder

ATLEAST_ONCE = {"topology.reliability.mode": api_constants.TopologyReliabilityMode.ATLEAST_ONCE}


class Numbers(Spout):
    outputs = ["n"]

    def initialize(self, config, context):
        self.n = 0

    def next_tuple(self):
        if self.n >= 5:
            self.end_of_input()
            return
        self.n += 1
        self.emit([self.n])


class Pass(Bolt):
    outputs = ["n"]

    def process(self, tup):
        self.emit([tup.values[0]], anchors=[tup])
        self.ack(tup)


class Sink(Bolt):
    def process(self, tup):
        self.ack(tup)

"""


def write_program(folder: Path, body: str, name: str = "topo.py") -> Path:
    """Write a program that consists of the prelude and `body`; return its path."""
    path = folder / name
    path.write_text(PRELUDE + "\n" + textwrap.dedent(body), encoding="utf-8")
    return path


def chain(name: str, spout: str = "Numbers", bolt: str = "Pass", config: str = "{}", guarded: bool = True) -> str:
    """Return the end of a program: main() builds spout -> bolt -> sink."""
    return textwrap.dedent(
        f"""
        def main():
            builder = TopologyBuilder({name!r})
            numbers = builder.add_spout("numbers", {spout}, par=1)
            passed = builder.add_bolt("pass", {bolt}, par=1, inputs={{numbers: Grouping.SHUFFLE}})
            builder.add_bolt("sink", Sink, par=1, inputs={{passed: Grouping.SHUFFLE}})
            builder.set_config({config})
            builder.build_and_submit()

        {'if __name__ == "__main__":' if guarded else "if True:"}
            main()
        """
    )
