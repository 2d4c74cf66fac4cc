"""Containers that Slurm runs, with ZooKeeper as state manager: leases fence, and a standby master leads elsewhere.

Real daemons, real first processes; the input and its judge are those of `heron verify`, so every tuple is counted.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest

from heronpy.cli import exits
from heronpy.statemgr import open_state, paths
from tests.support.command import REPO
from tests.support.slurm import missing, slurm_cluster
from tests.support.slurm_topologies import NAME, Judged, Submitted, processes_of
from tests.support.waiting import wait_for
from tests.support.zookeeper import ZooKeeperServer, classpath

pytestmark = [pytest.mark.heavy, pytest.mark.slow, pytest.mark.timeout(590)]


@pytest.fixture
def zookeeper() -> Iterator[str]:
    """The root of a state manager of a server of the test's own."""
    jars, why = classpath()
    if why or missing():
        if why and os.environ.get("HERON_TEST_ZOOKEEPER") == "required":
            pytest.fail(why)
        if missing() and os.environ.get("HERON_TEST_SLURM") == "required":
            pytest.fail(missing())
        pytest.skip(why or missing())
    server = ZooKeeperServer(jars)
    try:
        yield f"{server.hosts}/heron"
    finally:
        server.close()


def test_containers_schedulers_and_the_host_of_the_master_are_lost(zookeeper: str, home: Path, tmp_path: Path) -> None:
    with slurm_cluster(nodes=4, memory_mb=4000) as cluster:
        statemgr = {"type": "zookeeper", "root": zookeeper, "session_timeout_s": 4}
        rooms = {"statemgr": statemgr, "tmaster": {"standbys": 1, "takeover_s": 2}}
        # Four containers at most on a node, so that those that are left have room for all.
        it = Judged(cluster, home, tmp_path, "ATLEAST_ONCE", **rooms)
        stopped: list[psutil.Process] = []
        try:
            before = it.all_run()
            it.flows()

            # All processes of a container die; it alone is replaced.
            for process in processes_of(before["executor-1"].engine_id):
                with suppress(psutil.Error):
                    process.kill()
            wait_for(lambda: it.records()["executor-1"].submission == 2, 60, "another submission")
            after = it.all_run()
            assert after["executor-1"].epoch == before["executor-1"].epoch + 1
            assert after["executor-0"].engine_id == before["executor-0"].engine_id
            it.flows()

            # The scheduler dies, and its successor adopts what it finds in ZooKeeper and in Slurm.
            first = it.location()
            os.kill(first.pid, 9)
            wait_for(lambda: it.location().pid != first.pid, 40, "another scheduler")
            adopted = it.all_run()
            assert [(name, one.engine_id, one.epoch) for name, one in adopted.items()] == [
                (name, one.engine_id, one.epoch) for name, one in after.items()
            ]
            it.flows()

            # The host of container 0 is lost: the standby master on another host leads, before anybody replaces it.
            lost, led = adopted["executor-0"], it.master()
            on_it = [one for one in adopted.values() if one.host == lost.host]
            stopped = [process for one in on_it for process in processes_of(one.engine_id)]
            cluster.lose_node(lost.host)
            for process in stopped:
                with suppress(psutil.Error):
                    process.suspend()
            leads = wait_for(lambda: (found := it.master()).epoch > led.epoch and found, 60, "another master")
            assert leads.pid not in {process.pid for process in stopped}
            assert it.records()["executor-0"].epoch == lost.epoch, "it leads before the lease of the lost one is over"
            wait_for(lambda: it.records()["executor-0"].epoch == lost.epoch + 1, 90, "the successor of container 0")
            assert it.all_run()["executor-0"].host != lost.host
            it.flows()
            assert it.judge().loss == 0
        finally:
            for process in stopped:
                with suppress(psutil.Error):
                    process.kill()
            it.heron("kill", "hpc", it.name, "--force", "--timeout", "20")
    with closing(open_state("zookeeper", zookeeper)) as state:
        assert not state.exists(paths.scheduler(it.name)) and not state.exists(paths.placement(it.name))


def test_two_hosts_submit_one_name_at_once(zookeeper: str, home: Path, tmp_path: Path) -> None:
    """Each host has its own HERON_HOME; what they share is the state manager. One of them wins, whole."""
    with slurm_cluster(nodes=2, memory_mb=4000) as cluster:
        statemgr = {"statemgr": {"type": "zookeeper", "root": zookeeper}}
        sides = []
        for number in (1, 2):
            own = home / f"host{number}"
            own.mkdir(mode=0o700)
            sides.append(Submitted(cluster, own, tmp_path / "hosts", statemgr))
            sides[-1].env |= {"HERON_HOME": str(own)}
        argv = [sys.executable, "-m", "heronpy.cli", "submit", "hpc", "topologies/word_count.py"]
        running = [
            subprocess.Popen(argv, env=one.env, cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for one in sides
        ]
        try:
            said = [one.communicate(timeout=200)[0] for one in running]
            codes = [one.returncode for one in running]
            assert sorted(codes) == [exits.OK, exits.EXISTS], said
            refused = said[codes.index(exits.EXISTS)]
            assert refused.count("error:") == 1 and f"'{NAME}'" in refused, refused
            jobs = cluster.run("squeue", "-h", "-r", "-t", "RUNNING,PENDING", "-o", "%j").split()
            assert len(jobs) == len(set(sides[0].records())) and len({job.split(".")[1] for job in jobs}) == 1, jobs
            # Afterwards as well, from either host.
            for one in sides:
                assert f"'{NAME}'" in one.heron("submit", "hpc", "topologies/word_count.py", code=exits.EXISTS)
        finally:
            for process in running:
                process.kill()
                process.wait()
            sides[0].heron("kill", "hpc", NAME)
        assert not cluster.run("squeue", "-h", "-r", "-t", "RUNNING,PENDING,COMPLETING", "-o", "%i").split()
