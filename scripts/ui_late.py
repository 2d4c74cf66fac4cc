"""Spouts that start to emit one after the other, and record when: for scripts/ui_figures.py.

    heron submit local scripts/ui_late.py - FOLDER COUNT

waits until FOLDER/begin contains the start time of the first spout and the interval between spouts.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from heronpy import Bolt, Grouping, Spout, TopologyBuilder, TopologyContext, Tuple


class Late(Spout):
    """Emits 20 tuples a second, beginning at its start time."""

    outputs = ["number"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.folder = Path(config["late.folder"])
        self.name = context.get_component_id()
        self.begins_at: float | None = None
        self.due_at = 0.0

    def next_tuple(self) -> None:
        now = time.time()
        if self.begins_at is None:
            if (self.folder / "begin").exists():
                begin, apart_s = map(float, (self.folder / "begin").read_text().split())
                self.begins_at = begin + apart_s * int(self.name.removeprefix("late-"))
            return
        if now < max(self.begins_at, self.due_at):
            return
        if not self.due_at:
            (self.folder / self.name).write_text(str(now))
        self.due_at = now + 0.05
        self.emit([1])


class Sink(Bolt):
    """Discards all tuples."""

    def process(self, tup: Tuple) -> None:
        self.ack(tup)


if __name__ == "__main__":
    folder, count = sys.argv[1:3]
    builder = TopologyBuilder("Late")
    spouts = [builder.add_spout(f"late-{number}", Late, par=1) for number in range(int(count))]
    builder.add_bolt("sink", Sink, par=1, inputs={spout["default"]: Grouping.SHUFFLE for spout in spouts})
    builder.set_config({"late.folder": folder})
    builder.build_and_submit()
