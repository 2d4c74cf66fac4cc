"""A topology that records when its first tuple arrives, or that has many idle tasks.

With `beat` the spout emits one tuple every millisecond, and each incarnation of the sink records when its
first tuple arrived; otherwise the tasks are idle.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.api.topology_context import TopologyContext
from heronpy.common.folders import replace_file
from heronpy.loadtest.topologies.parts import KEY, config_of, submit


class BeatSpout(Spout):
    """Emits its process id every millisecond."""

    outputs = ["pid"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.beating = config[KEY]["parameters"]["beat"]
        self.due = 0.0

    def next_tuple(self) -> None:
        now = time.monotonic()
        if self.beating and now >= self.due:
            self.due = now + 0.001
            self.emit([os.getpid()])


class FirstBolt(Bolt):
    """Writes a file for the first tuple from each spout process, named after the pids of spout and bolt."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.out = Path(config[KEY]["out"])
        self.known: set[int] = set()

    def process(self, tup: Any) -> None:
        pid = tup.values[0]
        if pid not in self.known:
            self.known.add(pid)
            replace_file(self.out / f"first-{pid}-{os.getpid()}", repr(time.monotonic()).encode(), durable=False)


def describe(spec: dict[str, Any], made: TopologyBuilder) -> None:
    """beat -> sink, which has all other tasks"""
    beats = made.add_spout("beat", BeatSpout, par=1, config=config_of(spec))
    tasks = max(spec["parameters"]["tasks"] - 1, 1)
    made.add_bolt("sink", FirstBolt, par=tasks, inputs={beats: Grouping.SHUFFLE}, config=config_of(spec))


if __name__ == "__main__":
    submit(describe, __doc__)
