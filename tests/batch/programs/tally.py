"""A streamlet program: adds up the words of files and appends the sums to a file: tally.py NAME FILES OUT."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

from heronpy.connectors.textfiles.textfilesgenerator import TextFileGenerator
from heronpy.streamlet import Builder, Config, Context, Runner, TransformOperator


class Sums(TransformOperator[str, tuple[str, int]]):
    """Counts words until the input ends."""

    def setup(self, context: Context) -> None:
        self.context = context
        self.counts: Counter[str] = Counter()

    def transform(self, tup: str) -> None:
        self.counts[tup] += 1

    def finish(self) -> None:
        for pair in self.counts.items():
            self.context.emit(pair)


def tally(files: str, out: str) -> Builder:
    """lines -> words -> sums by word -> a file."""

    def append(pair: Any) -> None:
        with Path(out).open("a") as file:
            file.write(f"{pair[0]} {pair[1]}\n")

    builder = Builder()
    lines = builder.new_source(TextFileGenerator(files)).set_name("lines").set_num_partitions(2)
    words = lines.flat_map(str.split).filter(str.isalpha).set_name("words")
    words.transform(Sums()).set_name("sums").set_num_partitions(1).consume(append)
    return builder


if __name__ == "__main__":
    Runner().run(sys.argv[1], Config(), tally(*sys.argv[2:]))
