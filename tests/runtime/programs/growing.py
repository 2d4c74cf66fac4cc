"""source -> pass -> store, numbers that are written down where they arrive; for updates of adjacent components."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.state.stateful_component import StatefulComponent
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder


class Source(Spout, StatefulComponent):
    """Numbers until there is a file `stop`; then it writes down how many there were."""

    outputs = ["number"]
    state = None

    def init_state(self, state):
        self.state = state

    def initialize(self, config, context):
        self.out = Path(config["out"])
        self.mode = config["topology.reliability.mode"]
        if self.mode != "EFFECTIVELY_ONCE":
            self.state = {}
        self.again: list[int] = []
        self.pending: set[int] = set()

    def send(self, number):
        if self.mode == "ATLEAST_ONCE":
            self.pending.add(number)
        self.emit([number], tup_id=number)

    def next_tuple(self):
        number = self.state.get("next", 0)
        if self.again:
            self.send(self.again.pop())
        elif not (self.out / "stop").exists():
            for place in range(number, number + 5):
                self.send(place)
            self.state["next"] = number + 5
            time.sleep(0.001)
        elif not self.pending:
            (self.out / "total").write_text(str(number))
            self.end_of_input()

    def ack(self, tup_id):
        self.pending.discard(tup_id)

    def fail(self, tup_id):
        if tup_id in self.pending:
            self.pending.discard(tup_id)
            self.again.append(tup_id)


class Pass(Bolt):
    outputs = ["number"]

    def process(self, tup):
        self.emit(list(tup.values), anchors=[tup])
        self.ack(tup)


class Store(Bolt, StatefulComponent):
    """Effectively once it is counted in keyed state, which moves with its keys; else written at once."""

    outputs = ["number", "count"]

    def init_state(self, state):
        pass

    def initialize(self, config, context):
        self.exact = config["topology.reliability.mode"] == "EFFECTIVELY_ONCE"
        self.out = Path(config["out"])
        self.task = context.get_task_id()
        if self.exact:
            self.counts = context.keyed_state("counts")
        else:
            self.file = os.open(self.out / "stored", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def process(self, tup):
        [number] = tup.values
        if self.exact:
            self.counts[number] = self.counts.get(number, 0) + 1
        else:
            os.write(self.file, b"%d\n" % number)
        self.ack(tup)

    def finish(self):
        if self.exact:
            lines = [f"{number}\n" * count for number, count in self.counts.items()]
            (self.out / f"exact.{self.task}").write_text("".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--out", required=True)
    parser.add_argument("--mode", required=True)
    args = parser.parse_args()
    builder = TopologyBuilder(args.name)
    source = builder.add_spout("source", Source, par=1)
    passing = builder.add_bolt("pass", Pass, par=1, inputs={source: Grouping.SHUFFLE})
    builder.add_bolt("store", Store, par=1, inputs={passing: Grouping.fields("number")})
    builder.set_config(
        {
            "out": args.out,
            "topology.reliability.mode": args.mode,
            "topology.stmgrs": 2,
            "topology.max.spout.pending": 1000,
            "topology.message.timeout.secs": 10,
            "heron.checkpoint.interval_s": 1,
        }
    )
    builder.build_and_submit()


if __name__ == "__main__":
    main()
