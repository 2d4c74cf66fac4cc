"""Rows at a fixed rate into Spark, at least once; the table is counted afterwards.

heron submit local spark_sink.py - --spec spec.json
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from heronpy.api.stream import Grouping
from heronpy.connectors.spark import SparkSink
from heronpy.loadtest.topologies.parts import builder, config_of, read_spec
from heronpy.loadtest.topologies.passthrough import PacedSpout

TABLE = "spark-table"


def write_rows(spark: Any, df: Any, batch: Any) -> None:
    """Called in PySpark once per batch: keep every row."""
    batch.write_parquet(df.select("number", "due_ns"), batch.options["output"])


class RowSpout(PacedSpout):
    """Paced rows; each is acked when Spark has committed its batch."""

    outputs = ["number", "due_ns", "payload"]


def main() -> None:
    """Describe the topology and submit it."""
    spec = read_spec(__doc__)
    p, made = spec["parameters"], builder(spec)
    rows = made.add_spout("rows", RowSpout, par=p["spouts"], config=config_of(spec))
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
    made.build_and_submit()


if __name__ == "__main__":
    main()
