"""Runs the real Kubernetes control plane on loopback: etcd, API server, scheduler and controllers.

`make engines` builds the programs. Users have tokens and are authorized by RBAC, and every connection uses TLS. It has
no kubelets; see `tests.support.kubernetes_node`. Tests run on it only in `make engines`, which sets the environment
variable HERON_ENGINES.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import yaml

from heronpy.procs.linux import die_with_parent
from tests.support.certificates import make_certificates
from tests.support.leaks import CONTROL_PLANE
from tests.support.rest import Rest
from tests.support.waiting import wait_for
from tests.support.zookeeper import free_ports

PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
TOKEN, ADMIN_TOKEN = "the-token-of-the-tests", "the-token-of-the-operator"
NAMESPACE = "streams"
START_S = 120.0
#: Seconds after which a silent node is not ready.
NODE_GRACE_S = 10
_AUDIT = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}
_TLS_OF_ETCD = ("--cert-file", "--key-file", "--trusted-ca-file")


def missing() -> str:
    """Return why the control plane cannot run on this machine; "" if it can."""
    folder = os.environ.get("HERON_ENGINES", "")
    if not folder:
        return "needs a real Kubernetes control plane; run make engines"
    lacking = [name for name in PROGRAMS if not (Path(folder) / name).exists()]
    lacking += [name for name in ("etcd", "kubectl") if shutil.which(name) is None]
    return f"HERON_ENGINES is {folder}, but there is no {lacking[0]}; run make engines" if lacking else ""


class ControlPlane:
    """The control plane of all tests of a run; `tests.support.kubernetes_real` removes the objects of each test."""

    def __init__(self) -> None:
        self._programs = Path(os.environ["HERON_ENGINES"])
        said = subprocess.run([self._programs / PROGRAMS[0], "--version"], capture_output=True, check=True, text=True)
        numbers = re.search(r"v(\d+)\.(\d+)", said.stdout)
        assert numbers, said.stdout
        self.release = int(numbers[1]), int(numbers[2])
        self.folder = Path(tempfile.mkdtemp(prefix=Path(CONTROL_PLANE).name, dir="/tmp"))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        make_certificates(self.folder)
        self._etcd, self._peers, port = free_ports(3)
        self.url = f"https://127.0.0.1:{port}"
        self.kubeconfig = self._config("kubeconfig", me=TOKEN, stranger="wrong", operator=ADMIN_TOKEN)
        self.admin_config = self._config("admin", admin=ADMIN_TOKEN)
        self._write("tokens.csv", f'{TOKEN},me,1\n{ADMIN_TOKEN},admin,2,"system:masters"\n')
        self._write("audit.yaml", yaml.safe_dump(_AUDIT))
        try:
            self.start("etcd")
            self.start(PROGRAMS[0])
            with Rest(self.url, self.folder / "ca.pem", ADMIN_TOKEN) as rest:
                wait_for(lambda: self._is_ready(rest), START_S, f"the API server ready\n{self.log(PROGRAMS[0])}")
                # These programs exit if the API server does not answer within ten seconds.
                for name in PROGRAMS[1:]:
                    self.start(name)
                self._make_namespace(rest)
        except BaseException:
            self.close()
            raise

    def _write(self, name: str, text: str) -> None:
        descriptor = os.open(self.folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)

    def _config(self, name: str, **users: str) -> Path:
        """Write a kubeconfig; its current context is that of the first user."""
        contexts = {"me": "test", "stranger": "strange"}
        found = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": contexts.get(next(iter(users)), next(iter(users))),
            "clusters": [
                {"name": "real", "cluster": {"server": self.url, "certificate-authority": str(self.folder / "ca.pem")}}
            ],
            "users": [{"name": user, "user": {"token": token}} for user, token in users.items()],
            "contexts": [
                {"name": contexts.get(user, user), "context": {"cluster": "real", "user": user, "namespace": NAMESPACE}}
                for user in users
            ],
        }
        self._write(name, yaml.safe_dump(found))
        return self.folder / name

    def _is_ready(self, rest: Rest) -> bool:
        self.check()
        return rest.is_ready()

    def _make_namespace(self, rest: Rest) -> None:
        """Create the namespace, and wait for its service account, which pods need and a controller creates."""
        rest.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
        wait_for(lambda: rest.find(account), START_S, f"the controllers\n{self.log(PROGRAMS[1])}")

    # ---- processes ------------------------------------------------------------------------------
    def start(self, name: str) -> None:
        program = shutil.which(name) if name == "etcd" else str(self._programs / name)
        assert program
        parent = os.getpid()
        with open(self.folder / f"{name}.log", "ab") as log:
            self._processes[name] = subprocess.Popen(
                [program, *self._flags(name)],
                cwd=self.folder,
                env={"PATH": os.environ["PATH"], "HOME": str(self.folder), "TMPDIR": str(self.folder)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=lambda: die_with_parent(signal.SIGKILL, parent),
            )

    def stop(self, name: str) -> None:
        self._processes[name].kill()
        self._processes[name].wait()

    def signal(self, name: str, signum: int) -> None:
        self._processes[name].send_signal(signum)

    def check(self) -> None:
        """Raise an error if one of the processes has ended by itself."""
        for name, process in self._processes.items():
            assert process.poll() is None, f"{name} has ended: {self.log(name)}"

    def log(self, name: str) -> str:
        file = self.folder / f"{name}.log"
        return file.read_text(errors="replace")[-3000:] if file.exists() else ""

    def close(self) -> None:
        for process in reversed(self._processes.values()):
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _flags(self, name: str) -> list[str]:
        ca, key = str(self.folder / "ca.pem"), str(self.folder / "ca.key")
        etcd = f"https://127.0.0.1:{self._etcd}"
        if name == "etcd":
            return [
                f"--data-dir={self.folder / 'etcd'}",
                *(f"{flag}={file}" for flag, file in zip(_TLS_OF_ETCD, (ca, key, ca), strict=True)),
                "--client-cert-auth",
                f"--listen-client-urls={etcd}",
                f"--advertise-client-urls={etcd}",
                f"--listen-peer-urls=http://127.0.0.1:{self._peers}",
                "--unsafe-no-fsync",
            ]
        if name == "kube-apiserver":
            return [
                f"--etcd-servers={etcd}",
                f"--etcd-cafile={ca}",
                f"--etcd-certfile={ca}",
                f"--etcd-keyfile={key}",
                "--bind-address=127.0.0.1",
                f"--secure-port={self.url.rpartition(':')[2]}",
                f"--tls-cert-file={ca}",
                f"--tls-private-key-file={key}",
                "--authorization-mode=RBAC",
                f"--token-auth-file={self.folder / 'tokens.csv'}",
                "--endpoint-reconciler-type=none",
                "--service-cluster-ip-range=10.96.0.0/24",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-signing-key-file={key}",
                f"--service-account-key-file={key}",
                f"--audit-policy-file={self.folder / 'audit.yaml'}",
                f"--audit-log-path={self.folder / 'audit.log'}",
            ]
        flags = [
            f"--kubeconfig={self.folder / 'admin'}",
            "--bind-address=127.0.0.1",
            "--secure-port=0",
            "--leader-elect=false",
        ]
        # Disable the port without TLS, which later releases no longer have.
        flags += ["--port=0"] if self.release < (1, 24) else []
        if name == "kube-controller-manager":
            flags += [
                f"--service-account-private-key-file={key}",
                f"--root-ca-file={ca}",
                "--node-monitor-period=1s",
                f"--node-monitor-grace-period={NODE_GRACE_S}s",
                "--pvclaimbinder-sync-period=1s",
            ]
        return flags
