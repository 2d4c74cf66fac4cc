"""What only the real control plane of Kubernetes can show: `make engines` runs it."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from heronpy.cli import exits
from heronpy.engines.contract import Ended
from tests.engines.conftest import client_of
from tests.engines.test_kubernetes_cluster import all_ended, all_run, ask, engine_of, watched, when
from tests.support import fish
from tests.support.control_plane import ControlPlane
from tests.support.hosts import needs_hosts
from tests.support.kubernetes_client import PATIENCE_S, Client, ids
from tests.support.kubernetes_node import Kubelets
from tests.support.kubernetes_real import RealCluster, kubectl, real_kubernetes
from tests.support.waiting import wait_for

pytestmark = [needs_hosts, pytest.mark.engines, pytest.mark.timeout(400)]
APISERVER = "kube-apiserver"


@pytest.fixture
def real(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[RealCluster, Kubelets]]:
    with real_kubernetes(plane) as (cluster, kubelets):
        monkeypatch.setenv("KUBECONFIG", cluster.env["KUBECONFIG"])
        yield cluster, kubelets


@pytest.fixture
def k8s(real: tuple[RealCluster, Kubelets], tmp_path: Path) -> Iterator[Client]:
    yield from client_of(*real, tmp_path)


# ---- the engine --------------------------------------------------------------------------------
def test_what_belongs_to_a_pod_goes_with_it(real: tuple[RealCluster, Kubelets]) -> None:
    cluster, _ = real
    engine = engine_of()
    ids_ = engine.submit([ask(1), ask(2)])
    when(engine, all_run, "both running")
    kubectl(cluster, "delete", "pod", ids_[1, 1], "--wait=false")
    wait_for(lambda: cluster.names("secrets") == [ids_[2, 1]], 30, "the secret of the deleted pod gone")
    assert len(cluster.names("poddisruptionbudgets")) == 1, "the other pod owns it, too"
    kubectl(cluster, "delete", "pod", ids_[2, 1], "--wait=false")
    for kind in ("pods", "secrets", "poddisruptionbudgets"):
        wait_for(lambda kind=kind: not cluster.names(kind), 30, f"no {kind}")


def test_a_node_that_is_removed_confirms_nothing(
    real: tuple[RealCluster, Kubelets], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller removes its pods by force, although their processes run on."""
    cluster, kubelets = real
    monkeypatch.setattr("heronpy.engines.kubernetes.engine.GONE_S", 0.2)
    engine = engine_of()
    engine.submit([ask(1, avoid=("n2",)), ask(2, avoid=("n1",))])
    with watched(engine):
        when(engine, all_run, "both running")
        kubelets.lose("n1")
        kubectl(cluster, "delete", "node", "n1")
        seen = when(engine, lambda seen: seen[1, 1].ended is not Ended.NO, "it given up", 180)
        assert (seen[1, 1].ended, seen[1, 1].reason) == (Ended.UNCONFIRMED, None)
        assert seen[2, 1].ended is Ended.NO and kubelets.of_node("n1")


def test_a_pod_makes_room_for_one_of_a_higher_priority(real: tuple[RealCluster, Kubelets]) -> None:
    cluster, _ = real
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    if not cluster.rest.find(f"{path}/urgent"):
        cluster.rest.call("POST", path, {"metadata": {"name": "urgent"}, "value": 1000})
    engine, urgent = engine_of(), engine_of("urgent", template={"spec": {"priorityClassName": "urgent"}})
    engine.submit([ask(1, cpu=3), ask(2, cpu=3)])
    with watched(engine):
        when(engine, all_run, "both running")
        urgent.submit([ask(1, cpu=3, topology="urgent")])
        when(urgent, all_run, "the urgent one running")
        ended = [one for one in engine.list() if one.ended is not Ended.NO]
        assert [one.ended for one in ended] == [Ended.CONFIRMED]


def test_without_an_api_server_nothing_ends(real: tuple[RealCluster, Kubelets]) -> None:
    """It hangs, is killed and starts again: the watch continues, and finds what has happened in between."""
    cluster, kubelets = real
    engine = engine_of()
    ids_ = engine.submit([ask(1), ask(2)])
    with watched(engine) as told:
        when(engine, all_run, "both running")
        cluster.plane.signal(APISERVER, signal.SIGSTOP)
        try:
            with pytest.raises(Exception, match="the API server does not answer"):
                engine.list()
        finally:
            cluster.plane.signal(APISERVER, signal.SIGCONT)
        assert all_run({(one.container, one.submission): one for one in engine.list()})
        cluster.plane.stop(APISERVER)
        with pytest.raises(Exception, match="the API server does not answer"):
            engine.list()
        kubelets.kill(ids_[1, 1])
        cluster.plane.start(APISERVER)
        wait_for(cluster.rest.is_ready, 60, "the API server ready")
        before = len(told)
        seen = when(engine, lambda seen: seen[1, 1].ended is Ended.CONFIRMED, "the end of the killed one", 60)
        assert seen[2, 1].ended is Ended.NO
        kubelets.kill(ids_[2, 1])
        wait_for(lambda: len(told) > before, 60, "the watch going on")
        when(engine, all_ended, "both ended")


