"""What is secret is in secrets alone: it is looked for in everything that a topology leaves on Kubernetes and on hosts."""

from __future__ import annotations

import base64
import json
import signal

import psutil
import pytest

from tests.support.hosts import needs_hosts
from tests.support.kubernetes_client import PATIENCE_S, Client
from tests.support.waiting import wait_for

#: Folders of keys on the host of a scheduler: of links and the endpoint, and of the user's commands.
KEYS = ("keys", "access")
pytestmark = [needs_hosts, pytest.mark.timeout(400)]


def secrets_of(k8s: Client) -> dict[str, bytes]:
    """By where each is: those of the join tokens, and all keys on the host of the scheduler."""
    found = {}
    for one in k8s.cluster.all("secrets"):
        token = base64.b64decode(one["data"]["join_token"])
        found[f"secret {one['metadata']['name']}"] = json.loads(token)["client"][1].encode()
        found[f"secret {one['metadata']['name']}, as it is kept"] = one["data"]["join_token"].encode()
    for folder in KEYS:
        for path in k8s.home.rglob(f"{folder}/**/*"):
            words = path.read_bytes().split() if path.is_file() else []
            if b"secret" in words:
                found[str(path)] = words[words.index(b"secret") + 1]
            elif folder == "keys" and len(words) == 1:
                found[str(path)] = words[0]
    return found


def told_by(k8s: Client) -> dict[str, bytes]:
    """Everything that others than the owner of the keys may read, and all logs."""
    cluster = k8s.cluster
    found = {kind: json.dumps(cluster.all(kind)).encode() for kind in ("pods", "poddisruptionbudgets", "nodes")}
    for path in (cluster.path("events"), cluster.path("configmaps")):
        found[path] = json.dumps(cluster.rest.call("GET", path)).encode()
    found["audit.log"] = (cluster.folder / "audit.log").read_bytes()
    for name, pod in list(k8s.kubelets.pods.items()):
        found[f"log of {name}"] = k8s.kubelets.log(name)
        for process in pod.processes():
            try:
                seen = "\0".join([*process.cmdline(), *(f"{key}={value}" for key, value in process.environ().items())])
            except psutil.Error:
                continue
            found[f"process {process.pid} of {name}"] = seen.encode()
    for path in k8s.home.rglob("*.log*"):
        if path.is_file():
            found[str(path)] = path.read_bytes()
    for words in (("status", "k8s", "fish"), ("list", "k8s", "--json"), ("logs", "k8s", "fish")):
        found[" ".join(words)] = k8s.run(*words).encode()
    return found


def test_what_is_secret_is_in_secrets_alone(k8s: Client) -> None:
    """While it runs, after a container was killed and replaced, and once it is gone."""
    k8s.init()
    k8s.run("submit", "k8s", str(k8s.program))
    before = k8s.all_run()
    wait_for(lambda: b"executor-2" in k8s.kubelets.log(before[2]["engine_id"]), PATIENCE_S, "lines in a pod's log")
    secrets, told = secrets_of(k8s), told_by(k8s)
    assert any(where.startswith("secret ") for where in secrets), "a token"
    assert sum(not where.startswith("secret ") for where in secrets) >= 3, "keys of the scheduler's host"
    assert sum(where.startswith("process ") for where in told) >= 3 and all(told.values()), "something was looked at"
    k8s.kubelets.kill(before[1]["engine_id"], signal.SIGKILL)
    k8s.all_run(before[1]["engine_id"])
    secrets |= secrets_of(k8s)
    told |= {f"{where}, later": text for where, text in told_by(k8s).items()}
    log = k8s.run("kill", "k8s", "fish")
    k8s.nothing_left()
    told["heron kill"] = log.encode()
    told |= {f"{path}, in the end": path.read_bytes() for path in k8s.home.rglob("*.log*") if path.is_file()}
    leaks = [
        f"{where} is told in {place}" for where, value in secrets.items() for place in told if value in told[place]
    ]
    assert not leaks, leaks
