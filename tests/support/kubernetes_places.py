"""Which node of the tests' Kubernetes a pod may go to, and which is best."""

from __future__ import annotations

from typing import Any

from heronpy.engines.kubernetes.nodes import quantity


def terms_of(pod: dict[str, Any]) -> list[dict[str, Any]]:
    rule = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    found: list[dict[str, Any]] = rule.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get(
        "nodeSelectorTerms", []
    )
    return found


def asked(pod: dict[str, Any], what: str) -> float:
    values = [one.get("resources", {}).get("requests", {}).get(what, "0") for one in pod["spec"]["containers"]]
    return sum(quantity(one) or 0.0 for one in values)


def excludes(term: dict[str, Any], name: str) -> bool:
    return any(one["operator"] == "NotIn" and name in one["values"] for one in term.get("matchFields", []))


def problem_of(pod: dict[str, Any], node: dict[str, Any], pods: list[dict[str, Any]]) -> str:
    """Why a pod cannot be on a node, in the scheduler's words."""
    name = node["metadata"]["name"]
    if node["spec"].get("unschedulable"):
        return "1 node(s) were unschedulable"
    if node.get("lost_at") is not None:
        return "1 node(s) had untolerated taint {node.kubernetes.io/unreachable: }"
    wanted = pod["spec"].get("nodeSelector", {})
    labels = node["metadata"].get("labels", {})
    terms = terms_of(pod)
    if any(labels.get(key) != value for key, value in wanted.items()) or (
        terms and all(excludes(t, name) for t in terms)
    ):
        return "1 node(s) didn't match Pod's node affinity/selector"
    here = [
        one
        for one in pods
        if one["spec"].get("nodeName") == name and one["status"]["phase"] not in ("Failed", "Succeeded")
    ]
    for what in ("cpu", "memory"):
        if sum(asked(one, what) for one in [*here, pod]) > (quantity(node["status"]["allocatable"][what]) or 0.0):
            return f"1 Insufficient {what}"
    return ""


def score(pod: dict[str, Any], name: str, pods: list[dict[str, Any]]) -> float:
    """Preferences first, then the emptier node."""
    affinity, found = pod["spec"].get("affinity", {}), 0.0
    for one in affinity.get("nodeAffinity", {}).get("preferredDuringSchedulingIgnoredDuringExecution", []):
        found -= one["weight"] * excludes(one["preference"], name)
    here = [one for one in pods if one["spec"].get("nodeName") == name]
    for one in affinity.get("podAntiAffinity", {}).get("preferredDuringSchedulingIgnoredDuringExecution", []):
        rules = one["podAffinityTerm"]["labelSelector"].get("matchExpressions", [])
        same = one["podAffinityTerm"]["labelSelector"]["matchLabels"].items()
        for other in here:
            labels = other["metadata"].get("labels", {})
            ruled = all(labels.get(rule["key"]) in rule["values"] for rule in rules)
            if ruled and all(labels.get(key) == value for key, value in same):
                found -= one["weight"]
    return found - len(here)
