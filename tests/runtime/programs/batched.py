"""source -> relay -> tally in batches: number n is to be counted n % 3 times, by the task of its key.

With `--arrow` the batches are Arrow record batches, of streams with a schema.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
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
SIGNS = Stream(fields=[], name="signs")


class Source(Spout, StatefulComponent):
    outputs = ["number", "pad"]

    def send(self, numbers):
        self.emit_batch({"number": np.array(numbers), "pad": ["x" * 50] * len(numbers)}, ids=numbers)

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
        self.send(numbers)

    def ack(self, tup_id):
        self.pending.discard(tup_id)

    def fail(self, tup_id):
        self.replays.append(tup_id)


class ArrowSource(Source):
    outputs = [Stream(schema=NUMBERS)]

    def send(self, numbers):
        columns = [pa.array(numbers), pa.array(["x" * 50] * len(numbers))]
        self.emit_batch(pa.RecordBatch.from_arrays(columns, schema=NUMBERS), ids=numbers)


class Relay(Bolt):
    outputs = ["key", "number", SIGNS]

    def send(self, copies, anchors):
        self.emit_batch([copies % 11, copies], anchors=anchors)

    def process_batch(self, batch):
        numbers = np.array(batch.columns["number"])
        parents = np.repeat(np.arange(len(batch)), numbers % 3)
        copies = numbers[parents]
        self.send(copies, batch.take(parents))
        self.emit_batch(rows=[[]], stream="signs", anchors=[batch])
        self.ack(batch)


class ArrowRelay(Relay):
    outputs = [Stream(schema=KEYS), SIGNS]

    def process_batch(self, batch):
        assert batch.record_batch is not None, "it has come as Arrow"
        super().process_batch(batch)

    def send(self, copies, anchors):
        columns = {"key": pa.array(copies % 11, pa.int32()), "number": pa.array(copies)}
        columns["at"] = pa.array(copies * 1_000_000).cast(KEYS.field("at").type)
        self.emit_batch(pa.table(columns), anchors=anchors)


class Tally(Bolt, StatefulComponent):
    def init_state(self, state):
        self.state = state

    def initialize(self, config, context):
        self.file = Path(config["out"]) / f"tally.{context.get_task_id()}.json"
        self.state.setdefault("counts", Counter())
        self.state.setdefault("signs", 0)

    def process_batch(self, batch):
        if batch.stream == "signs":
            self.state["signs"] += len(batch)
        else:
            assert batch.to_arrow().num_rows == len(batch.to_pandas()) == len(batch)
            self.state["counts"].update(zip(batch.columns["key"], batch.columns["number"]))
        self.ack(batch)

    def finish(self):
        counts = [[*key, count] for key, count in self.state["counts"].items()]
        self.file.write_text(json.dumps({"counts": counts, "signs": self.state["signs"]}))


class ArrowTally(Bolt, StatefulComponent):
    """Takes tuples, whose values are Python's. As pickle is forbidden, its state has plain values only."""

    def init_state(self, state):
        self.state = state

    def initialize(self, config, context):
        self.file = Path(config["out"]) / f"tally.{context.get_task_id()}.json"
        self.state.setdefault("signs", 0)

    def process(self, tup):
        what = "signs"
        if tup.stream != "signs":
            key, what, at = tup.values
            assert at.timestamp() == what and key == what % 11
        self.state[what] = self.state.get(what, 0) + 1
        self.ack(tup)

    def finish(self):
        counts = [[number % 11, number, count] for number, count in self.state.items() if number != "signs"]
        self.file.write_text(json.dumps({"counts": counts, "signs": self.state["signs"]}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--out")
    parser.add_argument("--count", type=int)
    parser.add_argument("--mode")
    parser.add_argument("--pause-ms", type=float, default=0.0)
    parser.add_argument("--containers", type=int, default=1)
    parser.add_argument("--arrow", action="store_true")
    args = parser.parse_args()
    kinds = (ArrowSource, ArrowRelay, ArrowTally) if args.arrow else (Source, Relay, Tally)
    b = TopologyBuilder(args.name)
    source = b.add_spout("source", kinds[0], par=1)
    relay = b.add_bolt("relay", kinds[1], par=2, inputs={source: Grouping.SHUFFLE})
    b.add_bolt("tally", kinds[2], par=2, inputs={relay: Grouping.fields("key"), relay["signs"]: Grouping.SHUFFLE})
    b.set_config(
        {
            "out": args.out,
            "count": args.count,
            "pause_ms": args.pause_ms,
            "topology.reliability.mode": args.mode,
            "topology.stmgrs": args.containers,
            "topology.max.spout.pending": 500,
            "topology.message.timeout.secs": 3,
        }
    )
    b.build_and_submit()


if __name__ == "__main__":
    main()
