"""Lines of text files -> a bolt that takes its time -> files."""

from __future__ import annotations

import argparse
import time

from heronpy import Bolt, Grouping, TopologyBuilder
from heronpy.connectors.files import FileSink
from heronpy.connectors.textfiles.textfilespout import TextFileSpout


class Slow(Bolt):
    outputs = ["line"]

    def process(self, tup):
        time.sleep(0.0005)
        self.emit([tup.values[0]])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--paths", required=True)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    builder = TopologyBuilder(args.name)
    lines = builder.add_spout("lines", TextFileSpout, par=3, config={"textfile.paths": args.paths})
    slow = builder.add_bolt("slow", Slow, par=2, inputs={lines: Grouping.SHUFFLE})
    builder.add_spec(FileSink.spec("sink", {slow: Grouping.SHUFFLE}, folder=args.out, fields=["line"]))
    builder.set_config({"topology.reliability.mode": "EFFECTIVELY_ONCE"})
    builder.build_and_submit()
