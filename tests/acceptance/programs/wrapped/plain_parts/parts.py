from __future__ import annotations

from wrapped_suite.core import BatchBolt

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout


class Letters(Spout):
    """A and B by turns."""

    outputs = ["word"]

    def initialize(self, config, context):
        self.count = 0

    def next_tuple(self):
        self.emit(["AB"[self.count % 2]])
        self.count += 1


class Identity(Bolt):
    outputs = ["word"]

    def process(self, tup):
        self.emit([tup.values[0]])


class Double(Bolt):
    def process(self, tup):
        self.emit([tup.values[0]], anchors=[tup])
        self.emit([tup.values[0]], anchors=[tup])
        self.ack(tup)


class DistinctWords(BatchBolt):
    outputs = ["count"]

    def initialize(self, config, context):
        self.words = set()

    def process(self, tup):
        self.words.add(tup.values[0])

    def finish_batch(self):
        self.emit([len(self.words)])


class Sum(BatchBolt):
    outputs = ["sum"]

    def initialize(self, config, context):
        self.logger.info("summing as %s", context.get_component_id())
        self.sum = 0

    def process(self, tup):
        self.sum += tup.values[0]

    def finish_batch(self):
        self.emit([self.sum])
