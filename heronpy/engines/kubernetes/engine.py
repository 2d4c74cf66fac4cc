"""Kubernetes as an implementation of the engine contract."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from heronpy.engines.contract import (
    EngineAwayError,
    EngineError,
    EngineFatalError,
    EnginePhase,
    Explained,
    Found,
    NodeSize,
    Request,
    Seen,
    Traits,
)
from heronpy.engines.kubernetes import nodes as nodes_
from heronpy.engines.kubernetes.api_server import NEEDED, ExistsError, ExpiredError, GoneError
from heronpy.engines.kubernetes.client import APPLIED, INSTALL, MISSING, Api
from heronpy.engines.kubernetes.following import Following
from heronpy.engines.kubernetes.known import GONE_S, KEPT_S, KnownPods
from heronpy.engines.kubernetes.names import CONTAINER, budget_name, pod_name, selector
from heronpy.engines.kubernetes.pods import PodOptions, budget, pod, secret
from heronpy.engines.kubernetes.seen import (
    count_topologies,
    items,
    name_of,
    node_of,
    of,
    text,
    uid_of,
    words_of,
)
from heronpy.engines.shared import address_towards

POLL_S = 2.0
PAGE = 250
#: Maximum number of attempts to read a list that expires before its last page.
LIST_TRIES = 3
#: Maximum number of ended pods that one `list` call removes.
TIDIED_MAX = 50
SECRET_TRIES = 3
#: A container that is missing for this time, in seconds, counts as removed, not as being replaced.
FEWER_S = 60.0
_TAIL_LINES, _TAIL_BYTES = 50, 4096
_LOG_BYTES = 1 << 20
#: The oldest tested release.
RELEASE_MIN = (1, 20)


class KubernetesEngine:
    """The pods of one topology in one namespace. Each container runs `command`.

    The folder HERON_JOIN_TOKEN_FOLDER in the container contains the join token. The first list that contains an ended
    pod records how the pod ended, and the next list removes the pod.
    """

    traits = Traits(keeps_apart=True, keeps_files=False)

    def __init__(
        self, topology_id: str, options: PodOptions, command: Sequence[str], api: Api, poll_s: float = POLL_S
    ) -> None:
        self._topology_id = topology_id
        self._options = options
        self._command = tuple(command)
        self._api = api
        self._poll_s = poll_s
        #: Guards the records, which the thread of `watch` changes as well.
        self._lock = threading.Lock()
        self._known = KnownPods(GONE_S)
        #: Number of lists so far, and the version of the last one.
        self._listed = 0, ""
        #: Map from the name of a pod that may lack its secret, and so cannot start, to its request and creation time.
        self._halves: dict[str, tuple[Request, float]] = {}
        #: Versions of budgets that the server may support: 1.21 supports the first, 1.20 only the second.
        self._policies = ["v1", "v1beta1"]
        #: Number of containers in the disruption budget, and the time since which there have been fewer containers.
        self._containers = 0
        self._fewer_since: float | None = None

    def _path(self, kind: str = "pods", name: str = "") -> str:
        return f"/api/v1/namespaces/{self._api.namespace}/{kind}" + (f"/{name}" if name else "")

    # ---- commands ---------------------------------------------------------------------------------
    def submit(self, requests: Sequence[Request]) -> dict[tuple[int, int], str]:
        """Create a pod and its secret for each request; if one is refused, remove all of them. See `Engine.submit`."""
        others = self._nodes() if any(one.avoid for one in requests) else []
        done: dict[tuple[int, int], str] = {}
        for one in requests:
            try:
                made = self._create(one, bool(one.avoid) and nodes_.may_avoid(one, others))
            except EngineFatalError:
                with suppress(EngineError):
                    for name in done.values():
                        self._delete(name, 1)
                raise
            done[one.container, one.submission] = name_of(made)
            with self._lock:
                seen = Seen(name_of(made), one.container, one.submission, EnginePhase.QUEUED, avoid=one.avoid)
                self._known.made(seen, uid_of(made))
        self._keep_budget()
        return done

    def _create(self, request: Request, must_avoid: bool) -> Mapping[str, Any]:
        """Create the pod, and then its secret, because the pod owns the secret; the kubelet waits for the secret."""
        name = pod_name(request.topology_id, request.container, request.submission)
        try:
            made: Mapping[str, Any] = self._api.call(
                "POST", self._path(), body=pod(request, self._options, self._command, must_avoid)
            )
        except ExistsError:
            made = self._api.call("GET", self._path(name=name))
        except EngineAwayError:
            self._halves[name] = request, time.monotonic()
            raise
        try:
            self._complete(request, uid_of(made))
        except EngineAwayError:
            self._halves[name] = request, time.monotonic()
            raise
        except EngineFatalError:
            with suppress(EngineError):
                self._delete(name, 1)
            raise
        return made

    def _complete(self, request: Request, uid: str) -> None:
        for left in reversed(range(SECRET_TRIES)):
            try:
                self._api.call("POST", self._path("secrets"), body=secret(request, uid))
                return
            except ExistsError:
                return
            except EngineAwayError:
                if not left:
                    raise

    def cancel(self, engine_ids: Sequence[str], grace_s: float) -> None:
        for name in engine_ids:
            self._delete(name, max(1, math.ceil(grace_s)))

    def _delete(self, name: str, grace_s: int | None = None) -> None:
        """Delete a pod. A pod without a node disappears immediately."""
        query = {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        try:
            left = self._api.call("DELETE", self._path(name=name), query)
        except GoneError:
            return
        self._halves.pop(name, None)
        if text(left, "kind") == "Pod" and not node_of(left):
            with self._lock:
                self._known.on_unplaced(name, time.monotonic())

    def _keep_budget(self, again: bool = True) -> None:
        """Maintain a disruption budget that lets the cluster evict only one container at a time.

        The budget counts a container that is being replaced. It does not count a container that has been away for
        `FEWER_S`, because that container was removed from the topology. Pods also run without a budget.
        """
        now = time.monotonic()
        with self._lock:
            alive = self._known.alive()
        count = len({container for container, _, _ in alive})
        self._fewer_since = (self._fewer_since or now) if count < self._containers else None
        is_less = self._fewer_since is not None and now - self._fewer_since >= FEWER_S
        if not alive or not self._policies or not (again or is_less):
            return  # the budget is deleted with the last pod
        self._containers = count if is_less else max(count, self._containers)
        while self._policies:
            [version, *older] = self._policies
            wanted = budget(self._topology_id, self._containers, [one[1:] for one in alive], version)
            space = f"/apis/{wanted['apiVersion']}/namespaces/{self._api.namespace}"
            path = f"{space}/poddisruptionbudgets/{budget_name(self._topology_id)}"
            try:
                self._api.call("PATCH", path, {"fieldManager": "heronpy", "force": "true"}, wanted, APPLIED)
            except GoneError:
                self._policies = older
                continue
            except EngineError:
                pass  # the next submission tries again
            return

    # ---- lists ------------------------------------------------------------------------------------
    def _pods(self, selected: str) -> tuple[list[Mapping[str, Any]], str]:
        """All pages of the list of pods, and the list's version. Starts again if the version expires between pages."""
        for left in reversed(range(LIST_TRIES)):
            try:
                found: list[Mapping[str, Any]] = []
                after = ""
                while True:
                    query: dict[str, str | int] = {"labelSelector": selected, "limit": PAGE}
                    answer = self._api.call("GET", self._path(), {**query, "continue": after} if after else query)
                    if not isinstance(answer.get("items"), list):
                        raise EngineAwayError("the API server answered with a list that has no items")
                    found += items(answer, "items")
                    after = text(of(answer, "metadata"), "continue")
                    if not after:
                        return found, text(of(answer, "metadata"), "resourceVersion")
            except ExpiredError:
                if not left:
                    raise
        raise AssertionError("unreachable")

    def list(self) -> Sequence[Seen]:
        """The existing pods, and how vanished pods ended. Removes ended pods that an earlier list contained."""
        pods, version = self._pods(selector(self._topology_id))
        now = time.monotonic()
        with self._lock:
            self._listed = self._listed[0] + 1, version
            found = self._known.on_list(pods, time.time(), now)
        self._tidy(found.over[:TIDIED_MAX], found.stay, now)
        self._keep_budget(again=False)
        return found.seen

    def _tidy(self, ended: Sequence[str], alive: Mapping[str, str], now: float) -> None:
        """Remove ended pods and create missing secrets. If this fails, the next list tries again."""
        with suppress(EngineError):
            for name in ended:
                self._delete(name)
            for name, (request, since) in [*self._halves.items()]:
                if name in alive:
                    try:
                        self._complete(request, alive[name])
                    except EngineFatalError:
                        self._delete(name, 1)
                        continue
                if name in alive or now - since > KEPT_S:
                    del self._halves[name]

    def _on_event(self, kind: str, found: Mapping[str, Any]) -> None:
        with self._lock:
            self._known.on_event(kind, found, time.time(), time.monotonic())

    @contextmanager
    def watch(self, changed: Callable[[], None]) -> Iterator[None]:
        """While the context is open, call `changed` as soon as the API server reports a change."""
        following = Following(
            self._api, self._path, selector(self._topology_id), lambda: self._listed, self._on_event, changed,
            self._poll_s,
        )  # fmt: skip
        following.start()
        try:
            yield
        finally:
            following.close()

    def ready(self, hosts: Collection[str]) -> set[str]:
        return {nodes_.name_of(node) for node in self._nodes()} & {*hosts}

    def explain(self, engine_id: str) -> Explained:
        """Why a pod is waiting, as reported by the Kubernetes scheduler or the kubelet."""
        try:
            return Explained(words_of(self._api.call("GET", self._path(name=engine_id))))
        except GoneError:
            return Explained("Kubernetes no longer lists the pod")

    def termination_report(self, engine_id: str) -> str:
        """The last output of a pod, read from its log, or from its last status if the pod is gone."""
        if not re.fullmatch(r"[a-z0-9.\-]+", engine_id):
            return ""
        # `limitBytes` cuts off the end of the text, so the limit is large. It only limits extremely long lines.
        query: dict[str, str | int] = {"container": CONTAINER, "tailLines": _TAIL_LINES, "limitBytes": _LOG_BYTES}
        try:
            found = self._api.text("GET", f"{self._path(name=engine_id)}/log", query)
            return found[-_TAIL_BYTES:].decode(errors="replace")
        except EngineError:
            with self._lock:
                return self._known.printed(engine_id)

    def look_command(self) -> str:
        return f"kubectl get pods -n {self._api.namespace} -l {selector(self._topology_id)}"

    def topologies(self) -> dict[str, int]:
        """The number of pods for each topology in the namespace; see `Engine.topologies`."""
        return count_topologies(self._pods(selector())[0], time.time())

    # ---- the cluster ------------------------------------------------------------------------------
    def reach(self) -> tuple[str, ...]:
        """This host's address on the route to the API server."""
        server = urlsplit(self._api.server)
        return (address_towards(f"{server.hostname}:{server.port or 443}"),)

    def _nodes(self) -> Sequence[Mapping[str, Any]]:
        """The nodes that pods may use; empty if listing nodes is not permitted."""
        try:
            answer = self._api.call("GET", "/api/v1/nodes", {"limit": 5000})
        except EngineFatalError:
            return []
        return nodes_.usable(items(answer, "items"), self._options.template)

    def node_sizes(self) -> Sequence[NodeSize]:
        """The resources that pods may use on the nodes; empty if listing nodes is not permitted."""
        return nodes_.sizes(self._nodes())

    def check(self) -> Sequence[Found]:
        """Check credentials, release and permissions, and submit a pod as a dry run. See `Engine.check`."""
        return check(self._api, self._options, self._topology_id, self._nodes)


