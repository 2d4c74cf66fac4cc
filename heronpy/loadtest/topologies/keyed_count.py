"""Counts the lines of each user: lines -> parse (shuffle) -> count (fields, keyed state) -> store.

`work` selects a variant. `held` sleeps at each line while the file `hold` exists; a process with a unit creates the
file `hold-<pid>`. `slow` sleeps `line_s` at each line and records each attempt at a unit. The sleep is ten times as
long at lines of the user `heavy`. With `slow_process`, it is also ten times as long in the first process with a unit.
`broken` raises for one user. `live` follows the files, and records when a line of the user `live` arrives. `wide` reads
no lines: it counts the tuples of `splits` splits, of `SPLIT_BYTES` each.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.split_spout import Split, SplitSpout
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.api.topology_context import TopologyContext
from heronpy.connectors.files import FileSink
from heronpy.connectors.textfiles.textfilespout import TextFileSpout
from heronpy.loadtest.inputs import USERS, click
from heronpy.loadtest.topologies.log_units import ATTEMPTS, SLOW, SLOWER, is_slow
from heronpy.loadtest.topologies.parts import KEY, submit

HOLD, LIVE, BROKEN, HEAVY, HELD_S = "hold", "live", "user7", "heavy", 0.005
#: `wide`: number of tuples per split, and bytes per tuple.
WIDE, WIDE_BYTES = 128_000, 1000
SPLIT_BYTES = WIDE * WIDE_BYTES


class Parse(Bolt):
    outputs = ["user", "ms"]

    def process(self, tup: Any) -> None:
        self.emit(click(tup.values[0]))


class Wide(SplitSpout):
    outputs = ["user", "load"]

    def splits(self, config: dict[str, Any]) -> list[Split]:
        return [Split(str(number), SPLIT_BYTES) for number in range(config[KEY]["parameters"]["splits"])]

    def read(self, split: Split) -> Iterator[Any]:
        first, load = int(split.name) * WIDE, bytes(WIDE_BYTES)
        for number in range(first, first + WIDE):
            yield f"user{number % USERS}", load


class HeldParse(Parse):
    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self._hold = Path(config[KEY]["out"]) / HOLD
        if self._hold.exists():
            self._hold.with_name(f"{HOLD}-{os.getpid()}").touch()

    def process(self, tup: Any) -> None:
        if self._hold.exists():
            time.sleep(HELD_S)
        super().process(tup)


class SlowParse(Parse):
    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self._parameters, self._out = config[KEY]["parameters"], Path(config[KEY]["out"])
        self._line_s = self._parameters["line_s"]
        if self._parameters["slow_process"] and is_slow(self._out / SLOW):
            self._line_s *= SLOWER
        self._began, self._first, self._done = time.monotonic(), "", False

    def process(self, tup: Any) -> None:
        user, ms = click(tup.values[0])
        self._first = self._first or f"{user} {ms}"
        time.sleep(self._line_s * (SLOWER if user == HEAVY else 1))
        self.emit([user, ms])

    def finish(self) -> None:
        self._done = True

    def close(self) -> None:
        now = time.monotonic()
        line = json.dumps({"unit": self._first, "s": now - self._began, "at": now, "done": self._done}) + "\n"
        descriptor = os.open(self._out / ATTEMPTS, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.write(descriptor, line.encode())
        os.close(descriptor)


class Count(Bolt):
    """Emits the changed counts at each tick of a stream, or all counts at the end of a batch."""

    outputs = ["user", "count"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self._counts: Any = context.keyed_state("counts")
        self._changed: dict[str, None] = {}

    def process(self, tup: Any) -> None:
        user = tup.values[0]
        self._counts[user] = self._counts.get(user, 0) + 1
        self._changed[user] = None

    def process_tick(self, tup: Any) -> None:
        for user in self._changed:
            self.emit([user, self._counts[user]])
        self._changed.clear()

    def finish(self) -> None:
        self.process_tick(None)


class LiveCount(Count):
    """Records the arrival time of a live line."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        self._out = Path(config[KEY]["out"])

    def process(self, tup: Any) -> None:
        super().process(tup)
        if tup.values[0] == LIVE:
            (self._out / LIVE).write_text(str(time.time()), encoding="ascii")


class BrokenCount(Count):
    def process(self, tup: Any) -> None:
        if tup.values[0] == BROKEN:
            raise ValueError("a bad user")
        super().process(tup)


PARSERS = {"held": HeldParse, "slow": SlowParse}
COUNTERS = {"broken": BrokenCount, "live": LiveCount}


def describe(spec: dict[str, Any], made: TopologyBuilder) -> None:
    """Lines -> parse -> count -> store, or wide -> count -> store."""
    p = spec["parameters"]
    own, follows = {KEY: spec}, p["work"] == "live"
    ticks = {"topology.tick.tuple.freq.secs": 0.5} if follows else {}
    if p["work"] == "wide":
        parse = made.add_spout("wide", Wide, par=1, config=own)
    else:
        files = {TextFileSpout.PATHS: p["logs"], TextFileSpout.FOLLOW: follows}
        lines = made.add_spout("lines", TextFileSpout, par=1, config=files)
        parser = PARSERS.get(p["work"], Parse)
        # With one task, a bolt that defines `finish` would be a separate stage.
        parse = made.add_bolt("parse", parser, par=2, inputs={lines: Grouping.SHUFFLE}, config=own)
    counter = COUNTERS.get(p["work"], Count)
    count = made.add_bolt("count", counter, par=1, inputs={parse: Grouping.fields("user")}, config=own | ticks)
    made.add_spec(FileSink.spec("store", {count: Grouping.SHUFFLE}, folder=p["table"], fields=["user", "count"]))


if __name__ == "__main__":
    submit(describe, __doc__)
