"""Lines of logs to Spark, which writes them as they are, and how many of each log; fails while the file `broken` is there."""

import argparse
import os
from pathlib import Path

from heronpy import TopologyBuilder
from heronpy.ingest import LogUnits, SparkBatches

parser = argparse.ArgumentParser()
parser.add_argument("--logs", type=Path, required=True)
parser.add_argument("--table", required=True)
parser.add_argument("--counts", required=True)
parser.add_argument("--until", default="forever")
parser.add_argument("--workers", type=int, default=2)
args = parser.parse_args()


def rows(unit):
    for line in unit.lines():
        yield [line.split(" ")[0], line]


def store(spark, df, batch):
    if os.path.exists(batch.options["broken"]):
        raise ValueError("it is broken")
    batch.write_parquet(df, batch.options["table"])
    batch.write_parquet(df.groupBy("log").count(), batch.options["counts"])


builder = TopologyBuilder("lines")
builder.add_spec(
    *LogUnits.specs(
        "lines",
        logs=str(args.logs / "*.log*"),
        rows=rows,
        output=SparkBatches(
            store,
            {"log": "string", "line": "string"},
            dispatch_bytes="256KB",
            dispatch_wait_s=1.0,
            table=args.table,
            counts=args.counts,
            broken=str(args.logs / "broken"),
        ),
        workers=args.workers,
        until=args.until,
        unit_bytes=65536,
        unit_wait_s=0.5,
    )
)
builder.build_and_submit()
