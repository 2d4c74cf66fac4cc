"""Kubelets that run pods on this machine, each with its own process namespace, mounts, /tmp and /run.

Only root can make these namespaces. The module `tests.support.kubernetes_mounts` defines the mounts of a pod.
`HERON_HOST` is the node's name. Pods use the network of this machine.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from heronpy.engines.contract import EngineError
from heronpy.procs.linux import children_of, die_with_parent
from tests.support import kubernetes_mounts as mounts

IMAGE = "registry.test/heronpy:1"
LOG_END = 2048


@dataclass
class Running:
    """The process and the files of a pod."""

    name: str
    node: str
    process: subprocess.Popen[bytes]
    folder: Path
    #: Monotonic time at which the pod was told to end.
    told_at: float | None = None
    oom: bool = False
    evicted: str = ""
    #: The signal that killed it, which `unshare` does not report.
    signum: int = 0

    @property
    def first(self) -> int:
        """The pid of the pod's process 1 on this machine; 0 if there is none."""
        found = children_of(self.process.pid)
        return found[0] if found else 0

    def has_begun(self, program: str) -> bool:
        """Whether the container's command runs; the mounts are prepared before it starts."""
        with suppress(OSError):
            words = Path(f"/proc/{self.first}/cmdline").read_bytes().split(b"\0")
            return words[0].decode() == program
        return False

    def processes(self) -> list[psutil.Process]:
        with suppress(psutil.Error):
            return psutil.Process(self.process.pid).children(recursive=True)
        return []


