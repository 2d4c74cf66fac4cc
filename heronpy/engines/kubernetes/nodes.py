"""The resources of the cluster's nodes, and which nodes a pod may use. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from heronpy.engines.contract import NodeSize, Request
from heronpy.engines.kubernetes.seen import items, of, text

_UNITS: Final = {
    "n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60,
}  # fmt: skip


def quantity(given: Any) -> float | None:
    """Parse a quantity such as 3800m, 16Gi or 2e3; returns None for other texts."""
    said = str(given).strip()
    for size in (2, 1, 0):
        unit = said[len(said) - size :] if size else ""
        if unit in _UNITS and len(said) > size:
            try:
                found = float(said[: len(said) - size]) * _UNITS[unit]
            except ValueError:
                continue
            return found if math.isfinite(found) and found >= 0 else None
    return None


def name_of(node: Mapping[str, Any]) -> str:
    return text(of(node, "metadata"), "name")


def usable(nodes: Iterable[Mapping[str, Any]], template: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The ready nodes that have all labels that the pod template selects, and only taints that it tolerates.

    The template's affinities are ignored.
    """
    spec = of(template, "spec")
    wanted = of(spec, "nodeSelector")
    tolerated = items(spec, "tolerations")
    return [
        node
        for node in nodes
        if not of(node, "spec").get("unschedulable")
        and _is_ready(node)
        and all(of(node, "metadata", "labels").get(key) == value for key, value in wanted.items())
        and all(any(_tolerates(one, taint) for one in tolerated) for taint in _hard(node))
    ]


def _is_ready(node: Mapping[str, Any]) -> bool:
    found = [one.get("status") for one in items(of(node, "status"), "conditions") if one.get("type") == "Ready"]
    return found in ([], ["True"])


def _hard(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [one for one in items(of(node, "spec"), "taints") if one.get("effect") in ("NoSchedule", "NoExecute")]


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    same = toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")
    key, effect = toleration.get("key", ""), toleration.get("effect", "")
    return same and key in ("", taint.get("key")) and effect in ("", taint.get("effect"))


def size_of(node: Mapping[str, Any]) -> NodeSize | None:
    """The resources that pods may use on a node; None if the node does not report them."""
    has = of(node, "status", "allocatable")
    cpu, memory = quantity(has.get("cpu")), quantity(has.get("memory"))
    if cpu is None or memory is None:
        return None
    disk = quantity(has.get("ephemeral-storage"))
    where = of(node, "metadata", "labels").get("node.kubernetes.io/instance-type")
    return NodeSize(cpu, int(memory), int(disk) if disk is not None else None, f"type {where}" if where else "")


def sizes(nodes: Iterable[Mapping[str, Any]]) -> list[NodeSize]:
    return list(dict.fromkeys(size for node in nodes if (size := size_of(node)) is not None))


def may_avoid(request: Request, nodes: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the nodes in `avoid` can be excluded, because a node outside `avoid` is large enough."""
    for node in nodes:
        size = size_of(node)
        if size is not None and name_of(node) not in request.avoid:
            disk = size.disk_bytes is None or request.disk_bytes <= size.disk_bytes
            if request.cpu <= size.cpu and request.ram_bytes <= size.ram_bytes and disk:
                return True
    return False
