"""Orders of which one in 400 cannot be read, is retried, and becomes a dead letter: for scripts/ui_images.py."""

from __future__ import annotations

import itertools
from typing import Any

from heronpy import Bolt, Grouping, Spout, TopologyBuilder, TopologyContext, Tuple


class Orders(Spout):
    """Emits 200 orders a second, and emits failed orders again."""

    outputs = ["user", "amount"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.numbers = itertools.count(1)

    def next_tuple(self) -> None:
        self._send(next(self.numbers))
        self.wait(0.005)

    def fail(self, tup_id: int) -> None:
        self._send(tup_id)

    def _send(self, number: int) -> None:
        self.emit([f"user {number % 101}", "n/a" if number % 400 == 0 else str(number % 50)], tup_id=number)


class Book(Bolt):
    """Books an order, if its amount is a number."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.total = 0

    def process(self, tup: Tuple) -> None:
        self.total += int(tup.values[1])
        self.ack(tup)


builder = TopologyBuilder("Shop")
orders = builder.add_spout("orders", Orders, par=1)
builder.add_bolt("book", Book, par=2, inputs={orders: Grouping.fields("user")})
builder.set_config({"topology.reliability.mode": "ATLEAST_ONCE"})

if __name__ == "__main__":
    builder.build_and_submit()
