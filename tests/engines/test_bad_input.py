"""What an engine, its host or its user has not: one sentence with the thing and the fix."""

from __future__ import annotations

import asyncio
import re
import socket
import sys
from pathlib import Path

import pytest
import zmq

from heronpy.common.errors import ConfigError
from heronpy.common.settings import resolve
from heronpy.engines.contract import EngineFatalError
from heronpy.engines.kubernetes.client import Api
from heronpy.engines.kubernetes.engine import KubernetesEngine
from heronpy.engines.kubernetes.pods import PodOptions
from heronpy.engines.slurm.batch import SlurmOptions
from heronpy.engines.slurm.engine import SlurmEngine
from heronpy.executor.host_folder import home_of
from heronpy.executor.scheduler_link import NoEndpointError, SchedulerLink
from heronpy.net.curve import Keys, Pair
from heronpy.net.join_token import JoinToken
from heronpy.net.transport import bind
from heronpy.proto import endpoint_pb2

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: lab
contexts: [{name: lab, context: {cluster: c, user: u}}, {name: prod, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
"""


def slurm_that_says(folder: Path, release: str) -> SlurmEngine:
    for name in ("sbatch", "squeue", "scancel", "sinfo", "scontrol"):
        (folder / name).write_text(f"#!/bin/sh\necho {release}\n")
        (folder / name).chmod(0o755)
    return SlurmEngine("t", SlurmOptions(), ["true"], {"PATH": f"{folder}:/usr/bin:/bin"})


@pytest.mark.parametrize(("release", "ok"), [("slurm 21.08.8", False), ("slurm-wlm 22.05.8", True), ("slurm x", False)])
def test_a_slurm_that_is_too_old(tmp_path: Path, release: str, ok: bool) -> None:
    [found] = [one for one in slurm_that_says(tmp_path, release).check() if one.what == "release"]
    assert (found.ok, found.detail, found.fix) == (ok, release, "22.05 or newer is needed")


def test_commands_of_slurm_that_are_not_there(tmp_path: Path) -> None:
    [found] = SlurmEngine("t", SlurmOptions(), ["true"], {"PATH": str(tmp_path)}).check()
    assert not found.ok and "sbatch, squeue, scancel, sinfo, scontrol not found in PATH" in found.detail
    assert found.fix == "install these commands, or submit from a host that has them"


def test_the_extra_of_kubernetes_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(EngineFatalError, match=r"is not installed; run: pip install 'heronpy\[kubernetes\]'"):
        _ = Api().namespace
    [found] = KubernetesEngine("t", PodOptions("image"), ["true"], Api()).check()
    assert (found.ok, found.detail) == (False, "the package kubernetes is not installed")
    assert found.fix == "run: pip install 'heronpy[kubernetes]'"


def test_a_kubeconfig_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("kubernetes")
    one, other = tmp_path / "one", tmp_path / "other"
    monkeypatch.setenv("KUBECONFIG", f"{one}:{other}")
    [found] = KubernetesEngine("t", PodOptions("image"), ["true"], Api()).check()
    assert found.detail.startswith(f"there is no kubeconfig {one} or {other}; ")
    other.write_text(KUBECONFIG)
    assert Api().context == "lab"
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(EngineFatalError, match=r"there is no kubeconfig ~/\.kube/config; "):
        _ = Api().namespace


def test_a_context_that_the_kubeconfig_has_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("kubernetes")
    (tmp_path / "config").write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with pytest.raises(EngineFatalError, match=r"context is 'labs', but the kubeconfig has lab, prod"):
        _ = Api("labs").namespace
    assert Api("prod").context == "prod"
    monkeypatch.setenv("KUBECONFIG", "config")
    with pytest.raises(EngineFatalError, match="use an absolute path"):
        _ = Api().namespace


@pytest.mark.parametrize(
    "key", ["heron.engine.kind", "heron.slurm.prologue", "heron.kubernetes.image", "heron.security.port_range"]
)
def test_a_topology_that_sets_operators_keys(key: str) -> None:
    room = key.split(".")[1]
    with pytest.raises(ConfigError, match=f"{key} protects other topologies; set it in {room}.yaml of the cluster"):
        resolve("local", [], {key: "x"}, {}, [])


def test_a_home_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot be created: .*; set heron.engine.home to a folder"):
        home_of(str(tmp_path / "file"))
    with pytest.raises(ConfigError, match="must be an absolute path"):
        home_of("some/where")


def test_a_home_that_is_relative_is_refused_where_it_is_set(tmp_path: Path) -> None:
    (tmp_path / "hpc").mkdir()
    (tmp_path / "hpc" / "engine.yaml").write_text("home: rel/ative\n")
    words = "heron.engine.home is 'rel/ative' but must be an absolute path, or empty"
    with pytest.raises(ConfigError, match=f"engine.yaml:1: {words}"):
        resolve("hpc", [tmp_path], {}, {}, [])
    with pytest.raises(ConfigError, match=f"--config-property: {words}"):
        resolve("local", [], {}, {}, ["heron.engine.home=rel/ative"])
    for given in ("", "/scratch/heron"):
        assert resolve("local", [], {}, {}, [f"heron.engine.home={given}"]).settings["engine"]["home"] == given


def test_ports_that_are_used_up() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with zmq.Context.instance().socket(zmq.ROUTER) as sock:
            keys = Keys("t", Pair(*zmq.curve_keypair()), Pair(*zmq.curve_keypair()))
            with pytest.raises(
                ConfigError, match=f"all ports {port}-{port} of 127.0.0.1 are taken; free some ports, or widen"
            ):
                bind(sock, f"tcp://127.0.0.1:{port}-{port}", keys)


def test_an_endpoint_that_no_address_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each address that was tried is named, and from where."""
    addresses = ("tcp://127.0.0.1:9", "tcp://127.0.0.2:9")
    token = JoinToken("wc-1", addresses, zmq.curve_keypair()[0], Pair(*zmq.curve_keypair()))

    async def ask() -> None:
        link = SchedulerLink(token, 3, 1)
        try:
            await link.admit(lambda endpoint: endpoint_pb2.Hello(topology_id="wc-1"), 0.1)
        finally:
            link.close()

    words = f"did not admit container 3 within 0.1 s; tried from {socket.gethostname()}: {', '.join(addresses)}"
    with pytest.raises(NoEndpointError, match=re.escape(words)):
        asyncio.run(ask())
