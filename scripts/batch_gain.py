"""Measures what `process_batch` saves: the word count with single tuples and with batches, in each mode.

    python scripts/batch_gain.py
    python scripts/batch_gain.py --lines 200000 --rounds 3

Rounds alternate between the variants. Each task records the CPU time of its process from its first tuple to the end of
its input. The best round of each variant counts.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from heronpy import Batch, Bolt, Grouping, Spout, TopologyBuilder, TopologyContext, Tuple, submit

WORDS_PER_LINE = 10
#: Number of distinct lines; the vocabulary is then too large for the CPU caches.
LINES = 500
PER_CALL = 200


def lines() -> list[str]:
    """Return the lines that the spout repeats."""
    return [" ".join(f"w{(n * 7919 + k * 104729) % 3001}" for k in range(WORDS_PER_LINE)) for n in range(LINES)]


class Meter:
    """Measures CPU time from the first tuple, and writes it to a file at the end."""

    def __init__(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.path = Path(config["gain.out"]) / f"{context.get_component_id()}-{context.get_task_id()}.json"
        self.begun: float | None = None
        self.tuples = 0

    def begin(self) -> None:
        if self.begun is None:
            self.begun = time.process_time()

    def end(self) -> None:
        cpu_s = 0.0 if self.begun is None else time.process_time() - self.begun
        self.path.write_text(json.dumps({"cpu_s": cpu_s, "tuples": self.tuples}))


class Lines(Spout):
    outputs = ["line"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.left = int(config["gain.lines"])
        self.source = itertools.cycle(lines())
        self.numbers = itertools.count()

    def next_tuple(self) -> None:
        count = min(self.left, PER_CALL)
        self.left -= count
        if not count:
            self.end_of_input()
            return
        self.emit_batch([list(itertools.islice(self.source, count))], ids=list(itertools.islice(self.numbers, count)))


class Split(Bolt):
    outputs = ["word"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.meter = Meter(config, context)

    def process(self, tup: Tuple) -> None:
        self.meter.begin()
        for word in tup.values[0].split():
            self.emit([word], anchors=[tup])
            self.meter.tuples += 1
        self.ack(tup)

    def finish(self) -> None:
        self.meter.end()


class Count(Bolt):
    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.meter = Meter(config, context)
        self.counts: Counter[str] = Counter()

    def process(self, tup: Tuple) -> None:
        self.meter.begin()
        self.counts[tup.values[0]] += 1
        self.meter.tuples += 1
        self.ack(tup)

    def finish(self) -> None:
        self.meter.end()


class SplitBatch(Bolt):
    outputs = ["word"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.meter = Meter(config, context)

    def process_batch(self, batch: Batch) -> None:
        self.meter.begin()
        split = [line.split() for line in batch.columns["line"]]
        words = list(itertools.chain.from_iterable(split))
        parents = [n for n, found in enumerate(split) for _ in found]
        self.emit_batch({"word": words}, anchors=batch.take(parents))
        self.ack(batch)
        self.meter.tuples += len(words)

    def finish(self) -> None:
        self.meter.end()


class CountBatch(Bolt):
    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.meter = Meter(config, context)
        self.counts: Counter[str] = Counter()

    def process_batch(self, batch: Batch) -> None:
        self.meter.begin()
        self.counts.update(batch.columns["word"])
        self.meter.tuples += len(batch)
        self.ack(batch)

    def finish(self) -> None:
        self.meter.end()


VARIANTS = {"process": (Split, Count), "process_batch": (SplitBatch, CountBatch)}
MODES = ("ATMOST_ONCE", "ATLEAST_ONCE", "EFFECTIVELY_ONCE")


def measure(variant: str, mode: str, count: int) -> dict[str, float]:
    """Return the microseconds of CPU per word in each bolt."""
    split, counter = VARIANTS[variant]
    with tempfile.TemporaryDirectory() as out:
        builder = TopologyBuilder("batch_gain")
        source = builder.add_spout("lines", Lines, par=1, config={"gain.lines": count, "gain.out": out})
        words = builder.add_bolt("split", split, par=1, inputs={source: Grouping.SHUFFLE}, config={"gain.out": out})
        builder.add_bolt("count", counter, par=2, inputs={words: Grouping.fields("word")}, config={"gain.out": out})
        builder.set_config({"topology.reliability.mode": mode, "topology.max.spout.pending": 5000})
        with submit(builder) as running:
            running.wait(timeout_s=300)
        found: dict[str, float] = {}
        for component, tasks in itertools.groupby(sorted(os.listdir(out)), key=lambda name: name.split("-")[0]):
            parts = [json.loads((Path(out) / name).read_text()) for name in tasks]
            assert sum(part["tuples"] for part in parts) == count * WORDS_PER_LINE, "words were lost or repeated"
            found[component] = sum(part["cpu_s"] for part in parts) * 1e6 / (count * WORDS_PER_LINE)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=100_000, help=f"lines of {WORDS_PER_LINE} words of one run")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each variant")
    parser.add_argument("--mode", choices=MODES, action="append", help="measure only this mode; repeatable")
    args = parser.parse_args()
    for mode in args.mode or MODES:
        best: dict[tuple[str, str], float] = {}
        for variant in [*VARIANTS] * args.rounds:
            for component, cost in measure(variant, mode, args.lines).items():
                best[component, variant] = min(cost, best.get((component, variant), cost))
        for component in ("split", "count"):
            single, batch = best[component, "process"], best[component, "process_batch"]
            print(
                f"{mode:<17} {component:<6} process {single:5.2f} us a word, process_batch {batch:5.2f} us,"
                f" {single / batch:.1f} times cheaper"
            )


if __name__ == "__main__":
    main()
