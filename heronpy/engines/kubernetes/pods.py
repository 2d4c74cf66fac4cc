"""The API objects of one submission: the pod, its secret, and the topology's disruption budget. Pure."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heronpy.common.errors import ConfigError
from heronpy.common.folders import POD_FOLDERS
from heronpy.engines.contract import Request
from heronpy.engines.kubernetes.names import (
    AVOIDS,
    CONTAINER,
    HOST_LABEL,
    LABEL_CONTAINER,
    LABEL_MANAGED,
    LABEL_SUBMISSION,
    LABEL_TOPOLOGY,
    MANAGER,
    TMP,
    TOKEN,
    TOKEN_FOLDER,
    TOPOLOGY_ID,
    budget_name,
    label_of,
    pod_name,
)
from heronpy.engines.kubernetes.seen import items
from heronpy.engines.kubernetes.template import check_template, merged

#: How long a pod stays on a node that does not answer; after that `heron.engine.lost_s` applies.
TOLERATED_S = 30
#: Weights of the preferences for a node without containers to avoid, and for a node with few containers of the
#: topology.
APART_WEIGHT, SPREAD_WEIGHT = 100, 20
_LOST_NODE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


@dataclass(frozen=True, slots=True)
class PodOptions:
    """An operator's settings for a cluster; raises ConfigError if they contradict heronpy's own settings."""

    image: str
    #: Time to end, in seconds, for a pod that is deleted or evicted.
    grace_s: int = 60
    #: `heron.engine.home`; if empty, the folder for temporary files.
    home: str = ""
    template: Mapping[str, Any] = field(default_factory=dict)
    #: Path of the template, for errors.
    template_file: str = ""
    #: Port of container 0's metrics page, for Prometheus; container c has this port plus c. 0: pages are only for the
    #: pod itself.
    metrics_port: int = 0

    def __post_init__(self) -> None:
        if not self.image:
            raise ConfigError("heron.kubernetes.image is empty; name an image with Python and this release of heronpy")
        if self.home and self.home.rstrip("/").count("/") < 2:
            raise ConfigError(
                f"heron.engine.home is {self.home}; name a folder inside another folder, such as /heron/home, because"
                " pods mount a volume at the parent"
            )
        full = Request("t", 0, 1, 1.0, 1, 1, avoid=("n",), apart_from=(1,))
        try:
            check_template(self.template, _own(full, self, ["python"], must_avoid=True))
        except ConfigError as error:
            raise ConfigError(f"heron.kubernetes.pod_template {self.template_file} cannot be used: {error}") from None


def pod(request: Request, options: PodOptions, command: Sequence[str], must_avoid: bool) -> dict[str, Any]:
    """The pod of a submission; `must_avoid` excludes all nodes in `request.avoid`, not only the barred nodes."""
    return merged(options.template, _own(request, options, command, must_avoid))


def _own(request: Request, options: PodOptions, command: Sequence[str], must_avoid: bool) -> dict[str, Any]:
    #: The parent of the home, because the home has to belong to this user.
    volume = [options.home.rstrip("/").rpartition("/")[0]] if options.home else []
    env = {
        "HERON_TOPOLOGY_ID": request.topology_id,
        "HERON_CONTAINER": str(request.container),
        "HERON_SUBMISSION": str(request.submission),
        # The join token is a file in this folder.
        "HERON_JOIN_TOKEN_FOLDER": TOKEN_FOLDER,
        # Volumes of the pod, which the kubelet makes writable for every user in the pod.
        POD_FOLDERS: ":".join(dict.fromkeys((TMP, *volume))),
        "HOME": TMP,
        "TMPDIR": TMP,
    }
    variables: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in env.items()]
    variables.append({"name": "HERON_HOST", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}})
    mounts: list[dict[str, Any]] = [
        {"mountPath": TOKEN_FOLDER, "name": "heron-join-token", "readOnly": True},
        {"mountPath": TMP, "name": "heron-tmp"},
    ]
    volumes: list[dict[str, Any]] = [
        {
            "name": "heron-join-token",
            "secret": {
                "secretName": pod_name(request.topology_id, request.container, request.submission),
                "defaultMode": 0o440,
            },
        },
        {"name": "heron-tmp", "emptyDir": {}},
    ]
    for folder in volume:
        if folder != TMP and not _mounts(options.template, folder):
            mounts.append({"mountPath": folder, "name": "heron-home"})
            volumes.append({"name": "heron-home", "emptyDir": {}})
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": options.grace_s,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "tolerations": [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATED_S}
            for key in _LOST_NODE
        ],
        "containers": [
            {
                "name": CONTAINER,
                "image": options.image,
                "command": [*command],
                "env": variables,
                "resources": _resources(request),
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": mounts,
                "terminationMessagePolicy": "FallbackToLogsOnError",
            }
        ],
        "volumes": volumes,
    }
    spec["affinity"] = _affinity(request, must_avoid)
    annotations = {TOPOLOGY_ID: request.topology_id}
    if options.metrics_port:
        page = {"scrape": "true", "port": str(options.metrics_port + request.container), "path": "/metrics"}
        annotations |= {f"prometheus.io/{name}": value for name, value in page.items()}
    if request.avoid:
        annotations[AVOIDS] = ",".join(request.avoid)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(request.topology_id, request.container, request.submission),
            "labels": {
                **labels(request.topology_id),
                LABEL_CONTAINER: str(request.container),
                LABEL_SUBMISSION: str(request.submission),
            },
            "annotations": annotations,
        },
        "spec": spec,
    }


def labels(topology_id: str) -> dict[str, str]:
    return {LABEL_MANAGED: MANAGER, LABEL_TOPOLOGY: label_of(topology_id)}


def _mounts(template: Mapping[str, Any], folder: str) -> bool:
    """Whether the template mounts a volume at this folder of heronpy's container."""
    spec = template.get("spec") if isinstance(template, Mapping) else None
    containers = spec.get("containers") if isinstance(spec, Mapping) else None
    for one in containers if isinstance(containers, list) else ():
        if isinstance(one, Mapping) and one.get("name") == CONTAINER:
            return any(mount.get("mountPath") == folder for mount in items(one, "volumeMounts"))
    return False


