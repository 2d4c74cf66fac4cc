"""Pipelines on sites: lines of logs into a table; while a site's home has the file `hold`, its workers wait."""

import argparse
import os
import time
from pathlib import Path

from heronpy import TopologyBuilder
from heronpy.ingest import LineFiles, LogUnits

parser = argparse.ArgumentParser()
parser.add_argument("--logs", required=True, help="pattern")
parser.add_argument("--table", required=True)
parser.add_argument("--ledger", required=True)
parser.add_argument("--until", default="forever")
parser.add_argument("--replica", action="append", default=[])
parser.add_argument("--pipeline", action="append", default=[], help="name, or name:those,that,go,ahead")
args = parser.parse_args()


def rows(unit):
    while os.path.exists(f"{os.environ['HERON_HOME']}/hold"):
        time.sleep(0.05)
    yield from unit.lines()


builder = TopologyBuilder("lines")
for text in args.pipeline or ["lines"]:
    name, _, after = text.partition(":")
    builder.add_spec(
        *LogUnits.specs(
            name,
            logs=args.logs,
            rows=rows,
            output=LineFiles(str(Path(args.table) / name) if args.pipeline else args.table),
            workers=2,
            until=args.until,
            unit_bytes=4096,
            unit_wait_s=0.3,
            ledger=args.ledger,
            replicas=args.replica,
            after=[one for one in after.split(",") if one],
        )
    )
builder.build_and_submit()
