"""`heron` on Slurm's own daemons: a cluster is set up and checked, a topology is submitted, looked at, moved, killed."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.conftest import needs_slurm
from tests.support.cluster_client import ClusterClient
from tests.support.pages import DOCS, PageRun
from tests.support.slurm import SlurmCluster, slurm_cluster
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.heavy, pytest.mark.slow, pytest.mark.timeout(240)]
PATIENCE_S = 60.0


class Hpc(ClusterClient):
    """`heron` with cluster "hpc" on the tests' Slurm."""

    def __init__(self, cluster: SlurmCluster, folder: Path) -> None:
        self.cluster = cluster
        super().__init__("hpc", "slurm", folder, cluster.env, {"engine": f"home: {folder / 'node'}\n"})

    def jobs(self) -> list[str]:
        return self.cluster.run("squeue", "--noheader", "--array", "--format=%i %T").splitlines()


@pytest.fixture
def hpc(cluster: SlurmCluster, tmp_path: Path) -> Iterator[Hpc]:
    found = Hpc(cluster, tmp_path)
    yield found
    if found.conf.exists():
        found.start("kill", "hpc", "fish").communicate(timeout=90)
    wait_for(lambda: found.jobs() == [], PATIENCE_S, "Slurm being empty")


def test_a_cluster_is_set_up_and_checked(hpc: Hpc) -> None:
    hpc.init()
    assert '\npartition: "batch"\n' in (hpc.conf / "slurm.yaml").read_text()
    told = json.loads(hpc.run("cluster", "check", "hpc", "--json"))
    assert told["ok"] and told["requirements"][-1]["what"] == "heronpy there", told
    assert hpc.jobs() == []
    for key, value, what in (
        ("heron.slurm.partition", "bath", "partition"),
        ("heron.slurm.options", "--constraint=none", "submission"),
        ("heron.engine.python", "/no/python", "container"),
        ("heron.slurm.time_limit_s", "10", "slurm"),
    ):
        wrong = hpc.run("cluster", "check", "hpc", "--config-property", f"{key}={value}", code=1)
        assert f"FAIL  {what}" in wrong and "fix: " in wrong, wrong
    wait_for(lambda: hpc.jobs() == [], PATIENCE_S, "the trials being gone")


def test_a_topology_is_submitted_shown_moved_and_killed(hpc: Hpc) -> None:
    hpc.init()
    assert "room:   slurm must provide 3 containers: container 0 with " in hpc.run("submit", "hpc", str(hpc.program))
    assert hpc.phases() == {"RUNNING"} and len(hpc.jobs()) == 3
    assert "engine id" in hpc.run("status", "hpc", "fish")
    wait_for(lambda: "executor-2" in hpc.run("logs", "hpc", "fish", "executor-2"), PATIENCE_S, "logs of container 2")
    before = hpc.placed()
    hpc.run("drain", "hpc", "fish", "--host", str(before[2]["host"]))
    assert hpc.placed()[2]["host"] != before[2]["host"]
    hpc.run("kill", "hpc", "fish")
    wait_for(lambda: hpc.jobs() == [], PATIENCE_S, "the jobs being gone")
    assert "No topology runs" in hpc.run("list", "hpc")


def test_a_drain_of_the_only_host_fails_and_moves_nothing(tmp_path: Path) -> None:
    needs_slurm()
    with slurm_cluster(nodes=1, memory_mb=4000, cpus=6) as cluster:
        hpc = Hpc(cluster, tmp_path)
        hpc.init()
        hpc.run("submit", "hpc", str(hpc.program))
        try:
            before = hpc.placed()
            said = hpc.run("drain", "hpc", "fish", "--host", cluster.nodes[0], code=1)
            assert f"container 0 cannot be moved away from host {cluster.nodes[0]}: " in said, said
            assert "configuration is not available" in said and "container 1, container 2 stay there" in said
            after = hpc.placed()
            assert [(one["engine_id"], one["epoch"], one["phase"]) for one in after.values()] == [
                (one["engine_id"], one["epoch"], "RUNNING") for one in before.values()
            ]
            assert len(hpc.jobs()) == len(before)
        finally:
            hpc.run("kill", "hpc", "fish")


