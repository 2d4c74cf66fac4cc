"""Writes rows into Spark at a fixed rate in at-least-once mode; afterwards the table is counted.

With `arrow_rows` the spout emits record batches of this number of rows, on a stream with an Arrow schema; a batch is
due when its last row is due.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from heronpy.api.stream import Grouping, Stream
from heronpy.api.topology import TopologyBuilder
from heronpy.api.topology_context import TopologyContext
from heronpy.connectors.spark import SparkSink
from heronpy.loadtest.topologies.parts import config_of, submit
from heronpy.loadtest.topologies.passthrough import PacedSpout

TABLE = "spark-table"
SCHEMA = pa.schema([("number", pa.int64()), ("due_ns", pa.int64()), ("payload", pa.binary())])


def write_rows(spark: Any, df: Any, batch: Any) -> None:
    """Write every row of a batch to the table; PySpark calls this once per batch."""
    batch.write_parquet(df.select("number", "due_ns"), batch.options["output"])


class ArrowSpout(PacedSpout):
    """Emits paced rows as record batches. The latency of a batch is that of its last row."""

    outputs: Any = (Stream(schema=SCHEMA),)

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        self.rows = self.report.spec["parameters"]["arrow_rows"]
        self.payloads = pa.array([self.payload] * self.rows, pa.binary())

    def emit_one(self) -> None:
        """Emit the next batch, and compute the due time of the following batch."""
        first = self.sent
        after = min(first + self.rows, self.limit) if self.limit else first + self.rows
        numbers = range(first, after)
        due_ns = self.due[after - 1] = self.due_ns
        columns = [
            pa.array(np.arange(first, after)),
            pa.array(np.full(len(numbers), due_ns)),
            self.payloads.slice(0, len(numbers)),
        ]
        self.emit_batch(pa.RecordBatch.from_arrays(columns, schema=SCHEMA), ids=numbers)
        self.sent = after
        if self.pace is not None:
            self.due_ns = self.pace.due_ns(min(after + self.rows, self.limit) - 1 - self.first)

    def message(self, number: int) -> list[Any]:
        return [number, self.due.get(number, self.due_ns), self.payload]

    def ack(self, tup_id: int) -> None:
        self.acked_count += 1
        if tup_id in self.due:
            self.ack_latencies.record(time.monotonic_ns() - self.due.pop(tup_id))


def describe(spec: dict[str, Any], made: TopologyBuilder) -> None:
    """rows -> spark; each row is acked when Spark has committed its batch"""
    p = spec["parameters"]
    spout = ArrowSpout if p["arrow_rows"] else PacedSpout
    rows = made.add_spout("rows", spout, par=p["spouts"], config=config_of(spec))
    made.add_spec(
        SparkSink.spec(
            "spark",
            par=p["sinks"],
            inputs={rows: Grouping.SHUFFLE},
            aggregate=write_rows,
            schema={"number": "int64", "due_ns": "int64", "payload": "binary"},
            batch_rows=p["batch_rows"],
            batch_interval_s=p["batch_interval_s"],
            output=str(Path(spec["out"]) / TABLE),
        )
    )


if __name__ == "__main__":
    submit(describe, __doc__)