@dataclass
class Kubelets:
    """The kubelets of all nodes of a cluster."""

    #: A `tests.support.kubernetes.Cluster`, or the real cluster.
    cluster: Any
    images: set[str] = field(default_factory=lambda: {IMAGE})
    pods: dict[str, Running] = field(default_factory=dict)
    #: Map from pod uid to the reason why the pod cannot start.
    refuses: str = ""
    #: Addresses by name for pods, in addition to the names of this machine, because there is no DNS.
    hosts: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._over = threading.Event()
        self._lost: set[str] = set()
        #: The last reported status of each pod; the API server adds fields to it.
        self._told: dict[str, tuple[str, dict[str, Any]]] = {}
        self.cluster.log_of = self.log
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def add(self, name: str, cpu: str, memory: str) -> None:
        node: dict[str, Any] = {
            "metadata": {"name": name, "uid": name, "labels": {"kubernetes.io/hostname": name}},
            "spec": {},
            "status": {
                "allocatable": {"cpu": cpu, "memory": memory},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        self.cluster.add_node(node)

    def lose(self, name: str, with_processes: bool = False) -> None:
        """Make a node silent; its pods continue, unless the node has lost power."""
        self._lost.add(name)
        self.cluster.lose_node(name)
        if with_processes:
            for pod in [one for one in self.pods.values() if one.node == name]:
                pod.process.kill()
                pod.process.wait()

    def running(self) -> list[Running]:
        return [one for one in [*self.pods.values()] if one.process.poll() is None]

    def of_node(self, name: str) -> list[Running]:
        return [one for one in self.running() if one.node == name]

    def command_in(self, name: str, *argv: str) -> list[str]:
        """Return the command line that runs a command in a pod, like `kubectl exec`."""
        first = self.pods[name].first
        env = Path(f"/proc/{first}/environ").read_bytes().decode().rstrip("\0").split("\0")
        return ["nsenter", "-t", str(first), "-m", "-p", "-u", "-r", "-w", "--", "env", "-i", *env, *argv]

    def log(self, name: str) -> bytes:
        with suppress(KeyError, OSError):
            return (self.pods[name].folder / "log").read_bytes()
        return b""

    def close(self) -> None:
        self._over.set()
        self._thread.join(10)
        for pod in self.pods.values():
            pod.process.kill()
            pod.process.wait()

    # ---- one pod -------------------------------------------------------------------------------
    def _run(self) -> None:
        while not self._over.wait(self.cluster.tick_s):
            with suppress(EngineError):  # the real API server does not answer
                pods = self.cluster.all("pods")
                for pod in pods:
                    node = pod["spec"].get("nodeName")
                    if node and node not in self._lost:
                        self._look(pod)
                there = {pod["metadata"]["name"] for pod in pods}
                for name in [name for name, one in self.pods.items() if one.node not in self._lost]:
                    if name not in there:
                        self._forget(name)

    def _look(self, pod: dict[str, Any]) -> None:
        name = pod["metadata"]["name"]
        running = self.pods.get(name)
        deleted = pod["metadata"].get("deletionTimestamp")
        over = pod["status"]["phase"] in ("Failed", "Succeeded")
        if running is None and not over:
            if deleted:
                self._remove(name)
            else:
                self._start(pod)
            return
        if running is not None and deleted and running.process.poll() is None:
            self._end(running, pod["metadata"]["deletionGracePeriodSeconds"])
        if running is not None and not over and running.process.poll() is not None:
            if pod["spec"].get("restartPolicy") == "Always" and not deleted:
                self._start(pod)
            else:
                self._report(running)
        elif deleted and (running is None or running.process.poll() is not None):
            self._remove(name)

    def _start(self, pod: dict[str, Any]) -> None:
        name, spec = pod["metadata"]["name"], pod["spec"]
        [container] = spec["containers"]
        if self.refuses:
            self._wait(name, "CreateContainerConfigError", self.refuses)
            return
        if container["image"] not in self.images:
            self._wait(name, "ImagePullBackOff", f'Back-off pulling image "{container["image"]}"')
            return
        folder = self.cluster.folder / pod["metadata"]["uid"]
        folder.mkdir(exist_ok=True)
        folders = mounts.folders_of(pod, folder, self.cluster.get)
        if folders is None:
            self._wait(name, "ContainerCreating", "")
            return
        server = urlsplit(self.cluster.url)
        env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        env |= {"KUBERNETES_SERVICE_HOST": str(server.hostname), "KUBERNETES_SERVICE_PORT": str(server.port)}
        for one in container.get("env", ()):  # the API server omits empty fields
            env[one["name"]] = spec["nodeName"] if "valueFrom" in one else one["value"]
        argv = ["unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc", "sh", "-c"]
        argv += [mounts.script(pod, folders, self.hosts), "sh", *container["command"]]
        parent = os.getpid()
        with open(folder / "log", "ab") as log:
            process = subprocess.Popen(
                argv,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=lambda: die_with_parent(signal.SIGKILL, parent),
            )
        self.pods[name] = Running(name, spec["nodeName"], process, folder)
        self._status(name, "Running", {"running": {}})

    def _end(self, running: Running, grace_s: float) -> None:
        if running.told_at is None:
            running.told_at = time.monotonic()
            if running.first:
                os.kill(running.first, signal.SIGTERM)
        elif time.monotonic() - running.told_at > grace_s:
            self.kill(running.name)

    def kill(self, name: str, signum: int = signal.SIGKILL) -> None:
        """Kill process 1 of a pod, which ends all its processes."""
        running = self.pods[name]
        if running.first:
            running.signum = signum
            with suppress(ProcessLookupError):
                os.kill(running.first, signum)

    def oom(self, name: str) -> None:
        """Kill a pod as if it had exceeded its memory limit."""
        self.pods[name].oom = True
        self.kill(name)

    def press(self, name: str, own_fault: bool) -> None:
        """Evict a pod because the node's disk is full or the pod exceeds its own limit."""
        if not own_fault:
            self.cluster.condition(name, "TerminationByKubelet", "The node was low on resource: ephemeral-storage.")
        self.pods[name].evicted = "Pod ephemeral local storage usage exceeds the total limit of containers 1M."
        self.kill(name)

    def _report(self, running: Running) -> None:
        code = 128 + running.signum if running.signum else running.process.returncode
        why = "OOMKilled" if running.oom else "Completed" if code == 0 else "Error"
        said = self.log(running.name)[-LOG_END:].decode(errors="replace") if code else ""
        terminated = {"exitCode": code, "reason": why, "message": said}
        phase = "Succeeded" if code == 0 else "Failed"
        self._status(
            running.name, phase, {"terminated": terminated}, "Evicted" if running.evicted else "", running.evicted
        )

    def _wait(self, name: str, reason: str, message: str) -> None:
        self._status(name, "Pending", {"waiting": {"reason": reason, "message": message}})

    def _status(self, name: str, phase: str, state: dict[str, Any], reason: str = "", message: str = "") -> None:
        found = self.cluster.get("pods", name)
        if found is None or (self._told.get(name) == (phase, state) and found["status"]["phase"] == phase):
            return
        self._told[name] = phase, state
        [container] = found["spec"]["containers"]
        rest = {"image": container["image"], "imageID": "", "restartCount": 0, "ready": "running" in state}
        told = [{"name": container["name"], "state": state, **rest}]

        def by(pod: dict[str, Any]) -> None:
            ready = {"type": "Ready", "status": "True" if "running" in state else "False"}
            others = [one for one in pod["status"].get("conditions", []) if one["type"] != "Ready"]
            # A budget counts pods that are ready.
            pod["status"] |= {"phase": phase, "containerStatuses": told, "conditions": [*others, ready]}
            if reason:
                pod["status"] |= {"reason": reason, "message": message}

        self.cluster.change("pods", name, by)

    def _remove(self, name: str) -> None:
        self.cluster.finish(name)
        self._forget(name)

    def _forget(self, name: str) -> None:
        self._told.pop(name, None)
        running = self.pods.pop(name, None)
        if running is not None:
            running.process.kill()
            running.process.wait()
            shutil.rmtree(running.folder, ignore_errors=True)
