"""A pool whose slots are pods: a job runs in it, moves off a drained slot, survives a lost one, and leaves nothing."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engines.conftest import World
from tests.support.hosts import needs_hosts
from tests.support.kubernetes_client import PATIENCE_S, Client
from tests.support.waiting import wait_for

pytestmark = [needs_hosts, pytest.mark.heavy, pytest.mark.slow, pytest.mark.timeout(420)]


@pytest.fixture
def k8s(make_kubernetes: World, tmp_path: Path) -> Iterator[Client]:
    with make_kubernetes() as (cluster, kubelets):
        found = Client(cluster, kubelets, tmp_path)
        yield found
        for words in (("manager", "stop", "k8s"), ("kill", "k8s", "fish"), ("kill", "k8s", "small", "--force")):
            found.start(*words).communicate(timeout=90)


def slots(k8s: Client) -> dict[int, Any]:
    """The slots that run containers."""
    shown = json.loads(k8s.run("pool", "show", "k8s", "small", "--json"))["slots"]
    return {one["slot"]: one for one in shown if one["containers"]}


def test_a_job_runs_in_slots_of_kubernetes_and_survives_a_lost_one(k8s: Client) -> None:
    k8s.init()
    made = k8s.run("pool", "create", "k8s", "small", "--slots", "2", "--cpu", "2", "--ram", "1600MB")
    assert "2 slots of 2 cores and 1.6GB on engine kubernetes" in made
    k8s.run("job", "create", "k8s", str(k8s.program), "--pool", "small")

    def epochs() -> dict[int, int]:
        """Of the tasks, once all run."""
        asked = k8s.start("status", "k8s", "fish", "--json")
        said, _ = asked.communicate(timeout=60)
        tasks = json.loads(said)["tasks"] if not asked.returncode else []
        all_run = {task["state"] for task in tasks} == {"RUNNING"}
        return {task["task_id"]: task["epoch"] for task in tasks} if all_run else {}

    wait_for(epochs, PATIENCE_S, "all tasks")
    assert len(k8s.cluster.names("pods")) == 2, "the topology asks Kubernetes for nothing itself"
    drained = min(slots(k8s))
    k8s.run("pool", "drain", "k8s", "small", str(drained))
    wait_for(lambda: epochs() and drained not in slots(k8s), PATIENCE_S, "all tasks outside of a slot that is drained")
    k8s.run("pool", "drain", "k8s", "small", str(drained), "--lift")
    [lost] = slots(k8s)
    [pod] = [one for one in k8s.cluster.names("pods") if one.split("-")[-2] == str(lost)]
    before = epochs()
    assert before
    k8s.kubelets.kill(pod, signal.SIGKILL)

    def are_back() -> bool:
        """In another slot, or in a successor that was faster than the pool's scheduler."""
        now = epochs()
        return bool(now) and all(now[task] > before[task] for task in before)

    wait_for(are_back, 2 * PATIENCE_S, "all tasks in another process")
    assert pod not in k8s.cluster.names("pods") or lost not in slots(k8s)
    k8s.run("job", "stop", "k8s", "fish")
    k8s.run("job", "delete", "k8s", "fish")
    k8s.run("pool", "delete", "k8s", "small")
    k8s.nothing_left()
