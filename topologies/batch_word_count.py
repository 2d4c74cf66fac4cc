"""Word count in batches: as in word_count.py, but one call processes all tuples that arrived together.

    heron submit local topologies/batch_word_count.py BatchWordCount --lines 200000

The input ends after `--lines` lines. Each counter then logs its most frequent words.
"""

from __future__ import annotations

import argparse
import itertools
from collections import Counter
from typing import Any

from heronpy import Batch, Bolt, Grouping, Spout, TopologyBuilder, TopologyContext

LINES = (
    "the quick brown fox jumps over the lazy dog",
    "a stream is a river of tuples",
    "the river runs through the topology",
)
LINES_PER_CALL = 500


class LineSpout(Spout):
    """Emits many lines per call."""

    outputs = ["line"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.left = int(config["batch_word_count.lines"])
        self.lines = itertools.cycle(LINES)
        self.numbers = itertools.count()

    def next_tuple(self) -> None:
        count = min(LINES_PER_CALL, self.left)
        if not count:
            self.end_of_input()
            return
        self.left -= count
        lines = list(itertools.islice(self.lines, count))
        self.emit_batch({"line": lines}, ids=list(itertools.islice(self.numbers, count)))


class SplitBolt(Bolt):
    """Splits lines into words."""

    outputs = ["word"]

    def process_batch(self, batch: Batch) -> None:
        split = [line.split() for line in batch.columns["line"]]
        words = list(itertools.chain.from_iterable(split))
        # For each word, the index of its line.
        parents = [place for place, found in enumerate(split) for _ in found]
        self.emit_batch({"word": words}, anchors=batch.take(parents))
        self.ack(batch)


class CountBolt(Bolt):
    """Counts the words that the fields grouping sends to this task."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.counts: Counter[str] = Counter()

    def process_batch(self, batch: Batch) -> None:
        self.counts.update(batch.columns["word"])
        self.ack(batch)

    def finish(self) -> None:
        """Called once, after all input has been processed."""
        for word, count in self.counts.most_common(5):
            self.logger.info("%s: %d", word, count)


def batch_word_count(name: str, lines: int) -> TopologyBuilder:
    """Return the topology line -> split -> count."""
    builder = TopologyBuilder(name)
    source = builder.add_spout("line", LineSpout, par=1, config={"batch_word_count.lines": lines})
    words = builder.add_bolt("split", SplitBolt, par=1, inputs={source: Grouping.SHUFFLE})
    builder.add_bolt("count", CountBolt, par=2, inputs={words: Grouping.fields("word")})
    builder.set_config({"topology.reliability.mode": "ATLEAST_ONCE", "topology.max.spout.pending": 2000})
    return builder


def main() -> None:
    """Describe the topology and submit it."""
    parser = argparse.ArgumentParser(description="Count words in batches.")
    parser.add_argument("name", nargs="?", default="BatchWordCount", help="name of the topology")
    parser.add_argument("--lines", type=int, default=100_000, help="number of input lines")
    args = parser.parse_args()
    batch_word_count(args.name, args.lines).build_and_submit()


if __name__ == "__main__":
    main()
