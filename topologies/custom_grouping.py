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
    """The first task for large customers, the others for everybody else."""

    def __init__(self, large: frozenset[str]) -> None:
        # The object travels to every sending task, with what it holds.
        self.large = large

    def prepare(self, context: TopologyContext, component: str, stream: str, target_tasks: list[int]) -> None:
        self.reserved, *self.others = sorted(target_tasks)

    def choose_tasks(self, values: Sequence[Any]) -> list[int]:
        customer = values[0]
        if customer in self.large:
            return [self.reserved]
        # Not hash(): Python salts it per process, so two senders would disagree.
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
    """Sums orders up; which customers it sees is the grouping's choice."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.totals: dict[str, int] = {}

    def process(self, tup: Tuple) -> None:
        customer, amount = tup.values
        self.totals[customer] = self.totals.get(customer, 0) + amount
        self.logger.info("%s has ordered for %d", customer, self.totals[customer])
        self.ack(tup)


def custom_grouping(name: str) -> TopologyBuilder:
    """The topology: orders -> book, routed by PriorityGrouping."""
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
