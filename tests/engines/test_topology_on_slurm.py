"""A topology whose containers Slurm runs: real daemons, real first processes, the state at the scheduler's door."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from heronpy.cli import exits
from tests.support.slurm import SlurmCluster, missing, slurm_cluster
from tests.support.slurm_topologies import NAME, Submitted
from tests.support.waiting import wait_for

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    why = missing()
    if why and os.environ.get("HERON_TEST_SLURM") == "required":
        pytest.fail(why)
    if why:
        pytest.skip(why)
    with slurm_cluster() as found:
        yield found


def test_a_topology_survives_a_container_and_its_scheduler(cluster: SlurmCluster, home: Path, tmp_path: Path) -> None:
    it = Submitted(cluster, home, tmp_path / "hosts")
    it.heron("submit", "hpc", "topologies/word_count.py")
    try:
        before = it.all_run()
        assert {one.host for one in before.values()} <= set(cluster.nodes)
        assert len({one.engine_id for one in before.values()}) == len(before) == 2

        # A container loses all its processes.
        victims = it.processes_of(before["executor-1"].engine_id)
        assert victims
        for process in victims:
            with suppress(psutil.Error):
                process.kill()
        wait_for(lambda: it.records()["executor-1"].submission == 2, 40, "another submission")
        after = it.all_run()
        assert after["executor-1"].epoch == before["executor-1"].epoch + 1
        assert after["executor-1"].engine_id != before["executor-1"].engine_id
        assert (after["executor-0"].submission, after["executor-0"].engine_id) == (1, before["executor-0"].engine_id)

        # The scheduler dies; nothing is restarted.
        first = it.location()
        os.kill(first.pid, 9)
        wait_for(lambda: it.location().pid != first.pid, 20, "another scheduler")
        assert list(it.location().doors) == list(first.doors)
        key = [(one.name, one.engine_id, one.submission, one.epoch) for one in after.values()]
        adopted = it.all_run()
        assert [(one.name, one.engine_id, one.submission, one.epoch) for one in adopted.values()] == key
        wait_for(lambda: "4 of 4 up" in it.heron("status", "hpc", NAME), 40, "all tasks running")
        jobs = it.cluster.run("squeue", "-h", "-r", "-t", "RUNNING,PENDING", "-o", "%i").split()
        assert sorted(jobs) == sorted(one.engine_id for one in adopted.values())

        # A kill while Slurm does not answer removes nothing, and goes on.
        cluster.stop_controller()
        try:
            said = it.heron("kill", "hpc", NAME, code=exits.PARTIAL)
        finally:
            cluster.continue_controller()
        for one in adopted.values():
            assert f"({one.engine_id} on {one.host})" in said
        assert "the engine does not answer: squeue" in said and "look for it with: squeue" in said
        assert it.records(), "its scheduler goes on"
    finally:
        said = it.heron("kill", "hpc", NAME)
    assert "killed topology" in said
    assert not it.cluster.run("squeue", "-h", "-r", "-t", "RUNNING,PENDING,COMPLETING", "-o", "%i").split()
    assert not list((tmp_path / "hosts" / "containers").glob("[!.]*"))
    logs = home / "topologies" / "hpc"
    assert list(logs.rglob("executor-1.log")), "the ends of the logs are kept"


def test_a_lost_host_is_replaced_after_its_time(cluster: SlurmCluster, home: Path, tmp_path: Path) -> None:
    """Slurm cannot confirm the end, so the successor acts after `lost_s` of silence, in a higher epoch."""
    it = Submitted(cluster, home, tmp_path / "hosts")
    it.heron("submit", "hpc", "topologies/ack_and_fail.py", NAME, "--count", "10000000")
    before = it.all_run()
    lost = before["executor-1"]
    assert lost.host != before["executor-0"].host
    processes = it.processes_of(lost.engine_id)
    try:
        cluster.lose_node(lost.host)
        for process in processes:
            with suppress(psutil.Error):
                process.suspend()
        wait_for(lambda: it.records()["executor-1"].submission == 2, 60, "another submission")
        after = it.all_run(90)["executor-1"]
        assert after.host != lost.host
        assert after.epoch == lost.epoch + 1
        log = next((home / "topologies" / "hpc").rglob("scheduler.log")).read_text()
        assert f"host {lost.host} gets no container" in log
    finally:
        # Its node stays away: this test is the last of its cluster.
        said = it.heron("kill", "hpc", NAME, code=exits.PARTIAL)
        for process in processes:
            with suppress(psutil.Error):
                process.kill()
    assert f"container 1, submission 1 ({lost.engine_id} on {lost.host}) may still run; look for it with: " in said
    look = said.partition("look for it with: ")[2].partition("; its scheduler goes on")[0]
    shown = subprocess.run(
        ["sh", "-c", look], env=it.env, capture_output=True, text=True, check=True, timeout=30
    ).stdout
    assert f"{lost.engine_id} " in shown
    said = it.heron("kill", "hpc", NAME, "--timeout", "3", "--force")
    assert "nobody could confirm the end of container 1, submission 1" in said and "killed topology" in said