# ---- heron ----------------------------------------------------------------------------------------
def test_kubectl_drains_a_node(k8s: Client) -> None:
    """One container at a time, because of the budget, and each is replaced elsewhere."""
    k8s.init()
    k8s.run("submit", "k8s", str(k8s.program))
    before = k8s.all_run()
    node = before[1]["host"]
    drain = ("drain", node, "--force", "--delete-emptydir-data", "--ignore-daemonsets", "--timeout=150s")
    kubectl(k8s.cluster, *drain)

    def moved() -> dict[int, dict[str, Any]]:
        found = k8s.placed()
        good = all(one["phase"] == "RUNNING" and one["host"] != node for one in found.values())
        return found if good else {}

    after = wait_for(moved, PATIENCE_S, f"nothing on {node}\n{k8s.scheduler_log()}")
    for number, one in before.items():
        assert (after[number]["engine_id"] == one["engine_id"]) == (one["host"] != node)
    k8s.run("kill", "k8s", "fish")
    k8s.nothing_left()


def test_a_topology_grows(k8s: Client) -> None:
    k8s.init()
    k8s.run("submit", "k8s", str(k8s.program))
    before = k8s.all_run()
    k8s.run("update", "k8s", "fish", "--component-parallelism", "count:6", "--container-number", "3")
    grown = wait_for(lambda: len(k8s.placed()) == 4 and k8s.all_run(), PATIENCE_S, "three containers of tasks")
    assert {number: one["engine_id"] for number, one in grown.items() if number < 3} == ids(before)
    assert len(k8s.cluster.names("pods")) == 4
    k8s.run("kill", "k8s", "fish")
    k8s.nothing_left()


def test_refusals_are_told_by_name_and_leave_nothing(k8s: Client) -> None:
    k8s.init()
    k8s.cluster.pods_max = 0
    told = k8s.run("submit", "k8s", str(k8s.program), code=2)
    assert "exceeded quota: small" in told, told
    k8s.nothing_left()
    k8s.cluster.pods_max = None
    k8s.cluster.forbidden = {"create secrets"}
    lacking = "you may not create secrets in namespace streams"
    assert lacking in k8s.run("cluster", "check", "k8s", code=1)
    assert lacking in k8s.run("submit", "k8s", str(k8s.program), code=2)
    k8s.nothing_left()
    k8s.cluster.forbidden = set()
    typo = ("--config-property", "heron.kubernetes.image=registry.test/heronpi:1")
    told = k8s.run("submit", "k8s", str(k8s.program), *typo, code=1)
    assert "ImagePullBackOff" in told
    k8s.nothing_left()
    assert not k8s.schedulers() and "No topology runs" in k8s.run("list", "k8s"), told + k8s.scheduler_log()


def test_a_topology_runs_on_while_the_api_server_is_away(k8s: Client) -> None:
    k8s.init()
    k8s.run("submit", "k8s", str(k8s.program))
    before = k8s.all_run()
    k8s.cluster.plane.stop(APISERVER)
    try:
        wait_for(lambda: "does not answer" in k8s.run("status", "k8s", "fish"), PATIENCE_S, "status saying so")
        assert all(one.process.poll() is None for one in [*k8s.kubelets.pods.values()])
    finally:
        k8s.cluster.plane.start(APISERVER)
    wait_for(k8s.cluster.rest.is_ready, 60, "the API server ready")
    assert ids(k8s.all_run()) == ids(before)
    k8s.run("kill", "k8s", "fish")
    k8s.nothing_left()


def test_a_lost_node_is_replaced_and_a_kill_names_what_it_cannot_end(k8s: Client) -> None:
    """Its pods stay `Terminating`: only an operator can say that nothing of them runs."""
    k8s.init()
    k8s.run("submit", "k8s", str(k8s.program))
    before = k8s.all_run()
    victim = before[2] if before[2]["host"] != before[0]["host"] else before[1]
    k8s.kubelets.lose(victim["host"], with_processes=True)
    after = k8s.all_run(victim["engine_id"])[victim["container"]]
    assert after["host"] != victim["host"] and after["epoch"] == victim["epoch"] + 1
    assert f"host {victim['host']} gets no container" in k8s.scheduler_log()
    said = k8s.run("kill", "k8s", "fish", code=exits.PARTIAL)
    assert f"({victim['engine_id']} on {victim['host']}) may still be running; look for it with: kubectl get" in said
    assert {one["spec"]["nodeName"] for one in k8s.cluster.all("pods")} == {victim["host"]}
    # A forced deletion does not confirm an end to the scheduler, but the user says that the node is gone.
    for name in k8s.cluster.names("pods"):
        kubectl(k8s.cluster, "delete", "pod", name, "--force", "--grace-period=0")
    k8s.run("kill", "k8s", "fish", "--force", "--timeout", "5")
    k8s.nothing_left()
    assert "No topology runs" in k8s.run("list", "k8s")


