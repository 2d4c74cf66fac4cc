"""What the simulated topologies of the tests are made of."""

from __future__ import annotations

from typing import Any

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder

ATLEAST = {"topology.reliability.mode": "ATLEAST_ONCE"}


class ListSpout(Spout):
    """Emits the values of its configuration, with their place as id."""

    outputs = ["value"]

    def initialize(self, config: Any, context: Any) -> None:
        self.values = list(enumerate(config["values"]))
        self.told: list[tuple[str, Any]] = []

    def next_tuple(self) -> None:
        if self.values:
            number, value = self.values.pop(0)
            self.emit([value], tup_id=number)
        else:
            self.end_of_input()

    def ack(self, tup_id: Any) -> None:
        self.told.append(("ack", tup_id))

    def fail(self, tup_id: Any) -> None:
        self.told.append(("fail", tup_id))


class PassBolt(Bolt):
    outputs = ["value"]

    def initialize(self, config: Any, context: Any) -> None:
        self.seen: list[Any] = []
        self.finished = 0

    def process(self, tup: Any) -> None:
        self.seen.append(tup.values[0])
        self.emit(tup.values, anchors=[tup])
        self.ack(tup)

    def finish(self) -> None:
        self.finished += 1


class SinkBolt(Bolt):
    """Acks, fails or forgets by the value."""

    def process(self, tup: Any) -> None:
        if tup.values[0] == "fail":
            self.fail(tup)
        elif tup.values[0] != "forget":
            self.ack(tup)


def line(
    values: list[Any],
    bolt: type = PassBolt,
    *,
    spout: type = ListSpout,
    par: int = 1,
    grouping: Any = Grouping.SHUFFLE,
    config: dict[str, Any] | None = None,
    topology_config: dict[str, Any] | None = None,
) -> TopologyBuilder:
    builder = TopologyBuilder("line")
    source = builder.add_spout("source", spout, par=1, config={"values": values})
    builder.add_bolt("bolt", bolt, par=par, inputs={source: grouping}, config=config)
    builder.set_config(topology_config or {})
    return builder
