"""A batch run whose workers are on several hosts of a Slurm: what is refused, a preempted container, and a lost host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.batch.test_batch_runs import PROGRAM, counts_of, rows_of, write
from tests.support.judged import SMALL
from tests.support.postgres import PostgresServer, served
from tests.support.slurm import SlurmCluster
from tests.support.slurm_topologies import Submitted
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.heavy, pytest.mark.slow, pytest.mark.timeout(590)]
LINES = 12_000
ledger = pytest.fixture(served)


def test_a_preempted_container_and_a_lost_host_cost_attempts_only(
    cluster: SlurmCluster, ledger: PostgresServer, home: Path, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    logs, out = shared / "logs", shared / "out"
    logs.mkdir(parents=True)
    shared.chmod(0o700)
    expected = write(logs / "a.log", LINES, 1)
    rooms: dict[str, dict[str, Any]] = {
        "engine": {"shared": shared},
        "batch": {"folder": shared / "batch"},
        "ingest": {"ledger": ledger.url},
        "checkpoint": {"root": shared / "checkpoints"},
        "packing": SMALL,
        "scheduler": {"container_restart_budget": 0},
    }
    it = Submitted(cluster, home, tmp_path / "hosts", rooms, "visits")
    words = (PROGRAM, "visits", f"{logs}/*.log", out, "follow=1", "workers=4", "slow_s=0.01", "unit_bytes=2500")
    it.heron("submit", "hpc", "--mode", "batch", *words)

    def progress() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(it.heron("progress", "hpc", "visits", "--json"))
        return found

    def done(units: int) -> bool:
        return sum(one["done"] for one in progress()["stages"]) >= units

    urgent = ""
    try:
        before = it.all_run()
        assert len({one.host for one in before.values()}) > 1
        wait_for(lambda: done(4), 90, "four units")
        flags = ("--exclusive", f"--nodelist={before['executor-1'].host}", "--output=/dev/null", "--wrap=sleep 600")
        urgent = cluster.run("sbatch", "--parsable", "--partition=urgent", *flags).strip()
        wait_for(lambda: it.records()["executor-1"].host not in ("", before["executor-1"].host), 90, "its move")
        cluster.run("scancel", urgent)
        found = it.all_run(120)
        done_before = progress()["stages"][0]["done"]
        other = next(one.host for name, one in found.items() if one.host != found["executor-0"].host)
        cluster.lose_node(other)
        wait_for(lambda: progress()["state"] == "FINISHED", 240, "the end of the run")
        stage = progress()["stages"][0]
        assert done_before < stage["units"], "the host was lost in the middle"
        assert stage["preempted"] > 0 and stage["tries_failed"] == stage["failed"] == 0
        assert counts_of(out) == expected and len(rows_of(out)) == len(expected)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{it.logs(tmp_path)}") from error
    finally:
        if urgent:
            cluster.run("scancel", urgent)
        it.heron("kill", "hpc", "visits", "--force")
