"""A real control plane with the interface of `tests.support.kubernetes.Cluster`.

Each test uses one object. Closing it removes everything that it has created, and restores the minimal Role that the
engine needs.
"""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from heronpy.engines.contract import EngineAwayError, EngineError, EngineFatalError
from heronpy.engines.kubernetes.api_server import NEEDED, ExistsError, GoneError
from tests.support.control_plane import ADMIN_TOKEN, NAMESPACE, ControlPlane
from tests.support.kubernetes import TlsHandler, TlsServer, log_part, with_nodes
from tests.support.kubernetes_forward import forward
from tests.support.rest import Rest
from tests.support.waiting import wait_for

CHANGE_S = 60.0
HEARTBEAT_S = 1.0
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
_STATUS = "application/strategic-merge-patch+json"
_NODES = ("list", "", "nodes")
#: Rights outside the scheduler's Role, for a user on a host that cannot reach the pods.
_FORWARD = (("get", "", "pods/portforward"), ("create", "", "pods/portforward"))


class RealCluster:
    """The objects of the tests' namespace, the nodes, and the actions of an operator."""

    tick_s = 0.1
    #: Whether pods have a condition with the reason of their end, as since release 1.26.
    tells_disruption: bool

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.folder, self.url = plane.folder, plane.url
        self.env = {"KUBECONFIG": str(plane.kubeconfig)}
        self.tells_disruption = plane.release >= (1, 26)
        self.log_of: Callable[[str], bytes] = lambda name: b""
        self.rest = Rest(plane.url, plane.folder / "ca.pem", ADMIN_TOKEN)
        self._policy = "v1" if plane.release >= (1, 21) else "v1beta1"
        self._nodes: set[str] = set()
        self._forbidden: set[str] = set()
        self._pods_max: int | None = None
        self._denied = ""
        self._over = threading.Event()
        self._requests_from = len(self._audited())
        self._admission = TlsServer(self, _Handler)
        self._threads = [
            threading.Thread(target=self._admission.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True),
            threading.Thread(target=self._beat, daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        self._grant()

    def close(self) -> None:
        with self.rest:
            if self._denied:
                self.denied = ""
            if self._pods_max is not None:
                self.pods_max = None
            self._nodes.clear()
            self._clear()
        self._over.set()
        self._admission.shutdown()
        self._admission.server_close()
        for thread in self._threads:
            thread.join(10)
        self.plane.check()

    def _clear(self) -> None:
        """Delete all objects by force, so that none waits for an ended kubelet."""
        spaced = [
            *("apps/v1 deployments", "apps/v1 replicasets", "v1 pods", "v1 secrets", "v1 configmaps", "v1 services"),
            *("v1 persistentvolumeclaims", f"policy/{self._policy} poddisruptionbudgets"),
        ]
        paths = [f"{_group(version)}/namespaces/{NAMESPACE}/{kind}" for version, kind in map(str.split, spaced)]
        for path in [*paths, "/api/v1/persistentvolumes", "/api/v1/nodes"]:

            def is_empty(path: str = path) -> bool:
                items = self.rest.call("GET", path)["items"]
                left = [one["metadata"] for one in items if not _is_the_clusters(one)]
                for one in left:
                    with suppress(GoneError):
                        self.rest.call("DELETE", f"{path}/{one['name']}?gracePeriodSeconds=0")
                return not left

            wait_for(is_empty, CHANGE_S, f"no {path.rpartition('/')[2]}")

    # ---- objects ------------------------------------------------------------------------------
    def path(self, kind: str, name: str = "") -> str:
        group = f"/apis/policy/{self._policy}" if kind == "poddisruptionbudgets" else "/api/v1"
        space = "" if kind in ("nodes", "persistentvolumes") else f"/namespaces/{NAMESPACE}"
        return f"{group}{space}/{kind}" + (f"/{name}" if name else "")

    def all(self, kind: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.rest.call("GET", self.path(kind))["items"]
        return [one for one in found if not _is_the_clusters(one)]

    def names(self, kind: str) -> list[str]:
        return [one["metadata"]["name"] for one in self.all(kind)]

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        return self.rest.find(self.path(kind, name))

    def change(self, kind: str, name: str, by: Callable[[dict[str, Any]], None]) -> None:
        """Change an object, unless it has been removed."""

        def put() -> bool:
            found = self.get(kind, name)
            if found is None:
                return True
            wanted = copy.deepcopy(found)
            by(wanted)
            try:
                if {**wanted, "status": None} != {**found, "status": None}:
                    made = self.rest.call("PUT", self.path(kind, name), wanted)
                    wanted["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"]
                if wanted.get("status") != found.get("status"):
                    self.rest.call("PUT", f"{self.path(kind, name)}/status", wanted)
            except GoneError:
                return True
            except EngineAwayError as error:  # another client was faster
                if "modified" not in str(error):
                    raise
                return False
            return True

        wait_for(put, CHANGE_S, f"{kind} {name} changed")

    def make(self, *objects: dict[str, Any]) -> None:
        """Create objects, like `kubectl create`."""
        for one in objects:
            self.rest.call("POST", self.path(f"{one['kind'].lower()}s"), one)

    # ---- nodes and kubelets -----------------------------------------------------------------------
    def add_node(self, node: dict[str, Any]) -> None:
        name = node["metadata"]["name"]
        status = node["status"]
        status["allocatable"] = {"ephemeral-storage": "100Gi", "pods": "110", **status["allocatable"]}
        status["capacity"] = status["allocatable"]
        status["addresses"] = [{"type": "InternalIP", "address": "127.0.0.1"}]
        status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": self._admission.server_address[1]}}
        self.rest.call("POST", self.path("nodes"), {**node, "apiVersion": "v1", "kind": "Node"})
        self._nodes.add(name)
        self.change("nodes", name, lambda found: found["status"].update(status))

        def is_usable() -> bool:
            found = self.get("nodes", name)
            return found is not None and not found["spec"].get("taints")

        wait_for(is_usable, CHANGE_S, f"node {name} usable")

    def lose_node(self, name: str) -> None:
        """Silence a node: it sends no more heartbeats."""
        self._nodes.discard(name)

    def _beat(self) -> None:
        while not self._over.wait(HEARTBEAT_S):
            for name in sorted(self._nodes):
                ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": _now()}
                with suppress(EngineError):
                    self.rest.call(
                        "PATCH", f"{self.path('nodes', name)}/status", {"status": {"conditions": [ready]}}, _STATUS
                    )

    def finish(self, name: str) -> None:
        """Confirm the end of a pod, as its kubelet does."""
        with suppress(GoneError):
            self.rest.call("DELETE", f"{self.path('pods', name)}?gracePeriodSeconds=0")

    # ---- what the operator does --------------------------------------------------------------------
    def condition(self, name: str, reason: str, message: str = "") -> None:
        """Set the condition that names why a pod is going to end."""
        if not self.tells_disruption:
            return
        told = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
        with suppress(GoneError):
            self.rest.call("PATCH", f"{self.path('pods', name)}/status", {"status": {"conditions": [told]}}, _STATUS)

    def evict(self, name: str) -> None:
        """Evict a pod like `kubectl drain`, and retry while the disruption budget refuses."""
        body = {"apiVersion": f"policy/{self._policy}", "kind": "Eviction", "metadata": {"name": name}}

        def is_evicted() -> bool:
            try:
                self.rest.call("POST", f"{self.path('pods', name)}/eviction", body)
            except GoneError:
                return True
            except EngineAwayError:
                return False
            return True

        wait_for(is_evicted, CHANGE_S, f"the budget letting {name} go")

    def delete(self, kind: str, name: str, grace_s: int | None) -> None:
        query = "" if grace_s is None else f"?gracePeriodSeconds={grace_s}"
        self.rest.call("DELETE", self.path(kind, name) + query)

    @property
    def requests(self) -> list[str]:
        """Return method and path of each request of the tests' user, from the server's audit log."""
        return self._audited()[self._requests_from :]

    def _audited(self) -> list[str]:
        with suppress(FileNotFoundError):
            lines = (self.folder / "audit.log").read_text(errors="replace").rpartition("\n")[0].split("\n")
            found = [json.loads(line) for line in lines if '"username":"me"' in line]
            return [f"{one['verb']} {one['requestURI']}" for one in found]
        return []

    # ---- what our user may do -----------------------------------------------------------------------
    @property
    def forbidden(self) -> set[str]:
        """The actions that the tests' user may not perform, as "verb resource"."""
        return self._forbidden

    @forbidden.setter
    def forbidden(self, wanted: set[str]) -> None:
        self._forbidden = wanted
        self._grant()

    def _grant(self) -> None:
        """Set up the minimal Role, and access from other hosts, without the forbidden rights; wait for the effect."""
        wanted = [*NEEDED, *_FORWARD]
        role = [one for one in wanted if f"{one[0]} {one[2]}" not in self._forbidden]
        nodes = [] if "list nodes" in self._forbidden else [_NODES]
        for kind, rules, space in (
            ("Role", role, f"{_RBAC}/namespaces/{NAMESPACE}"),
            ("ClusterRole", nodes, _RBAC),
        ):
            named = {"metadata": {"name": "heron"}, "apiVersion": "rbac.authorization.k8s.io/v1"}
            given = [{"apiGroups": [group], "resources": [what], "verbs": [verb]} for verb, group, what in rules]
            self._put(f"{space}/{kind.lower()}s", {**named, "kind": kind, "rules": given})
            reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "heron"}
            subjects = [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "me"}]
            bound = {**named, "kind": f"{kind}Binding", "roleRef": reference, "subjects": subjects}
            self._put(f"{space}/{kind.lower()}bindings", bound)
        wait_for(lambda: all(self._may(*one) == (one in [*role, *nodes]) for one in [*wanted, _NODES]), CHANGE_S)

    def _put(self, path: str, body: dict[str, Any]) -> None:
        try:
            self.rest.call("POST", path, body)
        except ExistsError:
            self.rest.call("PUT", f"{path}/{body['metadata']['name']}", body)

    def _may(self, verb: str, group: str, resource: str) -> bool:
        kind, _, part = resource.partition("/")
        asked = {"verb": verb, "group": group, "resource": kind, "subresource": part}
        if resource != "nodes":
            asked["namespace"] = NAMESPACE
        body = {"spec": {"user": "me", "resourceAttributes": asked}}
        answer = self.rest.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
        return bool(answer["status"]["allowed"])

    @property
    def pods_max(self) -> int | None:
        """The quota of the namespace."""
        return self._pods_max

    @pods_max.setter
    def pods_max(self, most: int | None) -> None:
        """Set the quota. Set it to 0 first, because refusals then show that admission has seen the change."""
        self._pods_max = most
        path = self.path("resourcequotas", "small")
        if most is None:
            self.rest.call("DELETE", path)
        for count in dict.fromkeys((0, most)) if most is not None else ():
            quota = {"metadata": {"name": "small"}, "spec": {"hard": {"pods": str(count)}}}
            self._put(self.path("resourcequotas"), quota)
            wait_for(lambda count=count: self._heeds(count), CHANGE_S, "the quota being heeded")

    def _heeds(self, most: int) -> bool:
        found = self.rest.find(self.path("resourcequotas", "small")) or {}
        status = found.get("status", {})
        is_counted = status.get("hard", {}).get("pods") == str(most) and "used" in status
        return is_counted and self._is_refused("exceeded quota") == (most == 0)

    @property
    def denied(self) -> str:
        """The reason with which a webhook refuses each pod; "" if there is no webhook."""
        return self._denied

    @denied.setter
    def denied(self, why: str) -> None:
        self._denied = why
        if self.rest.find(f"{_WEBHOOKS}/policy"):
            self.rest.call("DELETE", f"{_WEBHOOKS}/policy")
        if why:
            self.rest.call("POST", _WEBHOOKS, self._webhook())
        wait_for(lambda: self._is_refused("denied the request") == bool(why), CHANGE_S, "the webhook being heeded")

    def _webhook(self) -> dict[str, Any]:
        import base64

        bundle = base64.b64encode((self.folder / "ca.pem").read_bytes()).decode()
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
        hook = {
            "name": "policy.heronpy.dev",
            "rules": [rule],
            "clientConfig": {"url": f"https://127.0.0.1:{self._admission.server_address[1]}/admit", "caBundle": bundle},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
        }
        return {"metadata": {"name": "policy"}, "webhooks": [hook]}

    def _is_refused(self, words: str) -> bool:
        """Whether the server refuses a pod with these words."""
        container = {"name": "x", "image": "x"}
        pod = {"metadata": {"name": "probe"}, "spec": {"containers": [container]}}
        try:
            self.rest.call("POST", f"{self.path('pods')}?dryRun=All", pod)
        except EngineFatalError as error:
            return words in str(error)
        return False


def _group(version: str) -> str:
    return f"/apis/{version}" if "/" in version else f"/api/{version}"


def _is_the_clusters(found: dict[str, Any]) -> bool:
    """Whether controllers create this object in each namespace."""
    name, kind = found["metadata"]["name"], found.get("type", "")
    return kind == "kubernetes.io/service-account-token" or name == "kube-root-ca.crt"


def _now() -> str:
    from datetime import UTC, datetime

    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class _Handler(TlsHandler):
    """Answers the API server's requests to kubelets (logs and ports of pods) and to the webhook."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        _, what, _, pod, _ = [*url.path.split("/"), "", "", "", ""][:5]
        query = dict(parse_qsl(url.query))
        if what == "containerLogs":
            self.send(200, log_part(self.server.cluster.log_of(pod), query), "text/plain")
        elif what == "portForward":
            self.connection.settimeout(None)  # a silent connection has not ended
            forward(self, int(query["port"]))
        else:
            self.send(404, b"")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        why = self.server.cluster.denied
        answer = {"uid": asked["request"]["uid"], "allowed": not why, "status": {"message": why}}
        self.send(200, {**asked, "request": None, "response": answer})


def real_kubernetes(
    plane: ControlPlane, nodes: int = 2, cpu: str = "4", memory: str = "2Gi"
) -> AbstractContextManager[tuple[RealCluster, Any]]:
    """Yield the control plane with nodes, whose kubelets run pods as processes."""
    return with_nodes(RealCluster(plane), nodes, cpu, memory)


def kubectl(cluster: RealCluster, *words: str, given: str = "") -> str:
    """Run `kubectl` as the operator."""
    import os
    import subprocess

    env = {**os.environ, "KUBECONFIG": str(cluster.plane.admin_config), "HOME": str(cluster.folder)}
    done = subprocess.run(["kubectl", *words], env=env, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"kubectl {words}: {done.stdout}\n{done.stderr}"
    return done.stdout
