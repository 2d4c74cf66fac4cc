"""Words that are counted, with one exception on each host, for tests of the commands."""

import itertools
import tempfile
import time
from pathlib import Path
from typing import Any

from heronpy import Bolt, Grouping, Spout, TopologyBuilder, TopologyContext, Tuple


class Words(Spout):
    outputs = ["word"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.words = itertools.cycle(["one", "fish", "two"])

    def next_tuple(self) -> None:
        time.sleep(0.01)
        self.emit([next(self.words)])


class Count(Bolt):
    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.logger.info("counting begins")
        self.n = 0

    def process(self, tup: Tuple) -> None:
        self.n += 1
        if self.n == 50 and not (once := Path(tempfile.gettempdir(), "once")).exists():
            once.touch()
            raise ValueError("out of luck")
        self.ack(tup)


if __name__ == "__main__":
    builder = TopologyBuilder("far")
    words = builder.add_spout("words", Words, par=1)
    builder.add_bolt("count", Count, par=1, inputs={words: Grouping.fields("word")})
    builder.set_config({"topology.stmgrs": 2})
    builder.build_and_submit()
