"""Containers that Slurm wants back, of a topology whose output is judged: preempted, and at the end of their time.

The real daemons; the input and its judge are those of `heron verify`, so every tuple is counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.conftest import needs_slurm
from tests.support.slurm import SlurmCluster, slurm_cluster
from tests.support.slurm_topologies import RESTARTS, Judged
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.heavy, pytest.mark.slow, pytest.mark.timeout(590)]
MODES = ("ATLEAST_ONCE", "EFFECTIVELY_ONCE")
#: Of a container, in the test of its end: Slurm counts in minutes, and tells it up to a minute too early.
TIME_LIMIT_S = 120
LEAVE_S = 25


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    needs_slurm()
    with slurm_cluster(memory_mb=4000) as found:
        yield found


@pytest.mark.parametrize("mode", MODES)
def test_preemption_costs_no_restart_and_no_tuple(cluster: SlurmCluster, home: Path, tmp_path: Path, mode: str) -> None:
    """More often than the budget allows restarts."""
    it = Judged(cluster, home, tmp_path, mode)
    urgent: list[str] = []
    try:
        it.all_run()
        it.flows()
        for again in range(RESTARTS + 2):
            before = it.records()["executor-1"]
            words = ("--exclusive", f"--nodelist={before.host}", "--output=/dev/null", "--wrap=sleep 600")
            urgent.append(cluster.run("sbatch", "--parsable", "--partition=urgent", *words).strip())
            wait_for(
                lambda host=before.host: it.records()["executor-1"].host not in ("", host), 60, f"its move {again}"
            )
            wait_for(lambda: it.records()["executor-1"].phase == "RUNNING", 60, "the successor running")
            cluster.run("scancel", urgent[-1])
            after = it.all_run()["executor-1"]
            assert (after.submission, after.epoch) > (before.submission, before.epoch)
            it.flows()
        assert it.judge().loss == 0
        assert "PREEMPTED" in it.log()
    finally:
        for job in urgent:
            cluster.run("scancel", job)
        it.heron("kill", "hpc", it.name)
    assert not cluster.run("squeue", "-h", "-r", "-t", "RUNNING,PENDING,COMPLETING", "-n", "wrap", "-o", "%i").split()


@pytest.mark.parametrize("mode", MODES)
def test_the_end_of_its_time_is_handed_over(cluster: SlurmCluster, home: Path, tmp_path: Path, mode: str) -> None:
    """Successors stand by before their predecessors end, and take over from a checkpoint."""
    it = Judged(cluster, home, tmp_path, mode, slurm={"time_limit_s": TIME_LIMIT_S}, engine={"leave_s": LEAVE_S})
    try:
        before = it.all_run()
        it.flows()
        wait_for(lambda: any(one.submission > 1 for one in it.records().values()), 150, "a successor")

        def all_follow() -> bool:
            found = it.records().values()
            return all(one.submission > 1 and one.phase == "RUNNING" for one in found)

        wait_for(all_follow, 90, "successors running in every container")
        for name, one in it.records().items():
            assert one.epoch == before[name].epoch + 1, "no submission acted in between"
        it.flows()
        assert it.judge().loss == 0
        log = it.log()
        for number in range(len(before)):
            assert f"container {number} has to leave" in log
        assert "TIMEOUT" not in log, "they had ended before Slurm ended them"
    finally:
        it.heron("kill", "hpc", it.name)
