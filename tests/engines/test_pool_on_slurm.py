"""A pool whose slots Slurm runs, on Slurm's own daemons: a job runs in it, moves off a lost slot, and leaves nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engines.conftest import needs_slurm
from tests.engines.test_slurm_commands import PATIENCE_S, Hpc
from tests.support.slurm import slurm_cluster
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.heavy, pytest.mark.slow, pytest.mark.timeout(420)]


@pytest.fixture
def hpc(tmp_path: Path) -> Iterator[Hpc]:
    needs_slurm()
    with slurm_cluster(memory_mb=4000) as cluster:
        found = Hpc(cluster, tmp_path)
        yield found
        for words in (("manager", "stop", "hpc"), ("kill", "hpc", "fish"), ("kill", "hpc", "small", "--force")):
            found.start(*words).communicate(timeout=90)
        wait_for(lambda: found.jobs() == [], PATIENCE_S, "Slurm being empty")


def pool(hpc: Hpc) -> dict[str, Any]:
    return dict(json.loads(hpc.run("pool", "show", "hpc", "small", "--json")))


def test_a_job_runs_in_slots_of_slurm_and_moves_off_a_lost_one(hpc: Hpc) -> None:
    hpc.init()
    made = hpc.run("pool", "create", "hpc", "small", "--slots", "2", "--cpu", "2", "--ram", "1600MB")
    assert "2 slots of 2 cores and 1.6GB on engine slurm" in made
    hpc.run("job", "create", "hpc", str(hpc.program), "--pool", "small")

    def runs_beside(lost: int) -> bool:
        asked = hpc.start("status", "hpc", "fish", "--json")
        said, _ = asked.communicate(timeout=60)
        if asked.returncode:
            return False
        states = {task["state"] for task in json.loads(said)["tasks"]}
        return states == {"RUNNING"} and not any(one["containers"] for one in pool(hpc)["slots"] if one["slot"] == lost)

    wait_for(lambda: runs_beside(0), PATIENCE_S, f"all tasks\n{hpc.run('job', 'show', 'hpc', 'fish')}")
    assert len(hpc.jobs()) == 2, "the topology asks Slurm for nothing itself"
    lost = next(one for one in pool(hpc)["slots"] if one["containers"])
    hpc.run("pool", "drain", "hpc", "small", str(lost["slot"]))
    wait_for(lambda: runs_beside(lost["slot"]), PATIENCE_S, "all tasks outside of a slot that is drained")
    hpc.run("pool", "drain", "hpc", "small", str(lost["slot"]), "--lift")
    used = next(one for one in pool(hpc)["slots"] if one["containers"])
    on_node = ("squeue", "--noheader", "--format=%A", f"--nodelist={used['host']}")
    hpc.cluster.run("scancel", "--signal=KILL", "--full", *hpc.cluster.run(*on_node).split())
    wait_for(lambda: runs_beside(used["slot"]), 2 * PATIENCE_S, "all tasks outside of a slot that was killed")
    hpc.run("job", "stop", "hpc", "fish")
    hpc.run("job", "delete", "hpc", "fish")
    hpc.run("pool", "delete", "hpc", "small")
