"""A store of objects that answers like the API server of Kubernetes, on loopback with TLS and a token.

It is for tests of faults of the server, such as lost answers, outdated lists and refusals. Decisions of Kubernetes
(placement, quotas, admission, drains, lost nodes, port forwarding) are tested on its real control plane
(`tests.support.control_plane`). The kubelets of `tests.support.kubernetes_node` run the pods of both as processes.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
import ssl
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import yaml

from tests.support.certificates import make_certificates

TOKEN, ADMIN_TOKEN = "the-token-of-the-tests", "the-token-of-the-operator"
NAMESPACE = "streams"
KINDS = ("pods", "secrets", "poddisruptionbudgets", "nodes")
TICK_S = 0.03
_PATH = re.compile(r"/(?:api/v1|apis/policy/v1)(?:/namespaces/([^/]+))?/([a-z]+)(?:/([^/]+))?(?:/([a-z]+))?")


class RefusedError(Exception):
    """An answer with an error status."""

    def __init__(self, status: int, reason: str, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.body = {
            "kind": "Status", "status": "Failure", "code": status, "reason": reason, "message": message,
            "details": {"kind": kind},
        }  # fmt: skip


@dataclass
class Fault:
    """A fault that affects the next `times` matching requests."""

    method: str
    path: str
    status: int
    message: str = "it is a fault of the test"
    reason: str = ""
    times: int = 1
    #: Whether the request is performed before the fault, so that only its answer is lost.
    after: bool = False
    hit: int = field(default=0)


def timestamp(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Cluster:
    """The objects of the cluster; `env` has the environment variables that the engine needs."""

    #: Whether pods have a condition with the reason of their end, as since release 1.26.
    tells_disruption = True

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hpk-", dir="/tmp"))
        self.changed = threading.Condition(threading.RLock())
        self.objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.namespaces = {NAMESPACE, "default"}
        #: Version of the last change, and version of the oldest kept event.
        self.version, self.oldest = 100, 0
        self.events: list[tuple[int, str, str, dict[str, Any]]] = []
        self.faults: list[Fault] = []
        #: Actions that the tests' user may not perform, as "verb resource".
        self.forbidden: set[str] = set()
        self.requests: list[str] = []
        self.tick_s = TICK_S
        self.log_of: Callable[[str], bytes] = lambda name: b""
        self._over = threading.Event()
        make_certificates(self.folder)
        self._server = TlsServer(self, _Handler)
        self._serve = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._control = threading.Thread(target=self._run, daemon=True)
        self.kubeconfig = self.folder / "kubeconfig"
        self._write_kubeconfig()
        self.env = {"KUBECONFIG": str(self.kubeconfig)}
        self._serve.start()
        self._control.start()

    def _write_kubeconfig(self) -> None:
        server = {"server": self.url, "certificate-authority": str(self.folder / "ca.pem")}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "fake", "cluster": server}],
            "users": [
                {"name": "me", "user": {"token": TOKEN}},
                {"name": "stranger", "user": {"token": "wrong"}},
                {"name": "operator", "user": {"token": ADMIN_TOKEN}},
            ],
            "contexts": [
                {"name": "test", "context": {"cluster": "fake", "user": "me", "namespace": NAMESPACE}},
                {"name": "strange", "context": {"cluster": "fake", "user": "stranger", "namespace": NAMESPACE}},
                {"name": "operator", "context": {"cluster": "fake", "user": "operator", "namespace": NAMESPACE}},
            ],
        }
        self.kubeconfig.write_text(yaml.safe_dump(config))

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._over.set()
        with self.changed:
            self.changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._control.join(10)
        self._serve.join(10)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def over(self) -> bool:
        return self._over.is_set()

    # ---- objects ------------------------------------------------------------------------------
    def put(self, kind: str, found: dict[str, Any], event: str = "MODIFIED") -> dict[str, Any]:
        """Store an object with a new version; call with the lock held."""
        metadata = found["metadata"]
        self.version += 1
        metadata["resourceVersion"] = str(self.version)
        key = kind, metadata.get("namespace", ""), metadata["name"]
        if event == "DELETED":
            self.objects.pop(key, None)
        else:
            self.objects[key] = found
        self.events.append((self.version, event, kind, copy.deepcopy(found)))
        self.changed.notify_all()
        return found

    def all(self, kind: str) -> list[dict[str, Any]]:
        with self.changed:
            return [copy.deepcopy(found) for (one, _, _), found in sorted(self.objects.items()) if one == kind]

    def names(self, kind: str) -> list[str]:
        return [one["metadata"]["name"] for one in self.all(kind)]

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        with self.changed:
            found = self.objects.get((kind, "" if kind == "nodes" else NAMESPACE, name))
            return copy.deepcopy(found) if found is not None else None

    def change(self, kind: str, name: str, by: Callable[[dict[str, Any]], None]) -> None:
        """Change an object, unless it has been removed."""
        with self.changed:
            found = self.objects.get((kind, "" if kind == "nodes" else NAMESPACE, name))
            if found is not None:
                found = copy.deepcopy(found)
                by(found)
                self.put(kind, found)

    def forget_events(self) -> None:
        """End all watches, and refuse versions before the current one as too old."""
        with self.changed:
            self.version += 1
            self.oldest = self.version
            self.events.clear()
            self.changed.notify_all()

    def add_node(self, node: dict[str, Any]) -> None:
        with self.changed:
            self.put("nodes", node, "ADDED")

    def lose_node(self, name: str) -> None:
        """Do nothing, because this store does not detect silent nodes."""

    def finish(self, name: str) -> None:
        """Confirm the end of a pod, as its kubelet does."""
        with self.changed:
            found = self.objects.get(("pods", NAMESPACE, name))
            if found is not None:
                self.put("pods", found, "DELETED")

    # ---- what others do ------------------------------------------------------------------------
    def condition(self, name: str, reason: str, message: str = "") -> None:
        """Set the condition that names why the cluster is going to end a pod."""

        def by(pod: dict[str, Any]) -> None:
            told = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
            pod["status"].setdefault("conditions", []).append(told)

        self.change("pods", name, by)

    def delete(self, kind: str, name: str, grace_s: int | None) -> dict[str, Any]:
        """Delete an object: gracefully for a pod on a node, immediately with a grace period of 0."""
        with self.changed:
            found = self.objects.get((kind, NAMESPACE, name))
            if found is None:
                raise RefusedError(404, "NotFound", f'{kind} "{name}" not found', kind)
            spec = found.get("spec", {})
            if kind != "pods" or grace_s == 0 or not spec.get("nodeName"):
                self.put(kind, found, "DELETED")
                return found
            grace_s = spec.get("terminationGracePeriodSeconds", 30) if grace_s is None else grace_s
            due = time.time() + grace_s
            metadata = found["metadata"]
            if not metadata.get("deletionTimestamp") or grace_s < metadata["deletionGracePeriodSeconds"]:
                metadata["deletionTimestamp"] = timestamp(due)
                metadata["deletionGracePeriodSeconds"] = grace_s
                self.put(kind, found)
            return found

    # ---- requests ------------------------------------------------------------------------------
    def create(self, kind: str, namespace: str, body: dict[str, Any], dry: bool) -> dict[str, Any]:
        if namespace not in self.namespaces:
            raise RefusedError(404, "NotFound", f'namespaces "{namespace}" not found', "namespaces")
        found = copy.deepcopy(body)
        metadata = found["metadata"]
        name = metadata["name"]
        with self.changed:
            if (kind, namespace, name) in self.objects:
                raise RefusedError(409, "AlreadyExists", f'{kind} "{name}" already exists', kind)
            metadata |= {"namespace": namespace, "uid": str(uuid.uuid4()), "creationTimestamp": timestamp(time.time())}
            if kind == "pods":
                found["status"] = {"phase": "Pending", "conditions": []}
            return found if dry else self.put(kind, found, "ADDED")

    def apply(self, kind: str, namespace: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
        with self.changed:
            known = self.objects.get((kind, namespace, name))
            if known is None:
                return self.create(kind, namespace, body, False)
            found = {**copy.deepcopy(known), "spec": body["spec"]}
            found["metadata"]["ownerReferences"] = body["metadata"].get("ownerReferences", [])
            return self.put(kind, found)

    # ---- scheduler and collector -----------------------------------------------------------------
    def _run(self) -> None:
        while not self._over.wait(TICK_S):
            with self.changed:
                self._schedule()
                self._collect()

    def _schedule(self) -> None:
        """Place a pod on the node with the fewest pods."""
        pods = [one for (kind, _, _), one in self.objects.items() if kind == "pods"]
        nodes = [name for kind, _, name in self.objects if kind == "nodes"]
        for pod in pods:
            if not pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp") and nodes:
                taken = Counter(one["spec"].get("nodeName") for one in pods)
                pod["spec"]["nodeName"] = min(nodes, key=lambda name: (taken[name], name))
                self.put("pods", pod)

    def _collect(self) -> None:
        """Remove objects whose owners have all been removed."""
        uids = {one["metadata"]["uid"] for (kind, _, _), one in self.objects.items() if kind == "pods"}
        for (kind, _, _), found in [*self.objects.items()]:
            owners = [one["uid"] for one in found["metadata"].get("ownerReferences", [])]
            if owners and not uids.intersection(owners):
                self.put(kind, found, "DELETED")


class TlsServer(ThreadingHTTPServer):
    """Serves a cluster on loopback with the certificates of its folder."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, cluster: Any, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.cluster = cluster
        self.connections: set[Any] = set()
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(cluster.folder / "ca.pem", cluster.folder / "ca.key")

    def get_request(self) -> Any:
        link, address = super().get_request()
        link.settimeout(60)
        found = self._tls.wrap_socket(link, server_side=True, do_handshake_on_connect=False)
        self.connections.add(found)
        return found, address

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        with suppress(OSError):
            request.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        return  # disconnecting clients are part of the tests

    def server_close(self) -> None:
        super().server_close()
        for one in [*self.connections]:
            with suppress(OSError):
                one.shutdown(2)
            with suppress(OSError):
                one.close()


