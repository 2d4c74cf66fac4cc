"""The lines of a file, through a SparkSink whose function works in Spark's own Python workers."""

from __future__ import annotations

import argparse
from pathlib import Path

import pyarrow as pa

from heronpy.api.spout.spout import Spout
from heronpy.api.state.stateful_component import StatefulComponent
from heronpy.api.stream import Grouping, Stream
from heronpy.api.topology import TopologyBuilder
from heronpy.connectors.spark import SparkSink
from heronpy.connectors.textfiles.textfilespout import TextFileSpout

SCHEMA = pa.schema([("line", pa.large_string())])


class Lines(Spout, StatefulComponent):
    """The lines of the file as record batches."""

    outputs = [Stream(schema=SCHEMA)]

    def init_state(self, state):
        self.state = state

    def initialize(self, config, context):
        self.state.setdefault("next", 0)
        self.lines = Path(config["file"]).read_text().split()

    def next_tuple(self):
        first = self.state["next"]
        lines = self.lines[first : first + 10]
        self.state["next"] = first + len(lines)
        if not lines:
            self.end_of_input()
            return
        self.emit_batch(pa.RecordBatch.from_pydict({"line": lines}, schema=SCHEMA))


def store(spark, df, batch):
    """Write each row with the id of its batch; slowly enough to be killed in the middle."""
    import os
    import time

    needed = batch.options["needed"]
    if needed and not os.path.exists(needed):
        raise ValueError(f"there is no {needed}")
    pause_s = batch.options["row_pause_ms"] / 1000

    def slow(frames):
        for frame in frames:
            time.sleep(pause_s * len(frame))
            yield frame.assign(batch=batch.id)

    batch.write_parquet(df.mapInPandas(slow, "line string, batch string"), batch.options["table"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    for name in ("--file", "--table", "--reliability"):
        parser.add_argument(name, required=True)
    parser.add_argument("--arrow", action="store_true")
    parser.add_argument("--row-pause-ms", type=float, default=1.0)
    parser.add_argument("--needed", default="", help="each batch raises while this file is not there")
    parser.add_argument("--follow", action="store_true", help="the file grows")
    args = parser.parse_args()
    builder = TopologyBuilder(args.name)
    config = {"textfile.paths": args.file, "textfile.block_bytes": 4096, "textfile.lines_per_call": 10}
    config |= {"textfile.follow": args.follow, "textfile.scan_s": 0.2}
    if args.arrow:
        lines = builder.add_spout("lines", Lines, par=1, config={"file": args.file})
    else:
        lines = builder.add_spout("lines", TextFileSpout, par=2, config=config)
    builder.add_spec(
        SparkSink.spec(
            "table",
            {lines: Grouping.SHUFFLE},
            aggregate=store,
            schema={"line": "string"},
            batch_rows=400,
            max_uncommitted=2,
            table=args.table,
            row_pause_ms=args.row_pause_ms,
            needed=args.needed,
        )
    )
    builder.set_config(
        {
            "topology.reliability.mode": args.reliability,
            "topology.max.spout.pending": 2000,
            "topology.message.timeout.secs": 300,
        }
    )
    builder.build_and_submit()


if __name__ == "__main__":
    main()
