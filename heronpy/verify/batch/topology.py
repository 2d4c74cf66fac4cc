"""The topology of `heron verify run --mode batch`: it reads lines and writes a count and a sum for each key.

In a batch, the bolts are slow until the verification ends the slow phase, so that faults occur in the middle of each
stage. Each process records how many tuples its bolts have seen.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.api.topology_context import TopologyContext
from heronpy.api.tuple import Tuple
from heronpy.connectors.files import FileSink
from heronpy.connectors.textfiles.textfilespout import TextFileSpout
from heronpy.loadtest.topologies.parts import submit

PARSE, COUNT = "parse", "count"
#: Below the folder of a run: a file with the name of a bolt makes it slow, and each process has a file with a byte for
#: each tuple seen.
SLOW, SEEN = "slow", "seen"
#: Below the folder of a run: a JSON object that maps each line that cannot be processed to its effect.
BAD, RAISES, KILLS = "bad.json", "raises", "kills its process"
#: Component configuration: the folder of the run, and the seconds that a slow bolt takes for a tuple.
OUT_KEY, PAUSE_KEY = "verify.out", "verify.pause_s"
#: Number of tuples between two checks.
LOOK = 20
FIELDS = ["key", "count", "sum"]


class Paced(Bolt):
    """A bolt that is slow while a file with its name exists."""

    name: str

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        out = Path(config[OUT_KEY])
        self._slow, self._pause_s = out / SLOW / self.name, float(config[PAUSE_KEY])
        self._seen, self._count = out / SEEN / str(os.getpid()), 0

    def pace(self) -> None:
        """Count a tuple, and wait if the bolt is slow."""
        self._count += 1
        if self._count % LOOK == 0:
            with open(self._seen, "ab") as file:
                file.write(bytes(LOOK))
            if self._slow.exists():
                time.sleep(self._pause_s * LOOK)


class Parse(Paced):
    """Parses lines: partition, number, key, checksum."""

    outputs = ["key", "crc"]
    name = PARSE

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        bad = Path(config[OUT_KEY]) / BAD
        self._bad = json.loads(bad.read_text(encoding="ascii")) if bad.exists() else {}

    def process(self, tup: Tuple) -> None:
        (line,) = tup.values
        if line in self._bad:
            if self._bad[line] == KILLS:
                os.kill(os.getpid(), signal.SIGSEGV)
            raise ValueError("this line cannot be processed")
        _, _, key, crc = line.split(" ")
        self.pace()
        self.emit([key, int(crc)])


class Count(Paced):
    """Counts tuples and sums checksums by key; emits changes at each tick and at the end."""

    outputs = FIELDS
    name = COUNT

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        self._totals: Any = context.keyed_state("totals")
        self._changed: Any = context.keyed_state("changed")

    def process(self, tup: Tuple) -> None:
        key, crc = tup.values
        count, total = self._totals.get(key, (0, 0))
        self._totals[key] = (count + 1, total + crc)
        self._changed[key] = True
        self.pace()

    def process_tick(self, tup: Tuple) -> None:
        self.finish()

    def finish(self) -> None:
        for key in sorted(self._changed):
            self.emit([key, *self._totals[key]])
        self._changed.clear()


def describe(run: dict[str, Any], made: TopologyBuilder) -> None:
    """lines -> parse -> count -> store"""
    own = {OUT_KEY: run["records"], PAUSE_KEY: run["pause_s"]}
    files = {TextFileSpout.PATHS: run["logs"], TextFileSpout.FOLLOW: True}
    lines = made.add_spout("lines", TextFileSpout, 1, config=files)
    parse = made.add_bolt(PARSE, Parse, run["tasks"], inputs={lines: Grouping.SHUFFLE}, config=own)
    ticks = {"topology.tick.tuple.freq.secs": 0.3}
    by_key = {parse: Grouping.fields("key")}
    count = made.add_bolt(COUNT, Count, run["tasks"], inputs=by_key, config=own | ticks)
    made.add_spec(FileSink.spec("store", {count: Grouping.SHUFFLE}, folder=run["rows"], fields=FIELDS))


if __name__ == "__main__":
    submit(describe, __doc__)
