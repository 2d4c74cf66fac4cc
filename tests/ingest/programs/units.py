"""Lines of logs into a table; a line that begins with `bad` cannot be processed while the file `fixed` is not there."""

import argparse
import os
import signal
from pathlib import Path

from heronpy import TopologyBuilder
from heronpy.ingest import LineFiles, LogUnits

parser = argparse.ArgumentParser()
parser.add_argument("--logs", type=Path, required=True)
parser.add_argument("--table", required=True)
parser.add_argument("--until", default="forever")
parser.add_argument("--unit-bytes", type=int, default=8192)
parser.add_argument("--workers", type=int, default=2)
parser.add_argument("--pattern", default="*.log*")
parser.add_argument("--on-bad", default="split")
parser.add_argument("--show-pid", action="store_true", help="rows begin with the process that made them")
parser.add_argument("--tries-max", type=int)
parser.add_argument("--bad-max", type=int)
args = parser.parse_args()
fixed = str(args.logs / "fixed")


def rows(unit):
    for line in unit.lines():
        if line.startswith("bad") and not os.path.exists(fixed):
            raise ValueError(f"cannot read {line}")
        if line.startswith("deadly") and not os.path.exists(fixed):
            os.kill(os.getpid(), signal.SIGSEGV)
        yield f"{os.getpid()} {line}" if args.show_pid else line


builder = TopologyBuilder("lines")
builder.add_spec(
    *LogUnits.specs(
        "lines",
        logs=str(args.logs / args.pattern),
        rows=rows,
        output=LineFiles(args.table),
        workers=args.workers,
        until=args.until,
        unit_bytes=args.unit_bytes,
        unit_wait_s=0.5,
        on_bad=args.on_bad,
        tries_max=args.tries_max,
        bad_max=args.bad_max,
    )
)
builder.build_and_submit()
