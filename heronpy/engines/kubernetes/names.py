"""Names, labels and annotations for finding pods. Pure."""

from __future__ import annotations

import hashlib
import re
from typing import Final

#: The container of a pod that heronpy defines; an operator's template may add others.
CONTAINER: Final = "heron"
LABEL_MANAGED: Final = "app.kubernetes.io/managed-by"
MANAGER: Final = "heronpy"
LABEL_TOPOLOGY: Final = "heronpy.dev/topology"
LABEL_CONTAINER: Final = "heronpy.dev/container"
LABEL_SUBMISSION: Final = "heronpy.dev/submission"
#: The full id; the label may be a digest of it.
TOPOLOGY_ID: Final = "heronpy.dev/topology-id"
AVOIDS: Final = "heronpy.dev/avoids"
TOKEN: Final = "join_token"
TOKEN_FOLDER: Final = "/run/heronpy"
TMP: Final = "/tmp"
HOST_LABEL: Final = "kubernetes.io/hostname"

_LABEL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.\-]{0,61}[A-Za-z0-9])?")
#: The end of a topology's id, which is left out of names; the digest covers the whole id.
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
#: Length limit, so that a name with two numbers is also a valid host name, which has at most 63 characters.
_NAME_MAX: Final = 36


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def label_of(topology_id: str) -> str:
    """The value of the topology's label: the id, or a digest if the id is not a valid label."""
    return topology_id if _LABEL.fullmatch(topology_id) else f"id-{_digest(topology_id)[:40]}"


def dns_of(text: str) -> str:
    """Turn a text into a label of a DNS name, with a digest appended if the text had to be changed."""
    plain = re.sub(r"[^a-z0-9]+", "-", _UUID.sub("", text).lower()).strip("-")[:_NAME_MAX].strip("-")
    return plain if plain == text else f"{plain}-{_digest(text)[:10]}".lstrip("-")


def pod_name(topology_id: str, container: int, submission: int) -> str:
    """The name of a submission's pod and secret; no other submission ever has this name."""
    return f"heron-{dns_of(topology_id)}-{container}-{submission}"


def budget_name(topology_id: str) -> str:
    return f"heron-{dns_of(topology_id)}"


def selector(topology_id: str = "") -> str:
    """The label selector for the pods of one topology, or of all topologies."""
    ours = f"{LABEL_MANAGED}={MANAGER}"
    return f"{ours},{LABEL_TOPOLOGY}={label_of(topology_id)}" if topology_id else f"{ours},{LABEL_TOPOLOGY}"
