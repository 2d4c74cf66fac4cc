"""A busy topology without problems that counts a shop's clicks by user and by page: for scripts/ui_images.py."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from typing import Any

from heronpy import Bolt, Grouping, Spout, TopologyBuilder, TopologyContext, Tuple

PAGES = ("home", "search", "basket", "checkout", "help", "terms", "news")


class Clicks(Spout):
    """Emits about 800 clicks a second, at a rate that rises and falls."""

    outputs = ["line"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.numbers = itertools.count(context.get_task_id() * 1_000_000_000)

    def next_tuple(self) -> None:
        wave = math.sin(time.time() / 9) + 0.4 * math.sin(time.time() / 2.3)
        for number in itertools.islice(self.numbers, 8 + round(4 * wave)):
            self.emit([f"user{number * 37 % 401} {PAGES[number * 11 % 7]} {number % 350}"], tup_id=number)
        self.wait(0.01)


class Parse(Bolt):
    """Splits a line into fields."""

    outputs = ["user", "page", "ms"]

    def process(self, tup: Tuple) -> None:
        user, page, ms = tup.values[0].split()
        self.emit([user, page, int(ms)], anchors=[tup])
        self.ack(tup)


class Count(Bolt):
    """Counts by the first field, and emits every tenth count."""

    outputs = ["key", "count"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.counts: Counter[str] = Counter()
        self.field = config["clicks.field"]

    def process(self, tup: Tuple) -> None:
        key = tup.values[self.field]
        self.counts[key] += 1
        if self.counts[key] % 10 == 0:
            self.emit([key, self.counts[key]], anchors=[tup])
        self.ack(tup)


class Store(Bolt):
    """Keeps the newest count of each key."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.newest: dict[str, int] = {}

    def process(self, tup: Tuple) -> None:
        self.newest[tup.values[0]] = tup.values[1]
        self.ack(tup)


builder = TopologyBuilder("Clicks")
clicks = builder.add_spout("clicks", Clicks, par=2)
parsed = builder.add_bolt("parse", Parse, par=2, inputs={clicks: Grouping.SHUFFLE})
users = builder.add_bolt("users", Count, par=3, inputs={parsed: Grouping.fields("user")}, config={"clicks.field": 0})
pages = builder.add_bolt("pages", Count, par=1, inputs={parsed: Grouping.fields("page")}, config={"clicks.field": 1})
builder.add_bolt("store", Store, par=1, inputs={users: Grouping.fields("key"), pages: Grouping.fields("key")})
builder.set_config(
    {
        "topology.reliability.mode": "ATLEAST_ONCE",
        "topology.max.spout.pending": 5000,
        "topology.stmgrs": 2,
    }
)

if __name__ == "__main__":
    builder.build_and_submit()