def test_a_hundred_containers_start(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On four nodes; the time that it takes is printed for the page on performance."""
    with real_kubernetes(plane, nodes=4, cpu="40", memory="32Gi") as (cluster, kubelets):
        monkeypatch.setenv("KUBECONFIG", cluster.env["KUBECONFIG"])
        k8s = Client(cluster, kubelets, tmp_path)
        k8s.init()
        program = (
            k8s.program.read_text().replace("par=3", "par=98").replace('"topology.stmgrs": 2', '"topology.stmgrs": 99')
        )
        k8s.program.write_text(program)
        try:
            began = time.monotonic()
            k8s.run("submit", "k8s", str(k8s.program), "--timeout", "240", within_s=300)
            placed = k8s.all_run()
            print(f"{len(placed)} containers started in {time.monotonic() - began:.1f} s")
            assert len(placed) == 100 and {one["host"] for one in placed.values()} == {"n1", "n2", "n3", "n4"}
        finally:
            k8s.start("kill", "k8s", "fish").communicate(timeout=150)
        k8s.nothing_left()


def test_the_scheduler_is_a_pod_and_is_replaced(k8s: Client) -> None:
    """The manifest as it is printed: its account's Role is enough, and the next pod of the Deployment adopts."""
    cluster, kubelets = k8s.cluster, k8s.kubelets
    k8s.init()
    volume = cluster.folder / "volume"
    volume.mkdir(exist_ok=True)
    volume.chmod(0o777)
    spec = {"capacity": {"storage": "50Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": str(volume)}}
    cluster.rest.call("POST", cluster.path("persistentvolumes"), {"metadata": {"name": "disk"}, "spec": spec})
    kubelets.hosts["heron-k8s.streams.svc"] = "127.0.0.1"
    text = k8s.run("cluster", "manifest", "k8s", "--nodes")
    kinds = {one["kind"] for one in yaml.safe_load_all(text)}
    kubectl(cluster, "apply", "-f", "-", given=text)
    try:
        shutil.copy(fish.__file__, volume / "fish.py")
        pod = _SchedulerPod(k8s)
        assert "Successfully launched" in pod.run("submit", "k8s", "/heron/fish.py")
        before = pod.all_run()
        first = pod.name()
        kubectl(cluster, "delete", "pod", first, "--wait=false")
        wait_for(lambda: pod.name() not in ("", first), PATIENCE_S, "another pod of the Deployment")
        assert ids(pod.all_run()) == ids(before), "it adopts, and restarts none"
        assert "RUNNING" in pod.run("status", "k8s", "fish")
        # Its processes are lost at once, without a word.
        process = kubelets.pods[pod.name()].process
        kubelets.kill(pod.name())
        wait_for(process.poll, PATIENCE_S, "the end of its processes")
        assert ids(pod.all_run()) == ids(before)
        pod.run("kill", "k8s", "fish")
        wait_for(lambda: cluster.names("pods") == [pod.name()], PATIENCE_S, "its own pod alone")
    finally:
        kubectl(cluster, "delete", "--wait=false", "-f", "-", given=text)
        cluster.rest.call("DELETE", cluster.path("persistentvolumes", "disk"))
    assert {"Role", "ClusterRole", "Deployment", "PersistentVolumeClaim", "Service", "ConfigMap"} <= kinds


class _SchedulerPod:
    """`heron` in the pod of the Deployment, as by `kubectl exec`."""

    def __init__(self, k8s: Client) -> None:
        self._k8s = k8s
        wait_for(
            self.name, PATIENCE_S, f"the pod of the Deployment\n{k8s.cluster.plane.log('kube-controller-manager')}"
        )

    def name(self) -> str:
        """The name of the running pod; empty without one."""
        found = [
            name
            for name, one in [*self._k8s.kubelets.pods.items()]  # which go on
            if name.startswith("heron-k8s-") and one.told_at is None and one.has_begun(sys.executable)
        ]
        return found[0] if len(found) == 1 else ""

    def run(self, *words: str) -> str:
        name = wait_for(self.name, PATIENCE_S, "the pod of the Deployment")
        argv = self._k8s.kubelets.command_in(name, sys.executable, "-Pm", "heronpy.cli", *words)
        done = subprocess.run(argv, capture_output=True, text=True, timeout=150, check=False)
        log = self._k8s.kubelets.log(name).decode(errors="replace")[-2000:]
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}\n{log}"
        return done.stdout + done.stderr

    def all_run(self) -> dict[int, dict[str, Any]]:
        def look() -> dict[int, dict[str, Any]]:
            [row] = json.loads(self.run("list", "k8s", "--json"))
            found = {one["container"]: one for one in row["containers"] or ()}
            # An engine that was not asked yet has named none.
            good = all(one["phase"] == "RUNNING" and one["engine_id"] for one in found.values())
            return found if good else {}

        return wait_for(look, PATIENCE_S, "all containers running")
