"""Sums the numbers of splits by their last digit: python splits.py NAME OUT SPLITS NUMBERS [KEY=VALUE]...

broken: a split that raises. killed: a split whose numbers kill the process.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from heronpy import Bolt, Grouping, Split, SplitSpout, TopologyBuilder, TopologyContext, Tuple
from heronpy.connectors.files import FileSink


class Numbers(SplitSpout):
    """Splits of consecutive numbers."""

    outputs = ["number"]

    def splits(self, config: dict[str, Any]) -> Iterable[Split]:
        each = int(config["numbers"])
        for place in range(int(config["splits"])):
            yield Split(f"split-{place}", each * 8, {"begin": place * each, "end": (place + 1) * each})

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        self.broken, self.killed = str(config.get("broken", "")), str(config.get("killed", ""))

    def read(self, split: Split) -> Iterator[Any]:
        if split.name == self.broken:
            raise ValueError(f"{split.name} is broken")
        if split.name == self.killed:
            os.kill(os.getpid(), signal.SIGSEGV)
        for number in range(split.data["begin"], split.data["end"]):
            yield [number]


class Digit(Bolt):
    """Emits the last digit as well."""

    outputs = ["digit", "number"]

    def process(self, tup: Tuple) -> None:
        self.emit([tup.values[0] % 10, tup.values[0]])


class Sum(Bolt):
    """Adds up by digit."""

    outputs = ["digit", "sum"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.sums: dict[int, int] = {}

    def process(self, tup: Tuple) -> None:
        digit, number = tup.values
        self.sums[digit] = self.sums.get(digit, 0) + number

    def finish(self) -> None:
        for digit, total in sorted(self.sums.items()):
            self.emit([digit, total])


def topology(name: str, out: str, splits: str, numbers: str, **given: str) -> TopologyBuilder:
    """The topology; `given` are the keys of the docstring."""
    builder = TopologyBuilder(name)
    config = {"splits": int(splits), "numbers": int(numbers), **given}
    numbers_of = builder.add_spout("numbers", Numbers, par=2, config=config)
    digit = builder.add_bolt("digit", Digit, par=2, inputs={numbers_of: Grouping.SHUFFLE})
    total = builder.add_bolt("sum", Sum, par=2, inputs={digit: Grouping.fields("digit")})
    all_of = builder.add_bolt("all", Sum, par=1, inputs={total: Grouping.LOWEST})
    builder.add_spec(FileSink.spec("store", {all_of: Grouping.SHUFFLE}, folder=out, fields=["digit", "sum"]))
    builder.set_config({"heron.batch.unit_bytes": 4000, "heron.batch.workers": 2})
    return builder


if __name__ == "__main__":
    words = dict(one.partition("=")[::2] for one in sys.argv[5:])
    topology(*sys.argv[1:5], **words).build_and_submit()
