"""The topology of `heron verify run`: source -> work -> sink, grouped by key, so tuples of a key stay in order."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path
from typing import Any

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.api.topology_context import TopologyContext
from heronpy.loadtest.topologies.parts import submit
from heronpy.verify.components import SeededSource, VerifiedSink
from heronpy.verify.stream import KEY, POISON_STEP, spec_of

#: Runtime configuration: `heron update ... --runtime-config work:pause_ms:200`; the pause of its first task.
PAUSE_KEY = "pause_ms"
#: Runtime configuration: megabytes per second that its first task takes and never frees.
LEAK_KEY = "leak_mb_s"
#: While a file with this name is in the folder of the run, its first task dies at every start.
CRASH_FILE = "crash"
#: The effects of poison, in turn; a task, or its successor, must survive each of them.
BITES = ("raise", "exit", "recursion", "segfault", "huge", "hang")
#: Size of a tuple above the maximum tuple size.
HUGE_BYTES = 64 << 20


class VerifiedRelay(Bolt):
    """Passes each tuple on, anchored to its input, and acks the input."""

    outputs = ["partition", "seq", "key", "payload", "crc", "emission"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        tasks = sorted(context.get_component_tasks(context.get_component_id()) or ())
        self.first = context.get_task_id() == tasks[0]
        self.source = spec_of(config[KEY])
        if self.first and (Path(config[KEY]["out"]) / CRASH_FILE).exists():
            self.logger.error("the verification makes this task die at its start")
            os._exit(13)
        self.work_s = self.source.work_ms / 1000
        self.pause_s = self.leak_bytes_s = self.leaked_at = 0.0
        self.hoard: list[bytes] = []
        self.update(config)

    def update(self, changed: dict[str, Any]) -> None:
        """Apply the keys of a runtime configuration."""
        if self.first and PAUSE_KEY in changed:
            self.pause_s = float(changed[PAUSE_KEY]) / 1000
            self.logger.info("a tuple now takes %g s", self.pause_s)
        if self.first and LEAK_KEY in changed:
            self.leak_bytes_s, self.leaked_at = float(changed[LEAK_KEY]) * 1e6, time.monotonic()
            self.logger.info("this task now leaks %g bytes a second", self.leak_bytes_s)

    def process(self, tup: Any) -> None:
        if self.pause_s:
            time.sleep(self.pause_s)
        if self.leak_bytes_s:
            self._leak()
        if self.work_s:
            time.sleep(self.work_s)
        values = tup.values
        if self.source.poison and self.source.poisoned(values[1]):
            self._bite(BITES[(values[0] * self.source.poison + values[1] // POISON_STEP) % len(BITES)], values)
        self.emit(values, anchors=[tup])
        self.ack(tup)

    def _leak(self) -> None:
        now = time.monotonic()
        self.hoard.append(b"\1" * int((now - self.leaked_at) * self.leak_bytes_s))
        self.leaked_at = now

    def _bite(self, kind: str, values: Any) -> None:
        if kind == "raise":
            raise ValueError("this tuple is poison")
        if kind == "exit":
            os._exit(13)
        if kind == "recursion":
            self._bite(kind, values)
        if kind == "segfault":
            ctypes.string_at(0)
        if kind == "huge":
            self.emit([*values[:3], bytes(HUGE_BYTES), *values[4:]])
        while kind == "hang":
            pass


def describe(run: dict[str, Any], made: TopologyBuilder) -> None:
    """source -> work -> sink; the sink keeps records, or rows of a Spark table"""
    config = spec_of(run["input"]).config(run["out"])
    tasks, key = run["tasks"], Grouping.fields("key")
    source = made.add_spout("source", SeededSource, par=min(tasks, run["input"]["partitions"]), config=config)
    relay = {**config, PAUSE_KEY: run["pause_ms"]}
    work = made.add_bolt("work", VerifiedRelay, par=tasks, inputs={source: key}, config=relay)
    if not run.get("spark"):
        made.add_bolt("sink", VerifiedSink, par=tasks, inputs={work: key}, config=config)
        return
    from heronpy.connectors.spark import SparkSink
    from heronpy.verify.spark import SCHEMA, keep_rows

    made.add_spec(
        SparkSink.spec("sink", {work: key}, aggregate=keep_rows, par=tasks, schema=SCHEMA, table=run["table"])
    )


if __name__ == "__main__":
    submit(describe, __doc__)