def _resources(request: Request) -> dict[str, Any]:
    """The pod's resources: requests for cores, and both requests and limits for memory and disk."""
    hard = {"memory": str(max(1, request.ram_bytes))}
    if request.disk_bytes:
        hard["ephemeral-storage"] = str(request.disk_bytes)
    return {"requests": {"cpu": f"{max(1, math.ceil(request.cpu * 1000))}m", **hard}, "limits": hard}


def _others_than(hosts: Sequence[str]) -> dict[str, Any]:
    """A node selector that excludes nodes by name, because a node's hostname label may differ from its name."""
    return {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": [host]} for host in hosts]}


def _affinity(request: Request, must_avoid: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if request.avoid:
        hard = request.avoid if must_avoid else request.barred
        soft = [host for host in request.avoid if host not in hard]
        affinity: dict[str, Any] = {}
        found["nodeAffinity"] = affinity
        if hard:
            term = {"nodeSelectorTerms": [_others_than(hard)]}
            affinity["requiredDuringSchedulingIgnoredDuringExecution"] = term
        if soft:
            wish = {"weight": 100, "preference": _others_than(soft)}
            affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [wish]
    ours: dict[str, Any] = {"matchLabels": {LABEL_TOPOLOGY: label_of(request.topology_id)}}
    # Prefer nodes with fewer containers of the topology.
    wishes = [_apart(SPREAD_WEIGHT, ours)]
    if request.apart_from:
        others = {"key": LABEL_CONTAINER, "operator": "In", "values": [str(one) for one in request.apart_from]}
        wishes.append(_apart(APART_WEIGHT, {**ours, "matchExpressions": [others]}))
    found["podAntiAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": wishes}
    return found


def _apart(weight: int, others: Mapping[str, Any]) -> dict[str, Any]:
    return {"weight": weight, "podAffinityTerm": {"topologyKey": HOST_LABEL, "labelSelector": others}}


def secret(request: Request, pod_uid: str) -> dict[str, Any]:
    """A secret with the join token; the cluster deletes it with the pod."""
    name = pod_name(request.topology_id, request.container, request.submission)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "immutable": True,
        "metadata": {
            "name": name,
            "labels": labels(request.topology_id),
            "ownerReferences": [_owner(name, pod_uid)],
        },
        "data": {TOKEN: base64.b64encode(request.token.encode()).decode()},
    }


def budget(topology_id: str, containers: int, pods: Iterable[tuple[str, str]], version: str = "v1") -> dict[str, Any]:
    """A disruption budget that lets the cluster evict one container at a time.

    `pods` has the names and uids of the living pods, which own the budget. Bare pods have no controller that defines
    their number, so the budget states how many must stay.
    """
    return {
        "apiVersion": f"policy/{version}",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": budget_name(topology_id),
            "labels": labels(topology_id),
            "ownerReferences": [_owner(name, uid) for name, uid in sorted(pods)],
        },
        "spec": {"minAvailable": max(0, containers - 1), "selector": {"matchLabels": labels(topology_id)}},
    }


def _owner(name: str, uid: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
