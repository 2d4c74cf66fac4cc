"""Runs `heron` as a user does, on a test cluster named k8s."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import psutil

from tests.support.cluster_client import ClusterClient
from tests.support.kubernetes_node import IMAGE, Kubelets
from tests.support.waiting import wait_for

PATIENCE_S = ClusterClient.patience_s
SOON = "renew_s: 1\nfence_s: 6\nlost_s: 12\npermit_s: 30\npoll_s: 0.5\n"


class Client(ClusterClient):
    """Runs `heron` with the cluster "k8s" on the tests' Kubernetes."""

    def __init__(self, cluster: Any, kubelets: Kubelets, folder: Path) -> None:
        self.cluster, self.kubelets = cluster, kubelets
        super().__init__("k8s", "kubernetes", folder, cluster.env, {"kubernetes": f"image: {IMAGE}\n", "engine": SOON})

    def init(self) -> None:
        super().init()
        engine = self.conf / "engine.yaml"
        engine.write_text(engine.read_text().replace('"/usr/local/bin/python3"', json.dumps(sys.executable)))

    def nothing_left(self) -> None:
        for kind in ("pods", "secrets", "poddisruptionbudgets"):
            wait_for(lambda kind=kind: not self.cluster.names(kind), PATIENCE_S, f"no {kind}")
        # The kubelet of a lost node is not told that its pods were deleted, and keeps pods that ended with the node.
        wait_for(lambda: not self.kubelets.running(), PATIENCE_S, "no process")

    def schedulers(self) -> list[psutil.Process]:
        """Return the processes of guardians and schedulers."""
        found = []
        for one in psutil.process_iter(["cmdline"]):
            words = one.info["cmdline"] or []
            if "heronpy.scheduler" in words and any(str(self.home) in word for word in words):
                found.append(one)
        return found


def ids(placed: dict[int, dict[str, Any]]) -> dict[int, str]:
    return {number: one["engine_id"] for number, one in placed.items()}
