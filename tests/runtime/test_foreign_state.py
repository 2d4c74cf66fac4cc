"""State that cannot be read, or that a newer release has written (F24)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from heronpy.proto import plan_pb2, topology_pb2
from heronpy.statemgr import open_state, paths
from heronpy.statemgr.base import StateManager
from tests.support.command import Heron
from tests.support.waiting import wait_for

PROGRAM = Path(__file__).parent / "programs" / "exits.py"
PATIENCE_S = 60.0
#: Field 5000 of a message that does not have it yet.
LATER_FIELD = b"\xc2\xb8\x02\x0ffrom the future"


@pytest.fixture
def state(heron: Heron, out: Path) -> Iterator[StateManager]:
    heron.submit(PROGRAM, "exits", "--out", out)
    manager = open_state("local", str(heron.home / "state" / "local"))
    yield manager
    manager.close()


def test_damaged_state_is_one_clear_error_and_no_crash_loop(heron: Heron, out: Path, state: StateManager) -> None:
    """The topology master says which node; it is started once, and the data flows on."""
    before = {task["instance_id"]: task["pid"] for task in heron.status("exits")["tasks"]}
    pid = heron.pid("exits", "tmaster")
    state.set(paths.physical_plan("exits"), b"\xff\xffno plan")
    os.kill(pid, signal.SIGKILL)
    heron.when_logged("exits", "is not restarted", "scheduler")
    assert [row["name"] for row in heron("list", "local", "--json").json()] == ["exits"]
    refused = wait_for(
        lambda: (said := heron("status", "local", "exits")).err.count("does not hold a PhysicalPlan") and said,
        PATIENCE_S,
        "the scheduler knowing why the master ended",
    ).refused(1, "state node pplans/exits does not hold a PhysicalPlan")
    assert "kill the topology and submit it again" in refused
    heron("plan", "local", "exits", "physical").refused(
        1, "the physical plan of 'exits' in the state manager is damaged"
    )
    assert heron.log_text("exits", "tmaster").count("does not hold a PhysicalPlan") == 1
    seen = (out / "seen").stat().st_size
    wait_for(lambda: (out / "seen").stat().st_size > seen, PATIENCE_S, "tuples flowing on")
    assert all(Path(f"/proc/{pid}").exists() for pid in before.values())


def test_what_a_newer_release_has_added_is_kept(heron: Heron, state: StateManager) -> None:
    """Unknown fields go through a topology master that reads, changes and writes the node."""
    found = {
        path: state.get(path)
        for path in (paths.topology("exits"), paths.packing_plan("exits"), paths.physical_plan("exits"))
    }
    for path, node in found.items():
        assert node is not None
        state.set(path, node[0] + LATER_FIELD)
    pid = heron.pid("exits", "tmaster")
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: _master(state) not in (0, pid), PATIENCE_S, "a new topology master")
    heron.when_state("exits", "RUNNING")
    heron("deactivate", "local", "exits").ok()
    topology = state.get(paths.topology("exits"))
    assert topology is not None
    assert topology_pb2.Topology.FromString(topology[0]).state == topology_pb2.PAUSED
    assert LATER_FIELD in topology[0]
    plan = state.get(paths.physical_plan("exits"))
    assert plan is not None
    assert LATER_FIELD in plan_pb2.PhysicalPlan.FromString(plan[0]).topology.SerializeToString()
    heron("activate", "local", "exits").ok()


def _master(state: StateManager) -> int:
    found = state.get(paths.tmaster("exits"))
    return plan_pb2.TmasterLocation.FromString(found[0]).pid if found else 0
