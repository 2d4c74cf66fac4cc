"""`heron` as a user runs it against a cluster of the tests that is called k8s."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from tests.support import fish
from tests.support.command import REPO
from tests.support.kubernetes_node import IMAGE, Kubelets
from tests.support.waiting import wait_for

PATIENCE_S = 90.0
SMALL = {"packing": "instance_ram_bytes: 100MB\ninstance_cpu: 0.1\n"}
SOON = "renew_s: 1\nfence_s: 6\nlost_s: 12\npermit_s: 30\npoll_s: 0.5\n"


class Client:
    """`heron` with cluster "k8s" on the tests' Kubernetes."""

    def __init__(self, cluster: Any, kubelets: Kubelets, folder: Path) -> None:
        self.cluster, self.kubelets, self.folder = cluster, kubelets, folder
        self.conf = folder / "client" / "conf" / "k8s"
        self.home = folder / "home"
        self.env = {**os.environ, **cluster.env, "HERON_HOME": str(self.home)}
        self.env |= {"HERON_CONFIG_HOME": str(folder / "client"), "PYTHONPATH": str(REPO), "COLUMNS": "200"}
        self.env.pop("HERON_CONF", None)
        self.program = folder / "fish.py"
        shutil.copy(fish.__file__, self.program)

    def start(self, *words: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "heronpy.cli", *words]
        return subprocess.Popen(argv, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *words: str, code: int = 0, within_s: float = 120.0) -> str:
        """What it prints."""
        process = self.start(*words)
        out, err = process.communicate(timeout=within_s)
        assert process.returncode == code, f"{words}: {process.returncode}\n{out}\n{err}\n{self.scheduler_log()}"
        return out + err

    def scheduler_log(self) -> str:
        return "\n".join(one.read_text()[-3000:] for one in self.home.rglob("scheduler.log"))

    def init(self) -> None:
        self.run("cluster", "init", "k8s", "--engine", "kubernetes")
        rooms = {**SMALL, "kubernetes": f"image: {IMAGE}\n", "engine": SOON}
        for room, text in rooms.items():
            with open(self.conf / f"{room}.yaml", "a", encoding="utf-8") as file:
                file.write(text)
        engine = self.conf / "engine.yaml"
        engine.write_text(engine.read_text().replace('"/usr/local/bin/python3"', json.dumps(sys.executable)))

    def placed(self) -> dict[int, dict[str, Any]]:
        [row] = json.loads(self.run("list", "k8s", "--json"))
        return {one["container"]: one for one in row["containers"]}

    def all_run(self, differs: str = "") -> dict[int, dict[str, Any]]:
        """All containers, once they run, and none is the pod of that name any more."""

        def look() -> dict[int, dict[str, Any]]:
            found = self.placed()
            good = all(one["phase"] == "RUNNING" and one["engine_id"] != differs for one in found.values())
            return found if good else {}

        return wait_for(look, PATIENCE_S, f"all containers running\n{self.scheduler_log()}")

    def nothing_left(self) -> None:
        for kind in ("pods", "secrets", "poddisruptionbudgets"):
            wait_for(lambda kind=kind: not self.cluster.names(kind), PATIENCE_S, f"no {kind}")
        # The kubelet of a lost node does not hear that its pods are gone; it keeps those that had ended with it.
        wait_for(lambda: not self.kubelets.running(), PATIENCE_S, "no process")

    def schedulers(self) -> list[psutil.Process]:
        """Guardians and schedulers."""
        found = []
        for one in psutil.process_iter(["cmdline"]):
            words = one.info["cmdline"] or []
            if "heronpy.scheduler" in words and any(str(self.home) in word for word in words):
                found.append(one)
        return found


def ids(placed: dict[int, dict[str, Any]]) -> dict[int, str]:
    return {number: one["engine_id"] for number, one in placed.items()}