def check(
    api: Api, options: PodOptions, topology_id: str, nodes: Callable[[], Sequence[Mapping[str, Any]]]
) -> list[Found]:
    """The checks for `heron cluster check`, which create no objects."""
    if find_spec("kubernetes") is None:
        return [Found("package", False, MISSING, INSTALL)]
    try:
        server, namespace = api.server, api.namespace
    except EngineError as error:
        return [Found("credentials", False, str(error), "check KUBECONFIG and heron.kubernetes.context")]
    found = [Found("credentials", True, f"namespace {namespace} of {server}")]
    try:
        found.append(_release(api))
        if found[-1].ok:
            found += [_rights(api, namespace), _pod(api, namespace, options, topology_id), _nodes(nodes())]
    except EngineError as error:
        found.append(Found("API server", False, str(error), "check that kubectl works with this context"))
    return found


def _release(api: Api) -> Found:
    said = api.call("GET", "/version")
    numbers = [re.match(r"\d+", text(said, key)) for key in ("major", "minor")]
    release = tuple(int(one[0]) if one else 0 for one in numbers)
    least = ".".join(map(str, RELEASE_MIN))
    return Found("release", release >= RELEASE_MIN, text(said, "gitVersion"), f"{least} or newer is needed")


def _rights(api: Api, namespace: str) -> Found:
    lacking = [f"{verb} {kind}" for verb, group, kind in NEEDED if not _may(api, namespace, verb, group, kind)]
    if lacking:
        fix = "apply the Role that heron cluster manifest prints"
        return Found("permissions", False, f"you may not {', '.join(lacking)} in namespace {namespace}", fix)
    return Found("permissions", True, "pods, their logs, secrets, disruption budgets")


