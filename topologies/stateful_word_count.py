"""Word count with an exact result despite failures: counts are state, and checkpoints publish the files.

    heron submit local topologies/stateful_word_count.py Counts --file book.txt --out counts
    heron checkpoints list local Counts

After the end of the input, the folder `counts` has one line of JSON per word. Kill tasks during the run, or
kill the topology and submit it again with `--restore latest`: the lines stay the same. `--rate 100` makes the run
last long enough for these experiments. The following command removes the limit:

    heron update local Counts --runtime-config line:counts.rate:0
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

from heronpy import Bolt, Grouping, HashMapState, Spout, StatefulComponent, TopologyBuilder, TopologyContext, Tuple
from heronpy.api import api_constants as constants
from heronpy.connectors.files import FileSink


class LineSpout(Spout, StatefulComponent):
    """Reads a file `times` times. Its state is its position, so that it can go back to a checkpoint."""

    outputs = ["line"]

    def init_state(self, stateful_state: HashMapState) -> None:
        # Called before initialize, with an empty state at the first start, or with the checkpoint's state.
        self.state = stateful_state

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.file = open(config["counts.file"], "rb")
        self.turn, offset = self.state.get("position", (1, 0))
        self.turns = config["counts.times"]
        self.file.seek(offset)
        self.due = 0.0
        self.update(config)

    def update(self, changed: dict[str, Any]) -> None:
        # Called with the keys that `heron update --runtime-config` changes.
        rate = float(changed.get("counts.rate", 0))
        self.pause_s = 1 / rate if rate else 0.0

    def pre_save(self, checkpoint_id: str) -> None:
        # Called between two tuples: all tuples emitted before belong to the checkpoint.
        self.state["position"] = (self.turn, self.file.tell())

    def next_tuple(self) -> None:
        if self.pause_s:
            now = time.monotonic()
            if now < self.due:
                return
            self.due = now + self.pause_s
        line = self.file.readline()
        if line:
            self.emit([line.decode()])
        elif self.turn < self.turns:
            self.turn += 1
            self.file.seek(0)
        else:
            self.end_of_input()


class SplitBolt(Bolt):
    """Splits lines into words. A bolt without state needs no code for checkpoints."""

    outputs = ["word"]

    def process(self, tup: Tuple) -> None:
        for word in tup.values[0].split():
            self.emit([word])


class CountBolt(Bolt):
    """Counts words in keyed state. Checkpoints save only changed counts; new tasks get the counts of their words."""

    outputs = ["word", "count"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.counts = context.keyed_state("counts")

    def process(self, tup: Tuple) -> None:
        # The key is the value of the grouping field.
        word = tup.values[0]
        self.counts[word] = self.counts.get(word, 0) + 1

    def finish(self) -> None:
        for word, count in self.counts.items():
            self.emit([word, count])


def stateful_word_count(name: str, path: str, folder: str, times: int = 1, rate: float = 0) -> TopologyBuilder:
    """Return the topology line -> split -> count -> files."""
    builder = TopologyBuilder(name)
    config = {"counts.file": path, "counts.times": times, "counts.rate": rate}
    lines = builder.add_spout("line", LineSpout, par=1, config=config)
    words = builder.add_bolt("split", SplitBolt, par=1, inputs={lines: Grouping.SHUFFLE})
    counts = builder.add_bolt("count", CountBolt, par=2, inputs={words: Grouping.fields("word")})
    builder.add_spec(FileSink.spec("store", {counts: Grouping.SHUFFLE}, folder=folder, fields=["word", "count"]))
    builder.set_config(
        {
            constants.TOPOLOGY_RELIABILITY_MODE: constants.TopologyReliabilityMode.EFFECTIVELY_ONCE,
            constants.TOPOLOGY_STATEFUL_CHECKPOINT_INTERVAL_SECONDS: 2,
        }
    )
    return builder


def main() -> None:
    """Describe the topology and submit it."""
    parser = argparse.ArgumentParser(description="Count words exactly.")
    parser.add_argument("name", nargs="?", default="Counts", help="name of the topology")
    parser.add_argument("--file", required=True, help="the text to count")
    parser.add_argument("--out", required=True, help="folder for the counts")
    parser.add_argument("--times", type=int, default=1, help="number of times to read the file")
    parser.add_argument("--rate", type=float, default=0, help="lines per second; 0: no limit")
    args = parser.parse_args()
    if not os.path.isfile(args.file):
        parser.error(f"there is no file {args.file}")
    file, out = os.path.abspath(args.file), os.path.abspath(args.out)
    stateful_word_count(args.name, file, out, args.times, args.rate).build_and_submit()


if __name__ == "__main__":
    main()
