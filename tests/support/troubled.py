"""Topologies with one problem each, for tests of `heron doctor`; `topologies/sick.py` has five more.

    heron submit local tests/support/troubled.py Troubled --what hung --ill FILE

The problem lasts while the file exists, so a test can start and end it. The rates are low, so that a busy machine can
keep up.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path
from typing import Any

from heronpy import (
    Bolt,
    Grouping,
    HashMapState,
    Spout,
    StatefulComponent,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)
from heronpy.api import api_constants as constants

KINDS = ("hung", "raises", "scant", "limit", "batches", "checkpoints", "backlog", "no input", "late", "worse", "spare")
#: Tuples per second by problem; 100 for all others.
RATES = {"scant": 400, "backlog": 20, "limit": 1000, "batches": 300}
#: Limits of pending tuples for problems with late acks; `batches` acks a batch about every two seconds.
PENDING = {"limit": 20, "batches": 200, "late": 10_000}
BATCH_S = 2.0


class Ill:
    """Whether the problem lasts; reads the file at most twenty times a second."""

    def __init__(self, config: dict[str, Any], what: str = "") -> None:
        self.there = not what or config["troubled.what"] == what
        self.file = Path(config["troubled.ill"])
        self.looked, self.was = float("-inf"), False

    def __bool__(self) -> bool:
        now = time.monotonic()
        if self.there and now - self.looked >= 0.05:
            self.looked, self.was = now, self.file.exists()
        return self.was


class Source(Spout):
    """Emits numbers at a steady rate; with `backlog`, it once emits many at a time."""

    outputs = ["number"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.numbers = itertools.count()
        self.dry, self.burst = Ill(config, "no input"), Ill(config, "backlog")
        self.rate = RATES.get(config["troubled.what"], 100)
        self.due = time.monotonic()
        # The source makes up for at most makes_up_s of delay, so that its pending tuples grow slowly.
        self.makes_up_s = 0.0 if config["troubled.what"] == "batches" else 1.0
        self.tracked = bool(config.get(constants.TOPOLOGY_RELIABILITY_MODE) == "ATLEAST_ONCE")
        self.left = 6000 if config["troubled.what"] == "backlog" else 0

    def next_tuple(self) -> None:
        now = time.monotonic()
        if self.left and self.burst:
            for number in itertools.islice(self.numbers, self.left):
                self.emit([number])
            self.left = 0
        self.due = max(self.due, now - self.makes_up_s)
        while self.due <= now:
            self.due += 1 / self.rate
            number = next(self.numbers)
            if not self.dry:
                self.emit([number], tup_id=number if self.tracked else None)
                if self.tracked:
                    return  # the number of pending tuples determines the time of the next call
        self.wait(0.005)


def compute(for_s: float) -> None:
    """Use this many seconds of CPU."""
    ends_at = time.thread_time() + for_s
    while time.thread_time() < ends_at:
        pass


class Work(Bolt):
    """Passes numbers on; or hangs, raises, computes longer, or is too slow for its input."""

    outputs = ["number"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        first = min(context.get_component_tasks(context.get_component_id()) or [0]) == context.get_task_id()
        self.what, self.first, self.ill = config["troubled.what"], first, Ill(config)

    def process(self, tup: Tuple) -> None:
        if self.what == "hung" and self.first:
            while self.ill:
                time.sleep(0.05)
        elif self.what == "raises" and self.first and self.ill:
            raise ValueError(f"number {tup.values[0]} is unlucky")
        elif self.what == "scant":
            compute(0.002)
            time.sleep(0.003)  # only a part of the time, so that a busy machine is not overloaded
        elif self.what == "backlog":
            compute(0.01)
            time.sleep(0.014)
        elif self.what == "worse":
            compute(0.006 if self.ill else 0.002)
        self.emit(list(tup.values), anchors=[tup])
        self.ack(tup)


class Store(Bolt):
    """Receives numbers; with `limit` and `late`, acks each number later, and with `batches`, acks them in batches."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.after_s = {"limit": 0.5, "batches": BATCH_S, "late": 2.0}.get(config["troubled.what"], 0.0)
        self.together = config["troubled.what"] == "batches"
        self.ill = Ill(config)
        self.kept: list[tuple[float, Tuple]] = []

    def process(self, tup: Tuple) -> None:
        if self.after_s and self.ill:
            self.kept.append((time.monotonic() + self.after_s, tup))
        else:
            self.ack(tup)

    def process_tick(self, tup: Tuple) -> None:
        if not self.kept or (self.ill and self.kept[0][0] > time.monotonic()):
            return
        all_of_them = self.together or not self.ill
        while self.kept and (all_of_them or self.kept[0][0] <= time.monotonic()):
            self.ack(self.kept.pop(0)[1])


class CountedSource(Source, StatefulComponent):
    """A spout whose state is a counter."""

    def init_state(self, stateful_state: HashMapState) -> None:
        self.state = stateful_state

    def pre_save(self, checkpoint_id: str) -> None:
        self.state["seen"] = next(self.numbers)


class Unsaved(Store, StatefulComponent):
    """A sink whose state cannot be saved."""

    def init_state(self, stateful_state: HashMapState) -> None:
        self.state = stateful_state

    def pre_save(self, checkpoint_id: str) -> None:
        if self.ill:
            raise OSError("the disk is full")


def troubled(name: str, what: str, ill: str) -> TopologyBuilder:
    builder = TopologyBuilder(name)
    stateful = what == "checkpoints"
    source = builder.add_spout("source", CountedSource if stateful else Source, par=1)
    tasks = {"scant": 1, "backlog": 1, "spare": 4}.get(what, 2)
    work = builder.add_bolt("work", Work, par=tasks, inputs={source: Grouping.SHUFFLE})
    acks_late = what in PENDING
    ticks = {constants.TOPOLOGY_TICK_TUPLE_FREQ_MS: 100} if acks_late else None
    builder.add_bolt("store", Unsaved if stateful else Store, par=1, inputs={work: Grouping.SHUFFLE}, config=ticks)
    config: dict[str, Any] = {"troubled.what": what, "troubled.ill": ill}
    if acks_late:
        config |= {
            constants.TOPOLOGY_RELIABILITY_MODE: "ATLEAST_ONCE",
            constants.TOPOLOGY_MAX_SPOUT_PENDING: PENDING[what],
        }
    elif stateful:
        config[constants.TOPOLOGY_RELIABILITY_MODE] = "EFFECTIVELY_ONCE"
    builder.set_config(config)
    return builder


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", default="Troubled")
    parser.add_argument("--what", choices=KINDS, required=True)
    parser.add_argument("--ill", required=True, metavar="FILE")
    options = parser.parse_args()
    troubled(options.name, options.what, options.ill).build_and_submit()
