"""Stacks, a profile and the heap of each kind of process of a topology that runs, from the command and over REST."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.test_tracker import Http
from tests.support.command import Heron
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

PROGRAM = """
from heronpy import Bolt, Grouping, Spout, TopologyBuilder

class Numbers(Spout):
    outputs = ["number"]
    def next_tuple(self):
        self.emit([1])

class Burn(Bolt):
    def initialize(self, config, context):
        self.kept = [bytearray(1000) for _ in range(2000)]
        self.names = {}
    def process(self, tup):
        self.burn()
        if len(self.names) < 3000:
            self.names[len(self.names)] = complex(len(self.names), 1)
    def burn(self):
        sum(range(20_000))

builder = TopologyBuilder("burning")
numbers = builder.add_spout("numbers", Numbers, par=1)
builder.add_bolt("burn", Burn, par=1, inputs={numbers: Grouping.SHUFFLE})
builder.build_and_submit()
"""
TASK = "container_1_burn_2"


@pytest.mark.heavy
def test_every_process_tells_what_it_does(heron: Heron, tmp_path: Path) -> None:
    program = tmp_path / "burning.py"
    program.write_text(PROGRAM)
    heron.submit(program, "-")
    wait_for(lambda: heron("stacks", "local", "burning", "2").ok().out.count("in burn\n"), 60.0, "a tuple in work")
    for process in ("stmgr-1", "tmaster", "executor-1", "executor-0"):
        assert "most recent call first" in heron("stacks", "local", "burning", process).ok().out
        heap = heron("heap", "local", "burning", process, "--yes", "--json").json()
        assert heap["process"] == process and heap["objects"] > 100
        where = tmp_path / process
        heron("profile", "local", "burning", process, "--duration", "1", "--idle", "--out", where).ok()
        assert {path.suffix for path in where.iterdir()} == {".svg", ".json"}
    # what the task had made before it began to run is counted, and what it keeps there since
    heap = heron("heap", "local", "burning", TASK, "--top", "500", "--yes", "--json").json()
    counts = {one["name"]: one["count"] for one in heap["types"]}
    assert counts["bytearray"] == pytest.approx(2000, abs=20) and counts["complex"] == pytest.approx(3000, abs=50)
    assert heap["memory_bytes"] > heap["bytes"] > 2_000_000

    address = heron("ui").ok().out.strip()
    try:
        ui = Http(address)
        [one] = ui.get("/api/v1/topologies")["topologies"]
        place = "/api/v1/topologies/" + "/".join(one[part] for part in ("cluster", "role", "environ", "name"))
        status, begun = ui.ask("POST", f"{place}/tasks/2/profile", {"duration_s": 10})
        assert status == 200 and begun["under_way"], begun
        assert ui.ask("POST", f"{place}/tasks/2/stacks", {})[0] == 409
        heron("stacks", "local", "burning", "2").refused(1, "is being taken already")

        def profile() -> object:
            found = ui.get(f"{place}/tasks/2/profile")
            return None if found["under_way"] else found["profile"]

        found = wait_for(profile, 90.0, "the profile")
        assert any(name.startswith(("Burn.burn (", "burn (")) for name in found["frames"]), found["frames"]
    finally:
        heron("ui", "stop")