class TlsHandler(BaseHTTPRequestHandler):
    """A connection that sends complete answers."""

    protocol_version = "HTTP/1.1"
    server: TlsServer

    def log_message(self, format: str, *args: Any) -> None:
        return

    def send(self, status: int, found: Any, kind: str = "application/json") -> None:
        text = found if isinstance(found, bytes) else json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


class _Handler(TlsHandler):
    def do_GET(self) -> None:
        self._answer()

    do_POST = do_DELETE = do_PATCH = do_GET

    def _answer(self) -> None:
        cluster = self.server.cluster
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query))
        cluster.requests.append(f"{self.command} {self.path}")
        try:
            scheme, _, token = (self.headers.get("authorization") or "").partition(" ")
            if scheme.lower() != "bearer" or token not in (TOKEN, ADMIN_TOKEN):
                raise RefusedError(401, "Unauthorized", "Unauthorized")
            fault = self._fault(cluster, url.path)
            if fault is not None and not fault.after:
                raise RefusedError(fault.status, fault.reason, fault.message)
            if query.get("watch"):
                self._watch(cluster, query)
                return
            found = self._do(cluster, url.path, query, body, token == ADMIN_TOKEN)
            if fault is not None:
                self.close_connection = True
                self.connection.shutdown(2)
                return
            self.send(200, found)
        except RefusedError as error:
            self.send(error.status, error.body)

    def _fault(self, cluster: Cluster, path: str) -> Fault | None:
        for fault in cluster.faults:
            if fault.hit < fault.times and fault.method == self.command and re.search(fault.path, path):
                fault.hit += 1
                return fault
        return None

    def _do(self, cluster: Cluster, path: str, query: dict[str, str], body: dict[str, Any], all_allowed: bool) -> Any:
        if path == "/version":
            return {"major": "1", "minor": "31+", "gitVersion": "v1.31.0-fake"}
        if path.endswith("selfsubjectaccessreviews"):
            asked = body["spec"]["resourceAttributes"]
            kind = "/".join(part for part in (asked["resource"], asked["subresource"]) if part)
            here = asked.get("namespace") == NAMESPACE and f"{asked['verb']} {kind}" not in cluster.forbidden
            return {"status": {"allowed": all_allowed or here}}
        match = _PATH.fullmatch(path)
        if match is None or match[2] not in KINDS:
            raise RefusedError(404, "NotFound", "the server could not find the requested resource")
        namespace, kind, name, part = match[1] or "", match[2], match[3], match[4]
        verb = {"GET": "get" if name else "list", "POST": "create", "DELETE": "delete", "PATCH": "patch"}[self.command]
        if not all_allowed and (namespace not in ("", NAMESPACE) or f"{verb} {kind}" in cluster.forbidden):
            said = f'{kind} is forbidden: User "me" cannot {verb} resource "{kind}" in API group "" in the namespace'
            raise RefusedError(403, "Forbidden", f'{said} "{namespace}"', kind)
        if verb == "create":
            return cluster.create(kind, namespace, body, query.get("dryRun") == "All")
        if verb == "patch":
            return cluster.apply(kind, namespace, name, body)
        if verb == "delete":
            grace = query.get("gracePeriodSeconds")
            return cluster.delete(kind, name, int(grace) if grace is not None else None)
        if verb == "list":
            return _page(cluster, kind, query)
        found = cluster.get(kind, name)
        if found is None:
            raise RefusedError(404, "NotFound", f'{kind} "{name}" not found', kind)
        return log_part(cluster.log_of(name), query) if part == "log" else found

    def _watch(self, cluster: Cluster, query: dict[str, str]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        at, until = int(query["resourceVersion"]), time.monotonic() + int(query["timeoutSeconds"])
        with suppress(OSError):
            while time.monotonic() < until and not cluster.over:
                with cluster.changed:
                    new = [one for one in cluster.events if one[0] > at and one[2] == "pods"]
                    too_old = at < cluster.oldest
                    if not new and not too_old:
                        cluster.changed.wait(0.2)
                if too_old:
                    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
                    self._piece({"type": "ERROR", "object": gone})
                    break
                for version, event, _, found in new:
                    at = version
                    if _selected(found, query.get("labelSelector", "")):
                        self._piece({"type": event, "object": found})
            self._piece(None)
        self.close_connection = True

    def _piece(self, found: dict[str, Any] | None) -> None:
        text = json.dumps(found).encode() + b"\n" if found is not None else b""
        self.wfile.write(f"{len(text):x}\r\n".encode() + text + b"\r\n")
        self.wfile.flush()


def log_part(log: bytes, query: dict[str, str]) -> bytes:
    """Return the first `limitBytes` bytes of the last `tailLines` lines, as a kubelet does."""
    lines = log.splitlines(keepends=True)
    if "tailLines" in query:
        lines = lines[len(lines) - min(len(lines), int(query["tailLines"])) :]
    return b"".join(lines)[: int(query.get("limitBytes", len(log)))]


def _selected(found: dict[str, Any], selector: str) -> bool:
    labels = found["metadata"].get("labels", {})
    rules = [one.partition("=") for one in selector.split(",") if one]
    return all(key in labels and (not equals or labels[key] == value) for key, equals, value in rules)


def _page(cluster: Cluster, kind: str, query: dict[str, str]) -> dict[str, Any]:
    """Return a page of a list; the continue token is `version:index`."""
    found = [one for one in cluster.all(kind) if _selected(one, query.get("labelSelector", ""))]
    version, at = cluster.version, 0
    if query.get("continue"):
        version, at = map(int, query["continue"].split(":"))
        if version < cluster.oldest:
            raise RefusedError(410, "Expired", "The provided continue parameter is too old")
    limit = int(query.get("limit") or len(found) or 1)
    metadata = {"resourceVersion": str(version)}
    if at + limit < len(found):
        metadata["continue"] = f"{version}:{at + limit}"
    return {"kind": "List", "metadata": metadata, "items": found[at : at + limit]}


def kubernetes(nodes: int = 2, cpu: str = "4", memory: str = "2Gi") -> AbstractContextManager[tuple[Cluster, Any]]:
    """Yield a cluster with nodes, whose kubelets run pods as processes."""
    return with_nodes(Cluster(), nodes, cpu, memory)


@contextmanager
def with_nodes(cluster: Any, nodes: int, cpu: str, memory: str) -> Iterator[tuple[Any, Any]]:
    """Yield the cluster and the kubelets of this number of nodes; close both at the end."""
    from tests.support.kubernetes_node import Kubelets

    with closing(cluster), closing(Kubelets(cluster)) as kubelets:
        for number in range(1, nodes + 1):
            kubelets.add(f"n{number}", cpu, memory)
        yield cluster, kubelets
