"""The shortest program that sends a stream to Spark: sensor readings, averaged per micro-batch.

    pip install 'heronpy[spark]'
    heron submit local topologies/spark_sink.py SparkSinkDemo --output /tmp/readings --wait

SparkSink collects tuples; a batch goes to Spark when it has `batch_rows` rows or is `batch_interval_s`
old. `average` then runs in PySpark, once per batch, and its result appears in the table as
`batch=<id>`, completely and once, even after failures and retries. Any program that reads Parquet can
read the table, for example `pandas.read_parquet("/tmp/readings")`.
"""

from __future__ import annotations

import argparse
import os
import random
from typing import TYPE_CHECKING, Any

from heronpy.api import api_constants
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.api.topology_context import TopologyContext
from heronpy.connectors.spark import SparkSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from heronpy.spark.batch import Batch


class SensorSpout(Spout):
    """Emits readings of a few sensors, and emits failed readings again."""

    outputs = ["sensor", "celsius"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.left = config["spark_sink.readings"]
        self.pending: dict[int, list[str | float]] = {}
        self.again: list[int] = []

    def next_tuple(self) -> None:
        if self.again:
            tup_id = self.again.pop()
            self.emit(self.pending[tup_id], tup_id=tup_id)
        elif self.left > 0:
            self.left -= 1
            reading: list[str | float] = [f"sensor-{random.randrange(5)}", round(random.gauss(20, 3), 2)]
            self.pending[self.left] = reading
            self.emit(reading, tup_id=self.left)
        elif not self.pending:
            self.end_of_input()

    def ack(self, tup_id: int) -> None:
        # Spark has committed the batch with this reading.
        self.pending.pop(tup_id, None)

    def fail(self, tup_id: int) -> None:
        if tup_id in self.pending:
            self.again.append(tup_id)


def average(spark: SparkSession, df: DataFrame, batch: Batch) -> None:
    """Average a batch. Called in PySpark with a DataFrame of the rows; `batch.options` are the options of spec()."""
    from pyspark.sql import functions as F

    averages = df.groupBy("sensor").agg(F.avg("celsius").alias("celsius"), F.count("*").alias("readings"))
    batch.write_parquet(averages, batch.options["output"])


def spark_sink(name: str, output: str, readings: int = 5000) -> TopologyBuilder:
    """Return the topology sensors -> Spark."""
    builder = TopologyBuilder(name)
    sensors = builder.add_spout("sensors", SensorSpout, par=1, config={"spark_sink.readings": readings})
    builder.add_spec(
        SparkSink.spec(
            "averages",
            inputs={sensors: Grouping.SHUFFLE},
            aggregate=average,
            # Without this argument, the schema would be inferred from the first batch.
            schema={"sensor": "string", "celsius": "double"},
            batch_rows=1000,
            batch_interval_s=0.5,
            output=os.path.abspath(output),
        )
    )
    builder.set_config(
        {
            api_constants.TOPOLOGY_RELIABILITY_MODE: api_constants.TopologyReliabilityMode.ATLEAST_ONCE,
            # Maximum number of pending readings. With fewer than a batch needs, each batch would wait for its interval.
            api_constants.TOPOLOGY_MAX_SPOUT_PENDING: 4000,
            # Longer than the start of Spark, so that waiting readings do not time out.
            api_constants.TOPOLOGY_MESSAGE_TIMEOUT_SECS: 120,
        }
    )
    return builder


def main() -> None:
    """Describe the topology and submit it."""
    parser = argparse.ArgumentParser(description="Average sensor readings with PySpark.")
    parser.add_argument("name", nargs="?", default="SparkSinkDemo", help="name of the topology")
    parser.add_argument("--output", default="/tmp/readings", help="folder of the Parquet table")
    parser.add_argument("--readings", type=int, default=5000, help="number of readings")
    args = parser.parse_args()
    spark_sink(args.name, args.output, args.readings).build_and_submit()


if __name__ == "__main__":
    main()
