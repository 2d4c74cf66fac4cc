"""Lines of logs to bolts, which write what they have acked; some rows fail at their first try."""

import argparse
import os
from pathlib import Path

from heronpy import Bolt, Grouping, TopologyBuilder
from heronpy.api import api_constants
from heronpy.ingest import LogUnits

parser = argparse.ArgumentParser()
parser.add_argument("--logs", type=Path, required=True)
parser.add_argument("--out", type=Path, required=True)
parser.add_argument("--until", default="forever")
args = parser.parse_args()


def rows(unit):
    for line in unit.lines():
        if line.startswith("bad"):
            raise ValueError(f"cannot read {line}")
        yield [line]


class Write(Bolt):
    """One file per process, so that a kill tears nothing but its last line."""

    def initialize(self, config, context):
        self.file = open(Path(config["out"]) / f"{context.get_task_id()}-{os.getpid()}", "a")
        self.refused = set()

    def process(self, tup):
        [line] = tup.values
        if line.endswith("00") and line not in self.refused:
            self.refused.add(line)
            self.fail(tup)
            return
        self.file.write(line + "\n")
        self.file.flush()
        self.ack(tup)


builder = TopologyBuilder("rows")
worker, keeper = LogUnits.specs(
    "rows",
    logs=str(args.logs / "*.log*"),
    rows=rows,
    fields=["line"],
    workers=2,
    until=args.until,
    unit_bytes=8192,
    unit_wait_s=0.5,
)
builder.add_spec(worker, keeper)
builder.add_bolt("write", Write, par=2, inputs={worker: Grouping.SHUFFLE}, config={"out": str(args.out)})
builder.set_config(
    {
        api_constants.TOPOLOGY_RELIABILITY_MODE: api_constants.TopologyReliabilityMode.ATLEAST_ONCE,
        api_constants.TOPOLOGY_MAX_SPOUT_PENDING: 200,
    }
)
builder.build_and_submit()
