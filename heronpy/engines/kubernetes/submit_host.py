"""The manifest of a cluster: a Role for the engine, and a pod from which users submit. Pure.

A Deployment of one pod keeps the schedulers running. The pod's volume holds HERON_HOME, and a headless Service gives
the pod a permanent name. The pod uses this host's settings for the cluster.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from heronpy.common.folders import POD_FOLDERS
from heronpy.engines.kubernetes.api_server import rules
from heronpy.engines.kubernetes.names import LABEL_MANAGED, MANAGER, TMP, dns_of
from heronpy.engines.kubernetes.template import USER

VOLUME: Final = "/heron"
HOME: Final = f"{VOLUME}/home"
CONF: Final = "/etc/heron/conf"
TEMPLATE: Final = "/etc/heron/pod-template.yaml"
_MACHINE_ID: Final = "/etc/machine-id"
_GRACE_S: Final = 30
_RBAC: Final = "rbac.authorization.k8s.io"


@dataclass(frozen=True, slots=True)
class SubmitHost:
    """The values from which a cluster's manifest is made."""

    cluster: str
    namespace: str
    image: str
    #: The interpreter in the image.
    python: str
    volume_bytes: int
    #: Text of conf/<cluster>/<room>.yaml by room.
    rooms: Mapping[str, str] = field(default_factory=dict)
    #: Text of the pod template; empty: no template.
    template: str = ""
    #: Whether to grant the right to see the cluster's nodes.
    nodes: bool = False

    @property
    def name(self) -> str:
        """The name of all objects in the manifest."""
        return f"heron-{dns_of(self.cluster)}"

    @property
    def endpoint_host(self) -> str:
        """The name of the Service in the cluster's DNS."""
        return f"{self.name}.{self.namespace}.svc"


def manifest(host: SubmitHost) -> list[dict[str, Any]]:
    """The objects of the manifest, in the order in which they are created."""
    found = [
        _object(host, "v1", "ServiceAccount"),
        {**_object(host, f"{_RBAC}/v1", "Role"), "rules": rules()},
        _binding(host, "Role", host.name),
    ]
    if host.nodes:
        name = f"{host.namespace}-{host.name}-nodes"
        role = _object(host, f"{_RBAC}/v1", "ClusterRole", name)
        found += [
            {**role, "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]},
            _binding(host, "ClusterRole", name),
        ]
    volume = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": str(host.volume_bytes)}},
    }
    # A headless Service: the name leads to the pod, at any port.
    service = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": _selector(host)}
    return [
        *found,
        {**_object(host, "v1", "ConfigMap"), "data": _files(host)},
        {**_object(host, "v1", "PersistentVolumeClaim"), "spec": volume},
        {**_object(host, "v1", "Service"), "spec": service},
        {**_object(host, "apps/v1", "Deployment"), "spec": _deployment(host)},
    ]


def _object(host: SubmitHost, version: str, kind: str, name: str = "") -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name or host.name, "labels": {LABEL_MANAGED: MANAGER, **_selector(host)}}
    if not kind.startswith("Cluster"):
        metadata["namespace"] = host.namespace
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def _selector(host: SubmitHost) -> dict[str, str]:
    return {"app.kubernetes.io/name": host.name}


def _binding(host: SubmitHost, kind: str, role: str) -> dict[str, Any]:
    return {
        **_object(host, f"{_RBAC}/v1", f"{kind}Binding", role),
        "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": host.name, "namespace": host.namespace}],
    }


def _files(host: SubmitHost) -> dict[str, str]:
    # The volume may move between nodes but must count as the volume of one host.
    machine = hashlib.sha256(f"heronpy {host.namespace}/{host.cluster}".encode()).hexdigest()[:32]
    found = {f"{room}.yaml": text for room, text in host.rooms.items()} | {"machine-id": machine + "\n"}
    return found | ({"pod-template": host.template} if host.template else {})


def _deployment(host: SubmitHost) -> dict[str, Any]:
    mounts: list[dict[str, Any]] = [
        {"name": "state", "mountPath": VOLUME},
        {"name": "tmp", "mountPath": TMP},
        *(
            {"name": "conf", "mountPath": f"{CONF}/{host.cluster}/{room}.yaml", "subPath": f"{room}.yaml"}
            for room in host.rooms
        ),
        {"name": "conf", "mountPath": _MACHINE_ID, "subPath": "machine-id"},
    ]
    if host.template:
        mounts.append({"name": "conf", "mountPath": TEMPLATE, "subPath": "pod-template"})
    env = {
        "HERON_HOME": HOME,
        "HERON_CONF": CONF,
        POD_FOLDERS: f"{TMP}:{VOLUME}",
        "HOME": HOME,
        "TMPDIR": TMP,
    }
    files = "\0".join(f"{name}\0{content}" for name, content in sorted(_files(host).items()))
    pod = {
        "serviceAccountName": host.name,
        # The state in files belongs to this host name, for every pod that uses it.
        "hostname": host.name,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _GRACE_S,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}, **USER},
        "containers": [
            {
                "name": "heron",
                "image": host.image,
                "command": [host.python, "-Pm", "heronpy.cli", "scheduler", "keep", host.cluster],
                "env": [{"name": name, "value": value} for name, value in env.items()],
                "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": mounts,
            }
        ],
        "volumes": [
            {"name": "state", "persistentVolumeClaim": {"claimName": host.name}},
            {"name": "tmp", "emptyDir": {}},
            {"name": "conf", "configMap": {"name": host.name}},
        ],
    }
    return {
        "replicas": 1,
        # Two pods must never use the same state.
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": _selector(host)},
        "template": {
            "metadata": {
                "labels": {LABEL_MANAGED: MANAGER, **_selector(host)},
                # Changed settings lead to a new pod.
                "annotations": {"heronpy.dev/settings": hashlib.sha256(files.encode()).hexdigest()[:16]},
            },
            "spec": pod,
        },
    }
