"""Measures the CPU that a stream's Arrow schema saves, from `emit_batch` to the columns of a SparkSink's batch.

    python scripts/arrow_gain.py
    python scripts/arrow_gain.py --rows 200 --rounds 20

One process does the work of the emitting task and of the sink's task, without stream managers and Spark. The output is
microseconds of CPU per row, from the best round of each variant. Rounds alternate between the variants.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping, Stream
from heronpy.api.topology import TopologyBuilder
from heronpy.common.setting_types import InstanceSettings
from heronpy.connectors.spark.filling import Filling
from heronpy.connectors.spark.rows import RowShape
from heronpy.plan.emit_rules import ColumnRules
from heronpy.plan.grouping import Shuffle
from heronpy.task.emitter import Emitter
from heronpy.task.outlets import OutStream
from heronpy.task.routing import arrow_schemas, output_streams
from heronpy.wire.frames import Frame
from instance.opening import FrameOpener

SCHEMA = pa.schema([("id", pa.int64()), ("price", pa.float64()), ("symbol", pa.string()), ("day", pa.date32())])
SOURCE = 1


class Rows(Spout):
    outputs = [Stream(schema=SCHEMA, name="arrow"), Stream(SCHEMA.names, "plain")]


class Sink(Bolt):
    def process(self, tup: Any) -> None:
        self.ack(tup)


def batch_of(rows: int) -> pa.RecordBatch:
    numbers = range(rows)
    columns = [
        pa.array(numbers),
        pa.array([n * 0.25 for n in numbers]),
        pa.array([f"S{n % 500}" for n in numbers]),
        pa.array([20_000 + n % 100 for n in numbers], type=pa.int32()).cast(pa.date32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


class Way:
    """A variant: the emitting task and the sink's task of one stream."""

    def __init__(self, stream: str) -> None:
        builder = TopologyBuilder("arrow_gain")
        spout = builder.add_spout("rows", Rows, par=1)
        builder.add_bolt("sink", Sink, par=2, inputs={spout[stream]: Grouping.SHUFFLE})
        topology = builder.build()
        schemas = arrow_schemas(topology, "rows")
        streams = [
            OutStream(name, index, fields, direct, schemas[index])
            for index, (name, fields, direct) in enumerate(output_streams(topology, "rows"))
        ]
        self.frames: list[bytes] = []
        self.emitter = Emitter("rows", SOURCE, streams, InstanceSettings(), self._send, lambda: 1)
        self.emitter.route({stream: [Shuffle([2, 3])]})
        self.stream = self.emitter.streams[stream]
        self.rules = ColumnRules("rows", stream, self.stream.fields, self.stream.schema)
        nothing: Any = SimpleNamespace(acking=False)
        self.opener = FrameOpener(
            nothing, nothing, nothing, nothing, nothing, may_wait=False, deserialize=None, allow_pickle=True
        )
        self.opener.take_plan(SimpleNamespace(topology=topology), {SOURCE: "rows"})  # type: ignore[arg-type]
        self.shape = RowShape(SCHEMA.names, SCHEMA, Path("/nonexistent"))

    def _send(self, dest: int, frame: bytes, tuples: int) -> None:
        self.frames.append(frame)

    def source(self, batch: pa.RecordBatch, calls: int) -> None:
        """Do the work of `calls` calls of `emit_batch`, up to the frames."""
        for _ in range(calls):
            columns: Any = self.rules.columns(batch, None)
            if self.stream.schema:
                self.emitter.push_arrow(self.stream, columns, None)
            else:
                self.emitter.push_columns(self.stream, columns, None)
        self.emitter.flush()

    def sink(self) -> int:
        """Do the work of the sink's task, up to the columns of its file; return the number of rows."""
        filling = Filling(self.shape)
        frames, self.frames = self.frames, []
        for data in frames:
            frame = Frame.FromString(data)
            if not self.stream.schema:
                filling.take(self.opener.open(frame, 0.0))
                continue
            for part in self.opener.open_batches(frame, 0.0):
                filling.take_arrow(part, part.record_batch)  # type: ignore[union-attr]
        rows: int = filling.close()[0].num_rows
        return rows


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Call the function; return the CPU seconds and the result."""
    begun = time.process_time()
    found = call()
    return time.process_time() - begun, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, action="append", help="rows per record batch; repeatable")
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    for rows in args.rows or [50, 500, 5000]:
        batch, calls = batch_of(rows), max(1, 20_000 // rows)
        best: dict[tuple[str, str], float] = {}
        ways = {name: Way(name) for name in ("plain", "arrow")}
        for name, way in [*ways.items()] * args.rounds:
            source_s, _ = timed(partial(way.source, batch, calls))
            sink_s, taken = timed(way.sink)
            assert taken == rows * calls
            for end, cpu_s in (("source", source_s), ("sink", sink_s)):
                best[name, end] = min(cpu_s * 1e6 / taken, best.get((name, end), float("inf")))
        for end in ("source", "sink"):
            plain, arrow = best["plain", end], best["arrow", end]
            print(
                f"{rows:>5} rows a batch, {end:<6} as values {plain:6.3f} us a row, as Arrow {arrow:6.3f} us,"
                f" {plain / arrow:.1f} times cheaper"
            )


if __name__ == "__main__":
    main()
