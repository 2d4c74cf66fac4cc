"""A batch run whose workers are pods: a volume that all pods mount has its folder, and one pod is evicted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.batch.test_batch_runs import PROGRAM, counts_of, rows_of, write
from tests.engines.conftest import World
from tests.support.hosts import needs_hosts
from tests.support.kubernetes_client import PATIENCE_S, Client
from tests.support.postgres import PostgresServer, served
from tests.support.waiting import wait_for

pytestmark = [needs_hosts, pytest.mark.heavy, pytest.mark.slow, pytest.mark.timeout(420)]
LINES = 6_000
ledger = pytest.fixture(served)


def template_of(folders: dict[str, Path]) -> str:
    """A pod template that mounts folders of the node at the same path."""
    volumes = [{"name": name, "hostPath": {"path": str(folder)}} for name, folder in folders.items()]
    mounts = [{"name": name, "mountPath": str(folder)} for name, folder in folders.items()]
    ours = {"name": "heron", "volumeMounts": mounts}
    return yaml.safe_dump({"spec": {"volumes": volumes, "containers": [ours]}})


def test_an_evicted_pod_costs_attempts_only(make_fake: World, ledger: PostgresServer, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    logs, out = shared / "logs", shared / "out"
    logs.mkdir(parents=True)
    shared.chmod(0o700)
    expected = write(logs / "a.log", LINES, 1)
    template = tmp_path / "pod.yaml"
    template.write_text(template_of({"shared": shared, "ledger": ledger.folder}))
    with make_fake() as (cluster, kubelets):
        k8s = Client(cluster, kubelets, tmp_path)
        k8s.rooms["engine"] += f"shared: {shared}\n"
        k8s.rooms["kubernetes"] += f"pod_template: {template}\n"
        k8s.rooms |= {
            "batch": f"folder: {shared / 'batch'}\n",
            "checkpoint": f"root: {shared / 'checkpoints'}\n",
            "ingest": f"ledger: {ledger.url}\n",
        }
        k8s.init()

        def progress() -> dict[str, Any]:
            found: dict[str, Any] = json.loads(k8s.run("progress", "k8s", "visits", "--json"))
            return found

        words = ("follow=1", "workers=4", "slow_s=0.01", "unit_bytes=2500")
        program = (str(PROGRAM), "visits", f"{logs}/*.log", str(out), *words)
        try:
            k8s.run("submit", "k8s", "--mode", "batch", *program)
            before = k8s.all_run(containers=2)
            assert {one["host"] for one in before.values()} == {"n1", "n2"}
            wait_for(lambda: sum(one["done"] for one in progress()["stages"]) >= 2, PATIENCE_S, "two units")
            evicted = before[1]["engine_id"]
            cluster.condition(evicted, "EvictionByEvictionAPI", "the node is drained")
            cluster.delete("pods", evicted, 5)
            wait_for(lambda: progress()["state"] == "FINISHED", 2 * PATIENCE_S, f"the end\n{k8s.scheduler_log()}")
            stage = progress()["stages"][0]
            assert stage["preempted"] > 0 and stage["tries_failed"] == stage["failed"] == 0
            assert counts_of(out) == expected and len(rows_of(out)) == len(expected)
        finally:
            k8s.run("kill", "k8s", "visits", "--force")
        k8s.nothing_left()
