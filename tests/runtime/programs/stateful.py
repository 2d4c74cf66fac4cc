"""source -> work -> store with state in each, and files in a folder that make them slow, stuck or raising.

Sources count up until a file `end` is there. Every number is to be counted once. The store makes its counts visible with the checkpoint that holds its
end. All calls that have to do with state are written down, in order, with the process they came in.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections import Counter
from pathlib import Path

from heronpy.api.bolt.async_bolt import AsyncBolt
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.async_spout import AsyncSpout
from heronpy.api.spout.spout import Spout
from heronpy.api.state.stateful_component import StatefulComponent
from heronpy.api.state.two_phase import TwoPhaseStatefulComponent
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder


class Noted:
    """Writes its calls down; keeps its state."""

    def open_notes(self, config, context):
        self.out = Path(config["out"])
        path = self.out / f"calls.{context.get_component_id()}.{context.get_task_id()}"
        self.calls = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for early in self.early:
            self.note_call(early)
        self.note_call("initialize")

    def note_call(self, what):
        os.write(self.calls, f"{os.getpid()} {what}\n".encode())

    def init_state(self, state):
        self.state = state
        self.early = ["init_state"]

    def wants(self, what):
        """The test wants it so."""
        return (self.out / what).exists()

    def hold(self, what):
        """Block for as long as the test wants it."""
        while self.wants(what):
            mark = self.out / f"{what}.holds"
            mark.touch()
            time.sleep(0.005)


class Source(Noted, Spout, StatefulComponent):
    outputs = ["number", "pad"]

    def initialize(self, config, context):
        self.open_notes(config, context)
        tasks = sorted(context.get_component_tasks("source"))
        self.me, self.step = tasks.index(context.get_task_id()), len(tasks)
        self.pause_s, self.pad, self.ended = config["source_pause_ms"] / 1000, "x" * config["pad"], False
        self.state.setdefault("next", self.me)
        self.open_ids: set[int] = set()

    def next_tuple(self):
        number = self.state["next"]
        if self.wants("end"):
            if not self.ended:
                self.ended = True
                self.note_call(f"end {number}")
            self.end_of_input()
            return
        if self.me == 0:
            self.hold("block")
        if self.pause_s:
            time.sleep(self.pause_s)
        self.state["next"] = number + self.step
        self.open_ids.add(number)
        self.emit([number, self.pad], tup_id=number)

    def ack(self, tup_id):
        self.open_ids.remove(tup_id)

    def pre_save(self, checkpoint_id):
        self.note_call(f"pre_save {checkpoint_id}")
        if self.open_ids:
            raise RuntimeError(f"{len(self.open_ids)} tuples before the cut have not been acked")


class AsyncSource(Noted, AsyncSpout, StatefulComponent):
    outputs = Source.outputs
    initialize, ack, pre_save = Source.initialize, Source.ack, Source.pre_save

    async def run(self):
        while not self.wants("end"):
            number = self.state["next"]
            await asyncio.sleep(self.pause_s)
            await self.emit([number, self.pad], tup_id=number)
            self.state["next"] = number + self.step
            self.open_ids.add(number)
        self.note_call(f"end {self.state['next']}")


class Work(Noted, Bolt, StatefulComponent):
    outputs = ["number", "pad"]

    def initialize(self, config, context):
        self.open_notes(config, context)
        self.note_call(f"ticks {self.state.get('ticks', 0)}")
        self.pause_s = config["work_pause_ms"] / 1000

    def process(self, tup):
        self.state["seen"] = self.state.get("seen", 0) + 1
        if self.pause_s:
            time.sleep(self.pause_s)
        self.emit(list(tup.values))

    def process_tick(self, tup):
        self.state["ticks"] = self.state.get("ticks", 0) + 1

    def finish(self):
        self.note_call(f"finish {self.state.get('ticks', 0)}")


class AsyncWork(Noted, AsyncBolt, StatefulComponent):
    outputs = ["number", "pad"]

    def initialize(self, config, context):
        self.open_notes(config, context)
        self.note_call(f"ticks {self.state.get('ticks', 0)}")
        self.running = 0

    async def process(self, tup):
        self.running += 1
        self.state["seen"] = self.state.get("seen", 0) + 1
        await asyncio.sleep(0.001 * (tup.values[0] % 7))
        self.emit(list(tup.values))
        self.running -= 1

    async def process_tick(self, tup):
        self.running += 1
        await asyncio.sleep(0.002)
        self.state["ticks"] = self.state.get("ticks", 0) + 1
        self.running -= 1

    def pre_save(self, checkpoint_id):
        if self.running:
            raise RuntimeError(f"{self.running} coroutines are in progress")

    async def finish(self):
        self.note_call(f"finish {self.state.get('ticks', 0)}")


class Store(Noted, Bolt, TwoPhaseStatefulComponent):
    def pre_restore(self, checkpoint_id):
        self.early.append(f"pre_restore {checkpoint_id}")

    def initialize(self, config, context):
        self.open_notes(config, context)
        self.result = self.out / f"result.{context.get_task_id()}"
        self.keys = config["keys"]
        self.state.setdefault("counts", Counter())
        self.publish()

    def process(self, tup):
        self.hold("stuck")
        number = tup.values[0]
        self.state["counts"][number % self.keys if self.keys else number] += 1

    def finish(self):
        self.note_call("finish")
        self.state["finished"] = True

    def pre_save(self, checkpoint_id):
        self.note_call(f"pre_save {checkpoint_id}")
        if self.wants("raise"):
            raise OSError("the target is full")
        self.state["prepared"] = self.state.get("finished", False)

    def post_save(self, checkpoint_id):
        self.note_call(f"post_save {checkpoint_id}")
        self.publish()

    def publish(self):
        if self.state.get("prepared"):
            self.result.write_text(json.dumps(self.state["counts"]))


def stateful(args: argparse.Namespace) -> TopologyBuilder:
    b = TopologyBuilder(args.name)
    config = {
        "out": args.out,
        "pad": args.pad,
        "source_pause_ms": args.source_pause_ms,
        "work_pause_ms": args.work_pause_ms,
        "keys": args.keys,
        "topology.reliability.mode": "EFFECTIVELY_ONCE",
        "topology.stmgrs": args.containers,
    }
    work = AsyncWork if args.asynchronous else Work
    source = b.add_spout("source", AsyncSource if args.asynchronous_source else Source, par=2)
    middle = b.add_bolt(
        "work", work, par=1, inputs={source: Grouping.SHUFFLE}, config={"topology.tick.tuple.freq.ms": 50}
    )
    b.add_bolt("store", Store, par=2, inputs={middle: Grouping.fields("number")})
    b.set_config(config)
    return b


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--out", required=True)
    parser.add_argument("--pad", type=int, default=0)
    parser.add_argument("--containers", type=int, default=1)
    parser.add_argument("--source-pause-ms", type=float, default=0)
    parser.add_argument("--work-pause-ms", type=float, default=0)
    parser.add_argument("--keys", type=int, default=0, help="how many different numbers are counted; 0: each by itself")
    parser.add_argument("--asynchronous", action="store_true")
    parser.add_argument("--asynchronous-source", action="store_true")
    stateful(parser.parse_args()).build_and_submit()


if __name__ == "__main__":
    main()
