"""Merges an operator's pod template with heronpy's pod; the template may not set heronpy's own fields. Pure.

Maps are merged by key, containers are merged by name, and other lists are concatenated. A template can therefore add
node selectors, volumes, variables or containers, but cannot remove anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from heronpy.common.errors import ConfigError

#: Keys that identify an item of a list.
_KEYS: Final = ("mountPath", "name", "key")
#: Defaults that a template may replace, because users depend on the image.
USER: Final = {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000}
_HINTS: Final = {
    "image": "use heron.kubernetes.image",
    "namespace": "use heron.kubernetes.namespace",
    "terminationGracePeriodSeconds": "use heron.engine.leave_s",
    "memory": "request memory for components, or set heron.packing.instance_ram_bytes",
    "cpu": "request cores for components, or set heron.packing.instance_cpu",
    "ephemeral-storage": "request disk space for components",
}
_AFFINITY: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def check_template(template: object, ours: Mapping[str, Any]) -> None:
    """Raise ConfigError if the template is invalid or sets a field that `ours`, heronpy's pod, also sets."""
    if not isinstance(template, Mapping):
        raise ConfigError("it is not a map with the keys metadata and spec")
    unknown = sorted(set(map(str, template)) - {"apiVersion", "kind", "metadata", "spec"})
    if unknown:
        raise ConfigError(f"it contains {unknown[0]!r}, but only metadata and spec are allowed")
    for part in ("metadata", "spec"):
        if not isinstance(template.get(part, {}), Mapping):
            raise ConfigError(f"its {part} is not a map")
    merged(template, ours)


def merged(template: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """A pod with the fields of the template and of heronpy; raises ConfigError if both set the same field."""
    given = {key: value for key, value in template.items() if key in ("metadata", "spec")}
    spec = dict(given.get("spec") or {})
    affinity = spec.pop("affinity", None)
    found: dict[str, Any] = _both({**given, "spec": spec}, _copied(ours), "")
    security = found["spec"]["securityContext"]
    if security.get("runAsUser") == 0:
        raise ConfigError(
            "it sets spec.securityContext.runAsUser to 0, but containers must not run as root; set another user id"
        )
    found["spec"]["securityContext"] = {**USER, **security}
    if affinity is not None:
        found["spec"]["affinity"] = _affinity(affinity, found["spec"].get("affinity", {}))
    return found


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


def _both(given: Any, ours: Any, path: str) -> Any:
    if isinstance(given, Mapping) and isinstance(ours, Mapping):
        found = {str(key): value for key, value in _copied(given).items()}
        for key, value in ours.items():
            at = f"{path}.{key}" if path else key
            found[key] = _both(found[key], value, at) if found.get(key) is not None else value
        return found
    if isinstance(given, list) and isinstance(ours, list):
        return _lists(given, ours, path)
    raise _refused(path)


def _refused(path: str) -> ConfigError:
    hint = _HINTS.get(path.rpartition(".")[2], "remove it")
    return ConfigError(f"it sets {path}, which heronpy sets itself; {hint}")


def _key(item: Any) -> tuple[str, str]:
    if isinstance(item, Mapping):
        for key in _KEYS:
            if item.get(key) is not None:
                return key, str(item[key])
    return "", ""


def _lists(given: list[Any], ours: list[Any], path: str) -> list[Any]:
    found, rest = [], {_key(item): item for item in ours}
    for item in given:
        mine = rest.pop(_key(item), None) if _key(item)[0] else None
        at = f"{path}[{_key(item)[1]}]"
        if mine is not None and path != "spec.containers":
            raise _refused(at)
        found.append(_copied(item) if mine is None else _both(_without_key(item), mine, at))
    # heronpy's container first, because commands show the first container by default.
    return [*rest.values(), *found]


def _without_key(item: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key != _key(item)[0]}


def _affinity(given: Any, ours: Mapping[str, Any]) -> dict[str, Any]:
    """The combined affinity: heronpy's condition is added to each of the template's `nodeSelectorTerms`."""
    if not isinstance(given, Mapping):
        raise ConfigError("its spec.affinity is not a map")
    found: dict[str, Any] = _copied(given)
    for kind, rules in ours.items():
        into = found.setdefault(kind, {})
        for rule, value in rules.items():
            if rule != _AFFINITY:
                into[rule] = [*into.get(rule, []), *value]
                continue
            [term] = value["nodeSelectorTerms"]
            terms = into.get(rule, {}).get("nodeSelectorTerms") or [{}]
            into[rule] = {"nodeSelectorTerms": [_with_condition(one, term) for one in terms]}
    return found


def _with_condition(term: Mapping[str, Any], condition: Mapping[str, Any]) -> dict[str, Any]:
    return {**term, **{key: [*term.get(key, []), *value] for key, value in condition.items()}}
