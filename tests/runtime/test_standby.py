"""A standby takes over a whole topology; nothing else of it notices (F03, F10)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from heronpy.loadtest.cluster import Cluster
from heronpy.proto import control_pb2
from heronpy.verify.run import Run, verify_run
from heronpy.verify.scenarios import Scenario
from heronpy.verify.stream import InputSpec
from heronpy.verify.world import World
from tests.support.waiting import alive, wait_for

PATIENCE_S = 60.0


def facts(world: World) -> dict[str, Any]:
    """What a change of the topology master leaves alone."""

    def running() -> control_pb2.StatusReply | None:
        status = world.topology.status()
        return status if status is not None and status.lifecycle == control_pb2.LIFE_RUNNING else None

    status = world.until(running, PATIENCE_S, "a running topology")
    return {
        "tasks": {task.instance_id: (task.pid, task.epoch) for task in status.tasks},
        "stream managers": {beat.stmgr_id: beat.epoch for beat in status.stmgrs},
        "plan": (status.plan_version, status.plan.regions),
        "restores": world.checkpoints().restores,
    }


def when_checkpoint(world: World, after: int) -> int:
    """The newest checkpoint, once it is later than that; ids only grow."""

    def look() -> int:
        ids = [record.checkpoint for record in world.checkpoints().complete]
        assert ids == sorted(set(ids)), ids
        return ids[-1] if ids and ids[-1] > after else 0

    return world.until(look, PATIENCE_S, f"a checkpoint after {after}")


def replace_masters(world: World, runs: int) -> None:
    """Kill the active master, stop its successor, and continue the successor once it is replaced."""
    newest = when_checkpoint(world, 0)
    before = facts(world)
    first = world.master()
    epoch = world.status().tmaster_epoch
    world.kill(first).disruptive = False
    second = world.master()
    # The standby, or the killed one's next process where that was quicker.
    assert second.pid != first.pid and world.status().tmaster_epoch > epoch
    newest = when_checkpoint(world, newest + 1)  # one may have been under way
    assert facts(world) == before

    world.note("SIGSTOP tmaster", disruptive=False)
    with world.stopped([world.process(second)]):
        third = wait_for(lambda: (now := world.master()).pid != second.pid and now, PATIENCE_S, "a successor")
        newest = when_checkpoint(world, newest + 1)
    wait_for(lambda: not alive(second.pid), PATIENCE_S, "the end of the one that was replaced")
    when_checkpoint(world, newest)
    assert facts(world) == before
    assert world.master() == third
    ended = [
        process.name
        for executor in world.status().executors
        for process in executor.processes
        if process.exit_reason == "fenced"
    ]
    assert ended == [second.name]
    world.until_arrived(200)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.heavy
def test_killed_and_stopped_masters_do_not_disturb_the_topology(home: Path) -> None:
    """Same tasks, attempts and plan; checkpoint ids go on; every tuple counted once; the rate stays what it was."""
    settings = {"heron.tmaster.standbys": 1, "heron.tmaster.takeover_s": 1.0, "heron.checkpoint.interval_s": 0.3}
    scenario = Scenario("standby", "topology masters are killed and stopped", replace_masters, settings=settings)
    wanted = Run("EFFECTIVELY_ONCE", duration_s=1.0, baseline_s=2.0, input=InputSpec(rate=500.0))
    where = Cluster("local", home, temporary=False)
    try:
        done = verify_run(where, wanted, scenario, 1, print)
    finally:
        where.close()
    assert done["ok"], done
    assert done["verdict"]["rewound"] == 0
    # A busy machine may disturb one of them; a data path that needed its master would stop both times.
    changes = [fault["change"] for fault in done["verdict"]["recovery"] if fault["change"] is not None]
    assert min(map(abs, changes)) < 0.05
