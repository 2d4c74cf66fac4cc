"""At-least-once delivery: tuple ids, anchors, acks, fails and replays.

    heron submit local topologies/ack_and_fail.py AckAndFail --count 1000

A bolt fails every third payment at the first attempt. The runtime calls the spout's fail(), and the
spout emits the payment again. The spout ends its input when every payment has been acked.
"""

from __future__ import annotations

import argparse
from collections import deque
from typing import Any

from heronpy.api import api_constants
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.api.topology_context import TopologyContext
from heronpy.api.tuple import Tuple


class PaymentSpout(Spout):
    """Emits numbered payments, and emits failed payments again."""

    outputs = ["payment", "attempt"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.waiting = deque((number, 1) for number in range(config["ack_and_fail.count"]))
        self.pending: dict[int, int] = {}

    def next_tuple(self) -> None:
        if self.waiting:
            number, attempt = self.waiting.popleft()
            self.pending[number] = attempt
            # With a tup_id the tuple is tracked: the runtime later calls ack(tup_id) or fail(tup_id).
            self.emit([number, attempt], tup_id=number)
        elif not self.pending:
            self.end_of_input()

    def ack(self, tup_id: int) -> None:
        del self.pending[tup_id]

    def fail(self, tup_id: int) -> None:
        # Also called when the tuple was not acked within topology.message.timeout.secs.
        self.waiting.append((tup_id, self.pending.pop(tup_id) + 1))


class CheckBolt(Bolt):
    """Fails every third payment once, and passes all other payments on."""

    outputs = ["payment", "attempt"]

    def process(self, tup: Tuple) -> None:
        number, attempt = tup.values
        if number % 3 == 0 and attempt == 1:
            self.fail(tup)
            return
        # The anchor ties the new tuple to the payment: the payment counts as processed only when
        # the new tuple has been acked, too.
        self.emit([number, attempt], anchors=[tup])
        self.ack(tup)


class BookBolt(Bolt):
    """Books payments. A replayed payment may arrive twice, so a set of numbers is kept instead of a count."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.booked: set[int] = set()

    def process(self, tup: Tuple) -> None:
        number, attempt = tup.values
        self.booked.add(number)
        if attempt > 1:
            self.logger.info("payment %d booked at attempt %d", number, attempt)
        self.ack(tup)

    def finish(self) -> None:
        self.logger.info("%d payments booked", len(self.booked))


def ack_and_fail(name: str, count: int = 1000) -> TopologyBuilder:
    """Return the topology payments -> check -> book, with at-least-once delivery."""
    builder = TopologyBuilder(name)
    payments = builder.add_spout("payments", PaymentSpout, par=1, config={"ack_and_fail.count": count})
    checked = builder.add_bolt("check", CheckBolt, par=2, inputs={payments: Grouping.SHUFFLE})
    builder.add_bolt("book", BookBolt, par=1, inputs={checked: Grouping.SHUFFLE})
    builder.set_config(
        {
            api_constants.TOPOLOGY_RELIABILITY_MODE: (api_constants.TopologyReliabilityMode.ATLEAST_ONCE),
            # Maximum number of pending payments.
            api_constants.TOPOLOGY_MAX_SPOUT_PENDING: 50,
        }
    )
    return builder


def main() -> None:
    """Describe the topology and submit it."""
    parser = argparse.ArgumentParser(description="Replay failed tuples.")
    parser.add_argument("name", nargs="?", default="AckAndFail", help="name of the topology")
    parser.add_argument("--count", type=int, default=1000, help="number of payments")
    args = parser.parse_args()
    ack_and_fail(args.name, args.count).build_and_submit()


if __name__ == "__main__":
    main()
