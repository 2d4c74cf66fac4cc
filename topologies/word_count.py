"""Word count: a bolt splits lines into words, and two tasks count the words.

    heron submit local topologies/word_count.py WordCount
    heron submit local topologies/word_count.py WordCount --file a.txt --file b.txt

With files, the input ends: each counter then logs and emits its totals. Without files, the spout
repeats a few built-in lines forever.
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

from heronpy import Bolt, Grouping, Spout, TopologyBuilder, TopologyContext, Tuple

BUILT_IN = (
    "the quick brown fox jumps over the lazy dog",
    "a stream is a river of tuples",
    "the river runs through the topology",
)


class LineSpout(Spout):
    """Emits one line per call."""

    outputs = ["line"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        # The configuration carries the arguments of a component, because this method runs in another
        # process than main(), perhaps on another machine.
        files = config.get("word_count.files") or []
        tasks = context.get_component_tasks(context.get_component_id()) or []
        mine = files[tasks.index(context.get_task_id()) :: len(tasks)]
        self.lines = self.read(mine) if files else itertools.cycle(BUILT_IN)

    @staticmethod
    def read(files: list[str]) -> Iterator[str]:
        """Yield the lines of the files one at a time, because a file may be larger than memory."""
        for path in files:
            with open(path, encoding="utf-8") as file:
                yield from file

    def next_tuple(self) -> None:
        # next_tuple must not block or loop: each call emits one tuple.
        line = next(self.lines, None)
        if line is None:
            self.end_of_input()  # the topology finishes when all tuples are processed
        else:
            self.emit([line])


class SplitBolt(Bolt):
    """Splits lines into words."""

    outputs = ["word"]

    def process(self, tup: Tuple) -> None:
        for word in tup.values[0].split():
            # The anchor matters only under ATLEAST_ONCE, and costs nothing otherwise.
            self.emit([word], anchors=[tup])
        self.ack(tup)


class CountBolt(Bolt):
    """Counts the words that the fields grouping sends to this task."""

    outputs = ["word", "count"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.counts: Counter[str] = Counter()
        self.seen = 0

    def process(self, tup: Tuple) -> None:
        self.counts[tup.values[0]] += 1
        self.seen += 1
        if self.seen % 100_000 == 0:
            self.logger.info("%d words so far, most often %s", self.seen, self.counts.most_common(3))
        self.ack(tup)

    def finish(self) -> None:
        """Called once, after all input has been processed."""
        for word, count in self.counts.most_common():
            self.logger.info("%s: %d", word, count)
            self.emit([word, count])


def word_count(name: str, files: list[str] | None = None) -> TopologyBuilder:
    """Return the topology line -> split -> count."""
    builder = TopologyBuilder(name)
    lines = builder.add_spout("line", LineSpout, par=1, config={"word_count.files": files or []})
    words = builder.add_bolt("split", SplitBolt, par=1, inputs={lines: Grouping.SHUFFLE})
    # Fields grouping sends all occurrences of a word to one task, so its count is complete.
    builder.add_bolt("count", CountBolt, par=2, inputs={words: Grouping.fields("word")})
    return builder


def main() -> None:
    """Describe the topology and submit it."""
    parser = argparse.ArgumentParser(description="Count words.")
    parser.add_argument("name", nargs="?", default="WordCount", help="name of the topology")
    parser.add_argument("--file", action="append", default=[], help="count this file; repeatable")
    args = parser.parse_args()
    for path in args.file:
        if not os.path.isfile(path):
            parser.error(f"there is no file {path}")
    # The tasks run in another folder than this program, so they get absolute paths.
    word_count(args.name, [os.path.abspath(path) for path in args.file]).build_and_submit()


if __name__ == "__main__":
    main()
