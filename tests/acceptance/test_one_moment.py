"""The counters of one view are of one moment: nothing is executed before it is emitted."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.support.command import Heron, component
from tests.support.inside import inside
from tests.support.user_programs import write_program
from tests.support.waiting import wait_for

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


@pytest.mark.heavy
def test_no_view_shows_more_executed_than_was_emitted(heron: Heron, tmp_path: Path) -> None:
    heron.submit(write_program(tmp_path, FAST))
    looks = heron("top", "local", "fast", "--json", "-n", "20", "--interval", "0.3").ok().out.splitlines()
    assert len(looks) == 20
    for look in looks:
        fast, between, sink = json.loads(look)["components"]
        assert between["executed"] <= fast["emitted"] and sink["executed"] <= between["emitted"], look
    assert sink["executed"] > 0


@pytest.mark.heavy
def test_after_kill_9_no_component_shows_fewer_emitted_than_its_sink_executed(heron: Heron, tmp_path: Path) -> None:
    """A killed task takes what it counted since its last report with it: the stream manager knows what it had sent."""
    heron.submit(write_program(tmp_path, FAST))
    one, other = (task["instance_id"] for task in heron.status("fast")["tasks"] if task["component"] == "pass")
    for victim in (one, other, one):
        before = component(heron.status("fast"), "sink")["executed"]
        heron.when("fast", lambda status, n=before: component(status, "sink")["executed"] > n + 5000, "more tuples")
        os.kill(heron.pid("fast", victim), signal.SIGKILL)
    heron.when_state("fast", "RUNNING")
    heron("deactivate", "local", "fast").ok()
    wait_for(lambda: inside(heron, "fast").drained, what="all tuples at their end")
    found = heron.status("fast")
    fast, between, sink = (component(found, name) for name in ("fast", "pass", "sink"))
    assert between["executed"] <= fast["emitted"]
    assert sink["executed"] <= between["emitted"], found
