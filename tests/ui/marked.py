"""A topology whose logs, values, settings and errors look like HTML; it counts words with a key."""

from __future__ import annotations

import itertools
from typing import Any

from heronpy import Bolt, Grouping, Spout, TopologyBuilder, TopologyContext, Tuple

#: Runs as a script if any page takes it for markup.
MARKUP = '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>&amp;\x1b[31m</td>'


class Lines(Spout):
    """Emits a few hundred words a second, and one that nobody can parse."""

    outputs = ["word"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.numbers = itertools.count()
        self.log(f"opened {MARKUP}")

    def next_tuple(self) -> None:
        number = next(self.numbers)
        word = MARKUP if number == 20 else f"word {number % 7}"
        self.emit([word], tup_id=number)
        self.wait(0.005)

    def fail(self, tup_id: int) -> None:
        self.emit([MARKUP], tup_id=tup_id)


class Parse(Bolt):
    """Passes words on; raises for markup."""

    outputs = ["word", "number"]

    def process(self, tup: Tuple) -> None:
        if tup.values[0] == MARKUP:
            raise ValueError(f"cannot parse {MARKUP}")
        self.emit([tup.values[0], 1], anchors=[tup])
        self.ack(tup)


class Count(Bolt):
    """Counts; says so now and then."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.seen = 0

    def process(self, tup: Tuple) -> None:
        self.seen += 1
        if self.seen % 50 == 1:
            self.log(f"seen {self.seen} {MARKUP}")
        self.ack(tup)


builder = TopologyBuilder("marked")
lines = builder.add_spout("lines", Lines, par=1)
parse = builder.add_bolt("parse", Parse, par=1, inputs={lines: Grouping.SHUFFLE})
builder.add_bolt("count", Count, par=2, inputs={parse: Grouping.fields("word")})
builder.set_config({"topology.reliability.mode": "ATLEAST_ONCE", "own.setting": MARKUP})

if __name__ == "__main__":
    builder.build_and_submit()
