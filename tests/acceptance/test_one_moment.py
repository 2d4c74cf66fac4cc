"""The counters of one view are of one moment: nothing is executed before it is emitted."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.command import Heron
from tests.support.user_programs import write_program

FAST = """
class Fast(Spout):
    outputs = ["n"]

    def next_tuple(self):
        self.emit([1])


class Through(Bolt):
    outputs = ["n"]

    def process(self, tup):
        self.emit(tup.values)


class Sink(Bolt):
    def process(self, tup):
        pass


builder = TopologyBuilder("fast")
spout = builder.add_spout("fast", Fast, par=1)
middle = builder.add_bolt("pass", Through, par=2, inputs={spout: Grouping.SHUFFLE})
builder.add_bolt("sink", Sink, par=1, inputs={middle: Grouping.SHUFFLE})
builder.set_config({api_constants.TOPOLOGY_STMGRS: 2})
builder.build_and_submit()
"""


def test_no_view_shows_more_executed_than_was_emitted(heron: Heron, tmp_path: Path) -> None:
    heron.submit(write_program(tmp_path, FAST))
    looks = heron("top", "local", "fast", "--json", "-n", "20", "--interval", "0.3").ok().out.splitlines()
    assert len(looks) == 20
    for look in looks:
        fast, between, sink = json.loads(look)["components"]
        assert between["executed"] <= fast["emitted"] and sink["executed"] <= between["emitted"], look
    assert sink["executed"] > 0