def test_a_scheduler_is_started_again_and_adopts(hpc: Hpc) -> None:
    hpc.init()
    submit = hpc.start("submit", "hpc", str(hpc.program), "--foreground")
    try:
        wait_for(lambda: "RUNNING" in hpc.run("list", "hpc"), PATIENCE_S, "the topology running")
        wait_for(lambda: hpc.phases() == {"RUNNING"}, PATIENCE_S, "all containers running")
        before = hpc.placed()
        submit.send_signal(signal.SIGINT)
        out, err = submit.communicate(timeout=30)
    finally:
        submit.kill()
    assert submit.returncode == 130 and "are not replaced" in err, (out, err)
    assert "The scheduler is not running" in hpc.run("status", "hpc", "fish")
    gone = "the scheduler of 'fish' is not running; start it: heron scheduler start hpc fish"
    assert gone in hpc.run("list", "hpc") and "is not replaced" in hpc.run("doctor", "hpc", "fish", code=1)
    for change in (("restart", "hpc", "fish", "1"), ("deactivate", "hpc", "fish")):
        asked_at = time.monotonic()
        assert gone in hpc.run(*change, code=1)
        assert time.monotonic() - asked_at < 30, "it is not waited for the topology master, which could not answer"
    assert len(hpc.jobs()) == 3
    assert "3 containers" in hpc.run("scheduler", "start", "hpc", "fish")
    after = hpc.placed()
    assert {number: one["engine_id"] for number, one in after.items()} == {
        number: one["engine_id"] for number, one in before.items()
    }


def test_a_container_that_outgrows_its_job_is_told_and_submitted_anew(hpc: Hpc) -> None:
    hpc.init()
    hpc.run("submit", "hpc", str(hpc.program))
    before, plan = hpc.placed(), hpc.run("plan", "hpc", "fish", "packing", "--json")
    refused = hpc.run("update", "hpc", "fish", "--component-parallelism", "count:200", code=2)
    assert "but the largest host of partition batch has 2 cores" in refused and "nothing was changed" in refused
    assert hpc.run("plan", "hpc", "fish", "packing", "--json") == plan
    told = hpc.run("update", "hpc", "fish", "--component-parallelism", "count:4")
    [number] = {int(found) for found in re.findall(r"container (\d+) now requests", told)}
    assert f"heron restart hpc fish {number} --force" in told and "Successfully updated" in told

    def size(container: dict[str, object]) -> str:
        return hpc.cluster.run("squeue", "--noheader", "--format=%m", f"--jobs={container['engine_id']}").strip()

    hpc.run("restart", "hpc", "fish", str(number), "--force")
    after = hpc.placed()
    assert after[number]["engine_id"] != before[number]["engine_id"]
    other = 3 - number
    assert after[other]["engine_id"] == before[other]["engine_id"]
    assert int(size(after[number]).rstrip("M")) > int(size(after[other]).rstrip("M"))


def test_what_waits_in_the_queue_is_shown_and_taken_down(hpc: Hpc) -> None:
    hpc.init()
    # All nodes are full, and stay so.
    filling = ["sbatch", "--nodes=3", "--exclusive", "--output=/dev/null", "--wrap=sleep 600"]
    job = hpc.cluster.run(*filling).split()[-1]
    try:
        wait_for(lambda: any("RUNNING" in line for line in hpc.jobs()), PATIENCE_S, "the nodes being full")
        checked = hpc.run("cluster", "check", "hpc")
        assert "\nwait  container: it is in the queue (" in checked, checked
        assert "FAIL" not in checked and len(hpc.jobs()) == 1
        late = hpc.run("submit", "hpc", str(hpc.program), "--queue-timeout", "4", "--timeout", "2", code=5)
        assert "still in the queue after 4 s: container 0 QUEUED job" in late, late
        assert len(hpc.jobs()) == 1
        # Slurm says of none of them which container it was for; their ends are known all the same, and at once.
        log = "\n".join(one.read_text() for one in hpc.folder.rglob("scheduler.log"))
        assert "the topology is being killed" in log and "is lost" not in log, log
    finally:
        hpc.cluster.run("scancel", job)


def test_what_slurm_cannot_run_is_refused_before_anything_is_submitted(hpc: Hpc) -> None:
    hpc.init()
    for key, value, words in (
        ("heron.slurm.partition", "nowhere", "there is no partition 'nowhere'"),
        ("heron.packing.instance_ram_bytes", "2GB", "but the largest host of partition batch has 2 cores"),
        ("heron.security.transport", "ipc", "works on one machine only"),
    ):
        assert words in hpc.run("submit", "hpc", str(hpc.program), "--config-property", f"{key}={value}", code=2)
    assert hpc.jobs() == [] and not (hpc.folder / "home" / "state" / "hpc" / "topologies" / "fish").exists()


def test_the_how_to_does_what_it_says(hpc: Hpc, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemons are the tests' own, and what needs root is not done again."""
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, hpc.cluster.env[name])
    text = (DOCS / "howto" / "slurm.md").read_text(encoding="utf-8").replace("$ sudo ", "$ echo ")
    first = "$ heron cluster check hpc\n"
    assert first in text
    page = tmp_path / "slurm.md"
    page.write_text(text.replace(first, f"$ heron config set hpc heron.engine.home {tmp_path}/node\n...\n{first}"))
    run = PageRun(page, home.parent / "work", home)
    try:
        run.run()
    finally:
        subprocess.run(["heron", "kill", "hpc", "fish"], env=run.env, capture_output=True, timeout=90, check=False)
