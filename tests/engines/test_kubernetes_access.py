"""A client that pods do not answer reaches the scheduler in the cluster by the API server's port-forward."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heronpy.engines.contract import EngineFatalError
from heronpy.engines.kubernetes.client import Api
from heronpy.engines.kubernetes.forwarding import forwarded
from tests.engines.conftest import World
from tests.support.hosts import can_make_hosts
from tests.support.kubernetes_client import Client
from tests.support.kubernetes_node import IMAGE, Kubelets
from tests.support.waiting import wait_for

ENDPOINT_HOST = "heron-k8s.streams.svc"


def put_scheduler_pod(cluster: Any) -> None:
    """The pod of the Deployment. Its scheduler runs in this test process."""
    container = {
        "name": "heron", "image": IMAGE, "command": ["sleep", "3600"], "env": [], "volumeMounts": [],
    }  # fmt: skip
    pod = {
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": "heron-k8s-0", "labels": {"app.kubernetes.io/name": "heron-k8s"}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }  # fmt: skip
    cluster.make(pod)

    def runs() -> bool:
        found = cluster.get("pods", "heron-k8s-0")
        return found is not None and found["status"]["phase"] == "Running"

    wait_for(runs, 20, "the pod of the scheduler")


@pytest.fixture
def world(make_real: World) -> Iterator[tuple[Any, Kubelets]]:
    with make_real() as (cluster, kubelets):
        yield cluster, kubelets


def test_what_cannot_be_forwarded_is_said(world: tuple[Any, Kubelets], monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, _ = world
    monkeypatch.setenv("KUBECONFIG", cluster.env["KUBECONFIG"])
    api = Api()
    assert forwarded(api, "k8s", 20000) == "", "there is no such pod"
    put_scheduler_pod(cluster)
    cluster.forbidden = {"get pods/portforward"}
    with pytest.raises(EngineFatalError, match=r"get and create of pods/portforward in namespace streams"):
        forwarded(api, "k8s", 20000)


@pytest.mark.timeout(400)
@pytest.mark.skipif(not can_make_hosts(), reason="pods are made of namespaces, which only root can make")
def test_every_verb_reaches_the_scheduler_through_the_api_server(world: tuple[Any, Kubelets], home: Path) -> None:
    cluster, kubelets = world
    with tempfile.TemporaryDirectory(prefix="hpa-", dir="/tmp") as folder:
        for name in ("inside", "laptop"):
            Path(folder, name).mkdir(mode=0o700)
        inside = Client(cluster, kubelets, Path(folder, "inside"))
        inside.init()
        with open(inside.conf / "engine.yaml", "a", encoding="utf-8") as file:
            file.write(f"endpoint_host: {ENDPOINT_HOST}\n")
        kubelets.hosts[ENDPOINT_HOST] = "127.0.0.1"  # for pods alone: this host does not know the name
        try:
            inside.run("submit", "k8s", str(inside.program))
            put_scheduler_pod(cluster)
            laptop = Client(cluster, kubelets, Path(folder, "laptop"))
            laptop.home.mkdir(mode=0o700)
            shutil.copytree(inside.conf.parent, laptop.conf.parent)
            laptop.env["HERON_CONF"] = str(laptop.conf.parent)
            text = inside.run("cluster", "access", "k8s")
            subprocess.run(
                [sys.executable, "-m", "heronpy.cli", "cluster", "access", "k8s", "--install"],
                env=laptop.env, input=text, text=True, check=True, capture_output=True, timeout=60,
            )  # fmt: skip
            assert json.loads(text)["endpoints"]["fish"]["addresses"][0].startswith(f"tcp://{ENDPOINT_HOST}:")
            laptop.all_run()
            wait_for(lambda: "executor-2" in laptop.run("logs", "k8s", "fish", "executor-2"), 60, "the log of a pod")
            assert "count" in laptop.run("metrics", "k8s", "fish")
            assert any("/portforward?ports=" in one for one in cluster.requests)
            assert "Successfully killed" in laptop.run("kill", "k8s", "fish")
            wait_for(lambda: cluster.names("pods") == ["heron-k8s-0"], 60, "the end of all containers")
        finally:
            inside.start("kill", "k8s", "fish", "--force").communicate(timeout=150)
