"""Counts words per record: spouts -> (split ->) counters.

The bodies of `next_tuple` and `process` are what a user would write; everything else that the load test needs
(progress, the clock) is in other modules.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.api.topology_context import TopologyContext
from heronpy.loadtest.inputs import sentences, word_list
from heronpy.loadtest.topologies.parts import CountingSink, LoadSpout, Pace, acked, config_of, passes, submit


class WordSpout(LoadSpout):
    """Emits words as fast as possible, or at a fixed rate."""

    outputs = ["word"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        spec = self.report.spec
        self.messages = self.read_messages(spec["parameters"])
        self.payload = bytes(spec["payload_bytes"])
        self.report.emitted = self.kept_position()
        if self.pace is not None:
            self.values = self.paced(self.pace)
        else:
            self.values = passes(self.messages, self.limit, self.duration_s, self.report)

    def read_messages(self, p: dict[str, Any]) -> list[str]:
        """Return the words that are emitted repeatedly; `p` contains the profile's parameters."""
        words = word_list(p["distinct"], p["words"], p["zipf"])
        return sentences(words) if p["split_bolts"] else words

    def paced(self, pace: Pace) -> Iterator[str]:
        """Yield each word when it is due, and "" while no word is due."""
        pace.start_ns = time.monotonic_ns()
        self.report.mark(0)
        first = self.report.emitted
        for number in range(first, self.limit or pace.total(self.duration_s)):
            due = pace.due_ns(number - first)
            while time.monotonic_ns() < due:
                yield ""
            self.report.emitted = number + 1
            yield self.messages[number % len(self.messages)]
            self.report.mark(number + 1)

    def position(self) -> int:
        return self.report.position()

    def message(self, number: int) -> list[Any]:
        return [self.messages[number % len(self.messages)]]

    def next_tuple(self) -> None:
        word = next(self.values, None)
        if word:
            self.emit([word])
        elif word is None:
            self.sent = self.report.emitted
            self.end()


class AckedWordSpout(WordSpout):
    """A WordSpout for at-least-once mode: every word has an id, and is emitted again when it fails."""

    def next_tuple(self) -> None:
        word = next(self.values, None)
        if word:
            self.emit([word], self.sent)
            self.sent += 1
        elif word is None:
            self.finish_when_acked()
        elif self.again:
            self.replay()


class PayloadWordSpout(AckedWordSpout):
    outputs = ["word", "payload"]

    def message(self, number: int) -> list[Any]:
        return [*super().message(number), self.payload]

    def next_tuple(self) -> None:
        word = next(self.values, None)
        if word:
            self.emit([word, self.payload], self.sent)
            self.sent += 1
        elif word is None:
            self.finish_when_acked()
        elif self.again:
            self.replay()


class SplitBolt(Bolt):
    outputs = ["word"]

    def process(self, tup: Any) -> None:
        for word in tup.values[0].split():
            self.emit([word])


class AckedSplitBolt(SplitBolt):
    def process(self, tup: Any) -> None:
        for word in tup.values[0].split():
            self.emit([word], anchors=[tup])
        self.ack(tup)


class CountBolt(CountingSink):
    """Counts words, one by one."""

    def process(self, tup: Any) -> None:
        word = tup.values[0]
        self.counts[word] = self.counts.get(word, 0) + 1

    def process_tick(self, tup: Any) -> None:
        self.report.mark(sum(self.counts.values()))

    def finish(self) -> None:
        self.report.write(sum(self.counts.values()), counts=self.counts)


class AckedCountBolt(CountBolt):
    def process(self, tup: Any) -> None:
        word = tup.values[0]
        self.counts[word] = self.counts.get(word, 0) + 1
        self.ack(tup)


def describe(spec: dict[str, Any], made: TopologyBuilder) -> None:
    """words (-> split) -> count"""
    p, tracked = spec["parameters"], acked(spec)
    if p["split_bolts"] and spec["payload_bytes"]:
        raise SystemExit("error: sentences have no payload; leave out --payload")
    spout = PayloadWordSpout if spec["payload_bytes"] else AckedWordSpout if tracked else WordSpout
    count = AckedCountBolt if tracked else CountBolt
    words = made.add_spout("words", spout, par=p["spouts"], config=config_of(spec))
    if p["split_bolts"]:
        split = AckedSplitBolt if tracked else SplitBolt
        words = made.add_bolt("split", split, par=p["split_bolts"], inputs={words: Grouping.SHUFFLE})
    grouped = {words: Grouping.fields("word")}
    made.add_bolt("count", count, par=p["counters"], inputs=grouped, config=config_of(spec, sink=True))


if __name__ == "__main__":
    submit(describe, __doc__)
