"""Three sources that rewind, each through a slow bolt into files of its own."""

from __future__ import annotations

import argparse
import os
import time

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.connectors.files import FileSink
from heronpy.connectors.textfiles.textfilesgenerator import TextFileGenerator
from heronpy.connectors.textfiles.textfilespout import TextFileSpout
from heronpy.streamlet.impl.generatorspout import GeneratorSpout
from heronpy.streamlet.impl.supplierspout import SupplierSpout


class Pace(Bolt):
    """Lets the input take its time, until the file `fast` is there."""

    outputs = ["value"]

    def initialize(self, config, context):
        self.fast, self.seen = config["fast"], 0
        self.pause_s = 0.003

    def process(self, tup):
        if self.pause_s:
            time.sleep(self.pause_s)
            self.seen += 1
            if self.seen % 100 == 0 and os.path.exists(self.fast):
                self.pause_s = 0
        self.emit([tup.values[0]])


def lines_of_numbers():
    """A generator function: what it yields is the same each time, so it can be rewound."""
    for number in range(30_000):
        yield f"{number:0200d}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--file", required=True)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    builder = TopologyBuilder(args.name)
    text = {"textfile.paths": args.file, "textfile.block_bytes": 4096, "textfile.lines_per_call": 20}
    pace = {"fast": os.path.join(os.path.dirname(args.file), "fast")}
    sources = {
        "text": builder.add_spout("text", TextFileSpout, par=2, config=text),
        "generator": builder.add_spout(
            "generator", GeneratorSpout, par=2, config={GeneratorSpout.GENERATOR: TextFileGenerator(args.file)}
        ),
        "function": builder.add_spout(
            "function", SupplierSpout, par=1, config={SupplierSpout.FUNCTION: lines_of_numbers}
        ),
    }
    for name, source in sources.items():
        stream = "default" if name == "text" else GeneratorSpout.outputs[0].stream_id
        paced = builder.add_bolt(f"{name}-pace", Pace, par=1, inputs={source[stream]: Grouping.SHUFFLE}, config=pace)
        sink = FileSink.spec(
            f"{name}-files", {paced: Grouping.SHUFFLE}, folder=os.path.join(args.out, name), format="text"
        )
        builder.add_spec(sink)
    builder.set_config({"topology.reliability.mode": "EFFECTIVELY_ONCE"})
    builder.build_and_submit()


if __name__ == "__main__":
    main()