def _may(api: Api, namespace: str, verb: str, group: str, resource: str) -> bool:
    kind, _, part = resource.partition("/")
    asked = {"namespace": namespace, "verb": verb, "group": group, "resource": kind, "subresource": part}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    answer = api.call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=body)
    return of(answer, "status").get("allowed") is True


def _pod(api: Api, namespace: str, options: PodOptions, topology_id: str) -> Found:
    """Check whether the server would accept a pod, considering namespace, quota and admission."""
    size = Request(topology_id, 0, 1, cpu=0.1, ram_bytes=64 << 20)
    path = f"/api/v1/namespaces/{namespace}/pods"
    try:
        api.call("POST", path, {"dryRun": "All"}, pod(size, options, ["true"], False))
    except (EngineFatalError, GoneError) as error:
        return Found("pod", False, str(error), "correct the namespace, its quota, or heron.kubernetes.pod_template")
    return Found("pod", True, f"namespace {namespace} would accept a pod with these settings")


def _nodes(found: Sequence[Mapping[str, Any]]) -> Found:
    if not found:
        return Found(
            "nodes", True, "you may not list nodes, so sizes are not checked, and hosts are avoided only if possible"
        )
    biggest = max(nodes_.sizes(found), key=lambda size: (size.ram_bytes, size.cpu), default=None)
    largest = f", the largest with {biggest.cpu:g} cores" if biggest else ""
    return Found("nodes", True, f"pods may use {len(found)} nodes{largest}")
