"""Five broken topologies to practise on: find the cause with `heron doctor`, `top`, `events`, `exceptions`.

    heron submit local topologies/sick.py Sick --what slow     # one of four tasks is slow
    heron submit local topologies/sick.py Sick --what skew     # one key has most of the tuples
    heron submit local topologies/sick.py Sick --what leak     # a task leaks memory, until it has 120 MB
    heron submit local topologies/sick.py Sick --what crash    # a task occasionally raises an exception
    heron submit local topologies/sick.py Sick --what sink     # the sink waits for a slow service

Each has a spout, four tasks of `work`, and a sink. With `leak`, the tasks of `work` have a memory limit, so that the
leak ends one process about once a minute, but does not fill the machine's memory.
"""

from __future__ import annotations

import argparse
import itertools
import time
from typing import Any

from heronpy import Bolt, Grouping, Spout, TopologyBuilder, TopologyContext, Tuple

KINDS = ("slow", "skew", "leak", "crash", "sink")
MB = 1 << 20
#: With `leak`: the memory limit of the tasks of `work`, and the growth of the leaking task, which starts at 45 MB.
LIMIT, LEAK_MB_PER_S = "120MB", 1.6


class Orders(Spout):
    """Emits the orders of users; with `skew`, nine of ten orders are from one user."""

    outputs = ["user", "amount"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.skewed = config["sick.what"] == "skew"
        self.numbers = itertools.count()

    def next_tuple(self) -> None:
        for number in itertools.islice(self.numbers, 20):
            user = "big" if self.skewed and number % 10 else f"user {number % 101}"
            self.emit([user, number % 50])
        self.wait(0.005)


class Work(Bolt):
    """Computes for 0.2 ms per tuple (0.4 ms with `skew`); the first task has the problem."""

    outputs = ["user", "amount"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.what = config["sick.what"]
        first = min(context.get_component_tasks(context.get_component_id()) or [0])
        self.ill = context.get_task_id() == first
        self.took_s = {"slow": 0.02 if self.ill else 0.0002, "skew": 0.0004}.get(self.what, 0.0002)
        self.kept: list[bytearray] = []
        self.seen, self.since = 0, time.perf_counter()

    def process(self, tup: Tuple) -> None:
        self.seen += 1
        ends_at = time.perf_counter() + self.took_s
        while time.perf_counter() < ends_at:
            pass
        if self.what == "leak" and self.ill and len(self.kept) < (ends_at - self.since) * LEAK_MB_PER_S:
            self.kept.append(bytearray(MB))
        if self.what == "crash" and self.ill and self.seen % 2000 == 0:
            raise ValueError(f"order {tup.values[1]} of {tup.values[0]} cannot be booked")
        self.emit(list(tup.values), anchors=[tup])
        self.ack(tup)


class Store(Bolt):
    """Simulates a sink; with `sink`, each order waits 50 ms for a service."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.pause_s = 0.05 if config["sick.what"] == "sink" else 0.0

    def process(self, tup: Tuple) -> None:
        if self.pause_s:
            time.sleep(self.pause_s)
        self.ack(tup)


def sick(name: str, what: str) -> TopologyBuilder:
    """Return the topology with this problem."""
    builder = TopologyBuilder(name)
    orders = builder.add_spout("orders", Orders, par=1)
    spread = Grouping.fields("user") if what == "skew" else Grouping.SHUFFLE
    limited = {"heron.instance.memory_soft_limit_bytes": LIMIT} if what == "leak" else None
    work = builder.add_bolt("work", Work, par=4, inputs={orders: spread}, config=limited)
    builder.add_bolt("store", Store, par=1, inputs={work: Grouping.SHUFFLE})
    builder.set_config({"sick.what": what})
    return builder


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", default="Sick")
    parser.add_argument("--what", choices=KINDS, required=True, help="the topology's problem")
    options = parser.parse_args()
    sick(options.name, options.what).build_and_submit()
