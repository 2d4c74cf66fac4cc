"""What a namespace has to offer before a topology is submitted to it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from heronpy.engines.contract import EngineError, EngineFatalError, Found, Request
from heronpy.engines.kubernetes import nodes as nodes_
from heronpy.engines.kubernetes.answers import GoneError
from heronpy.engines.kubernetes.client import INSTALL, MISSING, Api
from heronpy.engines.kubernetes.pods import PodOptions, pod
from heronpy.engines.kubernetes.rights import NEEDED
from heronpy.engines.kubernetes.seen import of, text

#: The oldest release that this was run on.
RELEASE_MIN = (1, 20)


def check(
    api: Api, options: PodOptions, topology_id: str, nodes: Callable[[], Sequence[Mapping[str, Any]]]
) -> list[Found]:
    """Lines of `heron cluster check`; nothing is made."""
    if find_spec("kubernetes") is None:
        return [Found("package", False, MISSING, INSTALL)]
    try:
        server, namespace = api.server, api.namespace
    except EngineError as error:
        return [Found("credentials", False, str(error), "see KUBECONFIG and heron.kubernetes.context")]
    found = [Found("credentials", True, f"namespace {namespace} of {server}")]
    try:
        found.append(_release(api))
        if found[-1].ok:
            found += [_rights(api, namespace), _pod(api, namespace, options, topology_id), _nodes(nodes())]
    except EngineError as error:
        found.append(Found("API server", False, str(error), "see that kubectl works with this context"))
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
    """Whether the server would take a pod: namespace, quota, admission."""
    size = Request(topology_id, 0, 1, cpu=0.1, ram_bytes=64 << 20)
    path = f"/api/v1/namespaces/{namespace}/pods"
    try:
        api.call("POST", path, {"dryRun": "All"}, pod(size, options, ["true"], False))
    except (EngineFatalError, GoneError) as error:
        return Found("pod", False, str(error), "correct the namespace, its quota, or heron.kubernetes.pod_template")
    return Found("pod", True, f"namespace {namespace} would take a pod with these settings")


def _nodes(found: Sequence[Mapping[str, Any]]) -> Found:
    if not found:
        return Found(
            "nodes", True, "they may not be seen: sizes are not checked, and hosts are avoided if possible only"
        )
    biggest = max(nodes_.sizes(found), key=lambda size: (size.ram_bytes, size.cpu), default=None)
    largest = f", the largest with {biggest.cpu:g} cores" if biggest else ""
    return Found("nodes", True, f"{len(found)} that pods may use{largest}")
