"""A custom grouping: the sender decides which tasks get a tuple.

    heron submit local topologies/custom_grouping.py CustomGrouping

Orders of large customers go to the first task, which is reserved for them; all other orders are
spread over the remaining tasks by customer.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from typing import Any

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.custom_grouping import ICustomGrouping
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.api.topology_context import TopologyContext
from heronpy.api.tuple import Tuple
from heronpy.common.hashing import stable_hash

LARGE = frozenset({"acme", "globex"})
CUSTOMERS = ("acme", "brown", "clark", "globex", "hill", "young")


class PriorityGrouping(ICustomGrouping):
    """Sends orders of large customers to the first task, and all other orders to the remaining tasks."""

    def __init__(self, large: frozenset[str]) -> None:
        # The object is sent to every emitting task, with its attributes.
        self.large = large

    def prepare(self, context: TopologyContext, component: str, stream: str, target_tasks: list[int]) -> None:
        self.reserved, *self.others = sorted(target_tasks)

    def choose_tasks(self, values: Sequence[Any]) -> list[int]:
        customer = values[0]
        if customer in self.large:
            return [self.reserved]
        # Python salts hash() in each process, so two senders would choose different tasks.
        return [self.others[stable_hash(customer) % len(self.others)]]


class OrderSpout(Spout):
    """Emits twenty orders a second."""

    outputs = ["customer", "amount"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.random = random.Random(context.get_task_id())

    def next_tuple(self) -> None:
        self.emit([self.random.choice(CUSTOMERS), self.random.randint(1, 500)])
        self.wait(0.05)


class OrderBolt(Bolt):
    """Adds up the orders of each customer that the grouping sends to this task."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.totals: dict[str, int] = {}

    def process(self, tup: Tuple) -> None:
        customer, amount = tup.values
        self.totals[customer] = self.totals.get(customer, 0) + amount
        self.logger.info("%s has ordered for %d", customer, self.totals[customer])
        self.ack(tup)


def custom_grouping(name: str) -> TopologyBuilder:
    """Return the topology orders -> book, routed by PriorityGrouping."""
    builder = TopologyBuilder(name)
    orders = builder.add_spout("orders", OrderSpout, par=1)
    grouping = Grouping.custom(PriorityGrouping(LARGE))
    builder.add_bolt("book", OrderBolt, par=3, inputs={orders: grouping})
    return builder


def main() -> None:
    """Describe the topology and submit it."""
    parser = argparse.ArgumentParser(description="Route tuples with a custom grouping.")
    parser.add_argument("name", nargs="?", default="CustomGrouping", help="name of the topology")
    custom_grouping(parser.parse_args().name).build_and_submit()


if __name__ == "__main__":
    main()
