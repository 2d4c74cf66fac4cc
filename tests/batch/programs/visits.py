"""Counts the visitors in the lines of files: python visits.py NAME LOGS OUT [KEY=VALUE]...

tasks: of the count. follow: 1 for a stream that does not end. broken: a visitor whose line raises. slow_s: per line.
spark: 1 for a SparkSink in place of the FileSink. mode: of reliability. kill: a file whose absence makes the parser kill its process once.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from heronpy import Bolt, Grouping, Spout, TopologyBuilder, TopologyContext, Tuple
from heronpy.api.metrics import CountMetric
from heronpy.connectors.files import FileSink
from heronpy.connectors.spark import SparkSink
from heronpy.connectors.textfiles.textfilespout import TextFileSpout


class Parse(Bolt):
    """A line is: visitor, blank, page."""

    outputs = ["visitor", "page"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.broken, self.slow_s = str(config.get("broken", "")), float(config.get("slow_s", 0))
        self.kill = str(config.get("kill", ""))
        self.parsed = CountMetric()
        context.register_metric("parsed", self.parsed, 0.5)

    def process(self, tup: Tuple) -> None:
        visitor, page = tup.values[0].split(" ")
        if visitor == self.broken:
            raise ValueError(f"{visitor} is not welcome")
        if self.kill and visitor == "killer" and not os.path.exists(self.kill):
            Path(self.kill).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.slow_s:
            time.sleep(self.slow_s)
        self.emit([visitor, page])
        self.parsed.incr()


class Count(Bolt):
    """The number of lines of each visitor; emits what has changed at each tick, or at the end."""

    outputs = ["visitor", "visits"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        saved = str(config["topology.reliability.mode"]) == "EFFECTIVELY_ONCE"
        self.counts: Any = context.keyed_state("counts") if saved else {}
        self.changed: Any = context.keyed_state("changed") if saved else {}

    def process(self, tup: Tuple) -> None:
        visitor = tup.values[0]
        self.counts[visitor] = self.counts.get(visitor, 0) + 1
        self.changed[visitor] = True

    def process_tick(self, tup: Tuple) -> None:
        for visitor in sorted(self.changed):
            self.emit([visitor, self.counts[visitor]])
        self.changed.clear()

    def finish(self) -> None:
        self.process_tick(None)  # type: ignore[arg-type]


class Endless(Spout):
    """A spout that a batch cannot have."""

    outputs = ["line"]

    def next_tuple(self) -> None:
        self.emit(["nobody /"])


def store_rows(spark: Any, df: Any, batch: Any) -> None:
    """What the Spark sink does."""
    batch.write_parquet(df, batch.options["table"])


def topology(name: str, logs: str, out: str, **given: str) -> TopologyBuilder:
    """The topology; `given` are the keys of the docstring."""
    builder = TopologyBuilder(name)
    if given.get("endless"):
        lines = builder.add_spout("lines", Endless, par=1)
    else:
        config = {TextFileSpout.PATHS: logs, TextFileSpout.FOLLOW: bool(given.get("follow"))}
        lines = builder.add_spout("lines", TextFileSpout, par=int(given.get("readers", 1)), config=config)
    parse = builder.add_bolt("parse", Parse, par=2, inputs={lines: Grouping.SHUFFLE}, config=given or None)
    count = builder.add_bolt(
        "count", Count, par=int(given.get("tasks", 2)), inputs={parse: Grouping.fields("visitor")},
        config={"topology.tick.tuple.freq.secs": 0.2},
    )  # fmt: skip
    if given.get("spark"):
        schema = {"visitor": "string", "visits": "int64"}
        builder.add_spec(
            SparkSink.spec("store", {count: Grouping.SHUFFLE}, aggregate=store_rows, schema=schema, table=out)
        )
    else:
        builder.add_spec(FileSink.spec("store", {count: Grouping.SHUFFLE}, folder=out, fields=["visitor", "visits"]))
    builder.set_config({
        "topology.reliability.mode": given.get("mode", "EFFECTIVELY_ONCE"),
        "heron.checkpoint.interval_s": 0.5,
        "heron.batch.unit_bytes": int(given.get("unit_bytes", 20_000)),
        "heron.batch.workers": int(given.get("workers", 2)),
    })  # fmt: skip
    return builder


if __name__ == "__main__":
    words = dict(one.partition("=")[::2] for one in sys.argv[4:])
    topology(*sys.argv[1:4], **words).build_and_submit()
