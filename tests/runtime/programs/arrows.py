"""source -> relay -> tally as Arrow record batches: number n is to be counted n % 3 times, by the task of its key."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.state.stateful_component import StatefulComponent
from heronpy.api.stream import Grouping, Stream
from heronpy.api.topology import TopologyBuilder

PER_CALL = 50
NUMBERS = pa.schema([("number", pa.int64()), ("pad", pa.string())])
KEYS = pa.schema([("key", pa.int32()), ("number", pa.int64()), ("at", pa.timestamp("us", "UTC"))])


class Source(Spout, StatefulComponent):
    outputs = [Stream(schema=NUMBERS)]

    def init_state(self, state):
        self.state = state

    def initialize(self, config, context):
        self.count, self.pause_s = config["count"], config["pause_ms"] / 1000
        self.state.setdefault("next", 0)
        self.replays: list[int] = []
        self.pending: set[int] = set()

    def next_tuple(self):
        first = self.state["next"]
        numbers = self.replays or list(range(first, min(self.count, first + PER_CALL)))
        if not numbers:
            if not self.pending:
                self.end_of_input()
            return
        time.sleep(self.pause_s)
        if not self.replays:
            self.state["next"] = first + len(numbers)
        self.replays = []
        self.pending.update(numbers)
        columns = [pa.array(numbers), pa.array(["x" * 50] * len(numbers))]
        self.emit_batch(pa.RecordBatch.from_arrays(columns, schema=NUMBERS), ids=numbers)

    def ack(self, tup_id):
        self.pending.discard(tup_id)

    def fail(self, tup_id):
        self.replays.append(tup_id)


class Relay(Bolt):
    outputs = [Stream(schema=KEYS)]

    def process_batch(self, batch):
        assert batch.record_batch is not None, "it has come as Arrow"
        numbers = batch.to_arrow().column("number").to_numpy()
        parents = np.repeat(np.arange(len(batch)), numbers % 3)
        copies = numbers[parents]
        columns = {"key": pa.array(copies % 11, pa.int32()), "number": pa.array(copies)}
        columns["at"] = pa.array(copies * 1_000_000).cast(KEYS.field("at").type)
        self.emit_batch(pa.table(columns), anchors=batch.take(parents))
        self.ack(batch)


class Tally(Bolt, StatefulComponent):
    """Takes tuples, whose values are Python's. As pickle is forbidden, its state has plain values only."""

    def init_state(self, state):
        self.state = state

    def initialize(self, config, context):
        self.file = Path(config["out"]) / f"tally.{context.get_task_id()}.json"

    def process(self, tup):
        key, number, at = tup.values
        assert at.timestamp() == number and key == number % 11
        self.state[number] = self.state.get(number, 0) + 1
        self.ack(tup)

    def finish(self):
        self.file.write_text(json.dumps([[number % 11, number, count] for number, count in self.state.items()]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--out")
    parser.add_argument("--count", type=int)
    parser.add_argument("--mode")
    parser.add_argument("--pause-ms", type=float, default=0.0)
    args = parser.parse_args()
    b = TopologyBuilder(args.name)
    source = b.add_spout("source", Source, par=1)
    relay = b.add_bolt("relay", Relay, par=2, inputs={source: Grouping.SHUFFLE})
    b.add_bolt("tally", Tally, par=2, inputs={relay: Grouping.fields("key")})
    b.set_config(
        {
            "out": args.out,
            "count": args.count,
            "pause_ms": args.pause_ms,
            "topology.reliability.mode": args.mode,
            "topology.stmgrs": 2,
            "topology.max.spout.pending": 500,
            "topology.message.timeout.secs": 3,
        }
    )
    b.build_and_submit()


if __name__ == "__main__":
    main()
