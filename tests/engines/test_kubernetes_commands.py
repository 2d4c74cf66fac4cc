"""`heron` on a Kubernetes: set up, checked, submitted to, looked at, struck, drained, killed.

It is the real control plane, by `make engines`, but for what is refused before anything is asked for.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import yaml

from tests.engines.conftest import World, client_of
from tests.support.hosts import needs_hosts
from tests.support.kubernetes_client import PATIENCE_S, Client, ids
from tests.support.kubernetes_node import IMAGE
from tests.support.pages import DOCS, PageRun
from tests.support.waiting import wait_for

pytestmark = [needs_hosts, pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def fake_k8s(make_fake: World, tmp_path: Path) -> Iterator[Client]:
    with make_fake() as (cluster, kubelets):
        yield from client_of(cluster, kubelets, tmp_path)


def test_a_cluster_is_set_up_and_checked(k8s: Client) -> None:
    k8s.init()
    assert '\nnamespace: "streams"\n' in (k8s.conf / "kubernetes.yaml").read_text()
    told = json.loads(k8s.run("cluster", "check", "k8s", "--json"))
    assert told["ok"] and told["requirements"][-1]["what"] == "heronpy there", told
    k8s.nothing_left()
    template = k8s.folder / "pod.yaml"
    template.write_text("spec:\n  restartPolicy: Always\n")
    for key, value, what in (
        ("heron.kubernetes.image", "registry.test/none:1", "container: it is still STARTING: ImagePullBackOff"),
        ("heron.kubernetes.image", "", "kubernetes: heron.kubernetes.image is empty"),
        ("heron.kubernetes.context", "tset", "credentials: heron.kubernetes.context is 'tset'"),
        ("heron.kubernetes.namespace", "nowhere", "pod: the API server refuses to create pods in namespace nowhere"),
        ("heron.kubernetes.pod_template", str(template), "kubernetes: heron.kubernetes.pod_template"),
        ("heron.engine.python", "/no/python", "container"),
        ("heron.engine.endpoint_host", "a b", "address: heron.engine.endpoint_host is 'a b'"),
    ):
        wrong = k8s.run("cluster", "check", "k8s", "--config-property", f"{key}={value}", code=1)
        assert f"FAIL  {what}" in wrong and "fix: " in wrong, wrong
    k8s.nothing_left()


def test_the_manifest_holds_the_clusters_settings(fake_k8s: Client) -> None:
    fake_k8s.init()
    template = fake_k8s.folder / "pod.yaml"
    template.write_text("spec:\n  nodeSelector: {pool: streams}\n")
    fake_k8s.run("config", "set", "k8s", "heron.kubernetes.pod_template", str(template))
    found = list(yaml.safe_load_all(fake_k8s.run("cluster", "manifest", "k8s", "--nodes")))
    kinds = {one["kind"]: one for one in found}
    assert {"Role", "RoleBinding", "ServiceAccount", "ClusterRole", "Deployment", "Service"} <= set(kinds)
    data = kinds["ConfigMap"]["data"]
    assert yaml.safe_load(data["engine.yaml"])["endpoint_host"] == "heron-k8s.streams.svc"
    assert yaml.safe_load(data["kubernetes.yaml"]) == {
        "context": "", "namespace": "streams", "image": IMAGE, "pod_template": "/etc/heron/pod-template.yaml",
    }  # fmt: skip
    assert data["pod-template"] == template.read_text()
    assert yaml.safe_load(data["packing.yaml"])["instance_cpu"] == 0.1
    spec = kinds["Deployment"]["spec"]["template"]["spec"]
    assert spec["containers"][0]["command"][-3:] == ["scheduler", "keep", "k8s"]
    assert "only clusters on Kubernetes have a manifest" in fake_k8s.run("cluster", "manifest", "local", code=2)


def test_what_kubernetes_cannot_run_is_refused_before_anything_is_submitted(fake_k8s: Client) -> None:
    fake_k8s.init()
    for key, value, words in (
        ("heron.kubernetes.namespace", "nowhere", "you may not create pods, "),
        ("heron.packing.instance_ram_bytes", "3GB", "but the largest host has 4 cores"),
    ):
        assert words in fake_k8s.run(
            "submit", "k8s", str(fake_k8s.program), "--config-property", f"{key}={value}", code=2
        )
    assert not fake_k8s.cluster.names("pods") and not (fake_k8s.home / "state" / "k8s" / "topologies" / "fish").exists()


def test_a_topology_survives_a_container_and_a_drain(k8s: Client) -> None:
    k8s.init()
    assert "room:   kubernetes must provide 3 containers: container 0 with " in k8s.run(
        "submit", "k8s", str(k8s.program)
    )
    before = k8s.all_run()
    assert {one["host"] for one in before.values()} == {"n1", "n2"} and len(k8s.cluster.names("pods")) == 3
    assert before[1]["engine_id"] in k8s.run("status", "k8s", "fish")
    wait_for(lambda: "executor-2" in k8s.run("logs", "k8s", "fish", "executor-2"), PATIENCE_S, "logs of container 2")
    # Process 1 of a pod, and with it all of its processes.
    k8s.kubelets.kill(before[1]["engine_id"], signal.SIGKILL)
    after = k8s.all_run(before[1]["engine_id"])
    assert (after[1]["submission"], after[1]["epoch"]) == (2, before[1]["epoch"] + 1)
    assert after[2]["engine_id"] == before[2]["engine_id"]
    # A node is emptied by the cluster's operator: no fault, and replaced elsewhere or there.
    k8s.cluster.evict(after[2]["engine_id"])
    moved = k8s.all_run(after[2]["engine_id"])
    assert moved[2]["submission"] == 2
    k8s.run("drain", "k8s", "fish", "--host", str(moved[2]["host"]))
    assert k8s.placed()[2]["host"] != moved[2]["host"]
    text = "".join(one.read_text(errors="replace") for one in k8s.home.rglob("*.log"))
    [secret] = {one["data"]["join_token"] for one in k8s.cluster.all("secrets")}
    assert secret not in text
    k8s.run("kill", "k8s", "fish")
    k8s.nothing_left()
    assert "No topology runs" in k8s.run("list", "k8s")


def test_schedulers_are_kept_and_end_with_their_pod(k8s: Client) -> None:
    """As the pod that submits: schedulers that die are started again, and a new pod adopts what runs."""
    k8s.init()
    k8s.run("config", "set", "k8s", "heron.engine.endpoint_host", "localhost")
    pod = k8s.start("scheduler", "keep", "k8s")
    try:
        k8s.run("submit", "k8s", str(k8s.program))
        before = k8s.all_run()
        victims = k8s.schedulers()
        assert victims
        for one in victims:
            with suppress(psutil.Error):
                one.kill()
        wait_for(lambda: set(k8s.schedulers()) - set(victims), PATIENCE_S, "another scheduler")
        assert ids(k8s.all_run()) == ids(before)
        pod.send_signal(signal.SIGTERM)
        out, err = pod.communicate(timeout=60)
        assert pod.returncode == 0 and "Started the scheduler of 'fish'" in out, out + err
        assert not k8s.schedulers() and len(k8s.cluster.names("pods")) == 3
        pod = k8s.start("scheduler", "keep", "k8s")
        wait_for(lambda: k8s.schedulers(), PATIENCE_S, "the scheduler of the next pod")
        assert ids(k8s.all_run()) == ids(before), "it adopts, and restarts none"
        k8s.run("kill", "k8s", "fish")
        k8s.nothing_left()
    finally:
        pod.terminate()
        pod.communicate(timeout=60)


def test_without_its_scheduler_a_topology_is_killed_on_the_cluster(k8s: Client) -> None:
    k8s.init()
    k8s.run("submit", "k8s", str(k8s.program))
    k8s.all_run()
    for one in k8s.schedulers():
        with suppress(psutil.Error):
            one.kill()
    assert "3 containers" in k8s.run("kill", "k8s", "fish")
    k8s.nothing_left()


def test_what_waits_is_shown_and_taken_down(k8s: Client) -> None:
    k8s.init()
    # There is room for one container.
    k8s.cluster.change("nodes", "n1", lambda node: node["status"]["allocatable"].update(memory="600M"))
    k8s.cluster.change("nodes", "n2", lambda node: node["spec"].update(unschedulable=True))
    late = k8s.run("submit", "k8s", str(k8s.program), "--queue-timeout", "4", "--timeout", "2", code=5)
    assert "still in the queue after 4 s: container" in late and "Insufficient memory" in late, late
    k8s.nothing_left()


def test_the_how_to_does_what_it_says(k8s: Client, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster is the tests' own, whose image is this machine."""
    monkeypatch.setenv("KUBECONFIG", k8s.cluster.env["KUBECONFIG"])
    text = (
        (DOCS / "howto" / "kubernetes.md").read_text(encoding="utf-8").replace("registry.example.org/heronpy:1", IMAGE)
    )
    first = "$ heron cluster check k8s\n"
    assert first in text
    page = tmp_path / "kubernetes.md"
    page.write_text(
        text.replace(first, f"$ heron config set k8s heron.engine.python {sys.executable}\n...\n{first}", 1)
    )
    run = PageRun(page, home.parent / "work", home)
    try:
        run.run()
    finally:
        argv = [sys.executable, "-m", "heronpy.cli", "kill", "k8s", "fish"]
        subprocess.run(argv, env=run.env, capture_output=True, timeout=90, check=False)
