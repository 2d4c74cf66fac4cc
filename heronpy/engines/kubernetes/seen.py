"""Translates a pod's state into the terms of the engine contract. Pure.

Only the kubelet confirms that a pod has ended: by the terminated status of heronpy's container, or by refusing to start
it. Otherwise, a pod that is failed, gone or overdue may still be running on an unreachable node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from heronpy.engines.contract import Ended, EnginePhase, Seen
from heronpy.engines.kubernetes.names import (
    AVOIDS,
    CONTAINER,
    LABEL_CONTAINER,
    LABEL_SUBMISSION,
    TOPOLOGY_ID,
)
from heronpy.procs.exit_reason import ExitHints, ExitReason, classify, describe_status

#: How long a pod may exist after its grace period; it allows for differing clocks.
OVERDUE_S: Final = 30.0
WORDS_MAX: Final = 500

#: Reasons for which a waiting container will not start without a change.
_HOPELESS: Final = frozenset(
    {
        "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError",
        "CreateContainerConfigError", "CreateContainerError", "RunContainerError",
    }
)  # fmt: skip
#: The kubelet refused the pod before it started any container of it.
_REFUSED: Final = frozenset(
    {"OutOfcpu", "OutOfmemory", "OutOfpods", "OutOfephemeral-storage", "NodeAffinity", "UnexpectedAdmissionError"}
    | {"NodePorts", "NodeName", "AppArmor", "SysctlForbidden", "NodeUnschedulable"}
)
#: The kubelet ended the pod, and gives the reason.
_BY_KUBELET: Final = frozenset({"Evicted", "DeadlineExceeded", "Preempting", "Shutdown", "NodeShutdown", "Terminated"})
#: The runtime could not start the process.
_NOT_STARTED: Final = frozenset({"StartError", "ContainerCannotRun"})
#: The kubelet cannot determine how the container ended.
_UNKNOWN: Final = "ContainerStatusUnknown"


def of(value: Any, *keys: str) -> Mapping[str, Any]:
    """The map at a path of nested keys; empty if it is missing."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def text(value: Mapping[str, Any], key: str) -> str:
    """The text at a key of a map; empty if it is missing."""
    found = value.get(key)
    return found if isinstance(found, str) else ""


def items(value: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The maps in the list at a key; empty if the list is missing."""
    found = value.get(key)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def name_of(pod: Mapping[str, Any]) -> str:
    return text(of(pod, "metadata"), "name")


def uid_of(pod: Mapping[str, Any]) -> str:
    """The id by which the API server distinguishes pods of the same name."""
    return text(of(pod, "metadata"), "uid")


def node_of(pod: Mapping[str, Any]) -> str:
    """The name of the pod's node; empty before the pod is placed."""
    return text(of(pod, "spec"), "nodeName")


def topology_of(pod: Mapping[str, Any]) -> str:
    """The topology id in the pod's annotations."""
    return text(of(pod, "metadata", "annotations"), TOPOLOGY_ID)


def is_deleted(pod: Mapping[str, Any]) -> bool:
    """Whether deletion of the pod was requested; the pod exists until its kubelet has ended it."""
    return bool(text(of(pod, "metadata"), "deletionTimestamp"))


def seen_of(pod: Mapping[str, Any], now: float) -> Seen | None:
    """The state of a pod at the wall time `now`; None if it does not belong to heronpy."""
    metadata = of(pod, "metadata")
    found = of(metadata, "labels")
    numbers = [text(found, LABEL_CONTAINER), text(found, LABEL_SUBMISSION)]
    if not all(one.isascii() and one.isdigit() for one in numbers):
        return None
    status, state = of(pod, "status"), _state(pod)
    ended, reason, code = _end(pod, now)
    if ended is not Ended.NO:
        phase = EnginePhase.ENDED
    elif is_deleted(pod):
        phase = EnginePhase.ENDING
    elif not node_of(pod):
        phase = EnginePhase.QUEUED
    else:
        phase = EnginePhase.RUNNING if "running" in state else EnginePhase.STARTING
    avoids = text(of(metadata, "annotations"), AVOIDS)
    waits = phase in (EnginePhase.QUEUED, EnginePhase.STARTING)
    return Seen(
        name_of(pod),
        int(numbers[0]),
        int(numbers[1]),
        phase,
        node_of(pod),
        ended,
        reason,
        code,
        cancelled=ended is Ended.CONFIRMED
        and is_deleted(pod)
        and not _is_disrupted(pod)
        and not text(status, "reason"),
        hopeless=waits and text(of(state, "waiting"), "reason") in _HOPELESS,
        waits=phase is EnginePhase.QUEUED and bool(words_of(pod)),
        words=words_of(pod) if ended is Ended.NO else _final_message(pod, ended),
        avoid=tuple(avoids.split(",")) if avoids else (),
    )


def _state(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """The state of heronpy's container; empty until the kubelet has reported it."""
    statuses = items(of(pod, "status"), "containerStatuses")
    return next((of(one, "state") for one in statuses if one.get("name") == CONTAINER), {})


def _is_disrupted(pod: Mapping[str, Any]) -> bool:
    """Whether the cluster ends the pod by preemption, drain, eviction, or removal of its node."""
    return any(
        one.get("type") == "DisruptionTarget" and one.get("status") == "True"
        for one in items(of(pod, "status"), "conditions")
    )


def _end(pod: Mapping[str, Any], now: float) -> tuple[Ended, ExitReason | None, int | None]:
    status, terminated = of(pod, "status"), _state(pod).get("terminated")
    why, phase = text(status, "reason"), text(status, "phase")
    if isinstance(terminated, Mapping) and terminated.get("reason") != _UNKNOWN:
        code = terminated.get("exitCode")
        return Ended.CONFIRMED, _reason(pod, terminated), code if isinstance(code, int) and code <= 128 else None
    if phase == "Failed" and why in _REFUSED:
        return Ended.CONFIRMED, ExitReason.SPAWN_FAILED, None
    if phase == "Failed" and why in _BY_KUBELET:
        return Ended.CONFIRMED, _by_kubelet(pod, why), None
    if phase == "Failed" and not node_of(pod):
        return Ended.CONFIRMED, ExitReason.PREEMPTED, None
    given_up = phase in ("Failed", "Succeeded", "Unknown") or why == "NodeLost" or _is_overdue(pod, now)
    return (Ended.UNCONFIRMED if given_up else Ended.NO), None, None


def _is_overdue(pod: Mapping[str, Any], now: float) -> bool:
    """Whether the pod's end has been overdue for OVERDUE_S, so its kubelet counts as unresponsive."""
    try:
        until = datetime.fromisoformat(text(of(pod, "metadata"), "deletionTimestamp").replace("Z", "+00:00"))
        return now > until.timestamp() + OVERDUE_S
    except (ValueError, OverflowError):
        return False


def _reason(pod: Mapping[str, Any], terminated: Mapping[str, Any]) -> ExitReason:
    why, pods_why = text(terminated, "reason"), text(of(pod, "status"), "reason")
    if why == "OOMKilled":
        return ExitReason.OOM
    if pods_why in _BY_KUBELET:
        return _by_kubelet(pod, pods_why)
    if _is_disrupted(pod):
        return ExitReason.PREEMPTED
    if is_deleted(pod):
        return ExitReason.KILLED
    if why in _NOT_STARTED:
        return ExitReason.SPAWN_FAILED
    return classify(_status(terminated), ExitHints())


def _by_kubelet(pod: Mapping[str, Any], why: str) -> ExitReason:
    # A pod that exceeded its own limit was not disrupted, and would exceed it again.
    return ExitReason.KILLED if why == "Evicted" and not _is_disrupted(pod) else ExitReason.PREEMPTED


def _status(terminated: Mapping[str, Any]) -> int:
    """The exit status as os.wait returns it. An exit code above 128 is a shell's code for a signal."""
    code, signum = terminated.get("exitCode"), terminated.get("signal")
    if isinstance(signum, int) and 0 < signum < 65:
        return signum
    code = code if isinstance(code, int) and 0 <= code <= 255 else 1
    return code - 128 if 128 < code < 193 else code << 8


def words_of(pod: Mapping[str, Any]) -> str:
    """Why the container is not running yet; empty if it is running."""
    waiting = of(_state(pod), "waiting")
    if waiting:
        return _joined(text(waiting, "reason"), text(waiting, "message"))
    if "running" in _state(pod):
        return ""
    for one in items(of(pod, "status"), "conditions"):
        if one.get("type") == "PodScheduled" and one.get("status") == "False":
            return _joined(text(one, "reason"), text(one, "message"))
    return "its node is preparing the pod" if node_of(pod) else ""


def _final_message(pod: Mapping[str, Any], ended: Ended) -> str:
    status = of(pod, "status")
    if ended is Ended.UNCONFIRMED:
        said = _joined(text(status, "reason"), text(status, "message"))
        return said or "its node has not confirmed its end"
    terminated = of(_state(pod), "terminated")
    if text(status, "reason"):
        return _joined(text(status, "reason"), text(status, "message"))
    for one in items(status, "conditions"):
        if one.get("type") == "DisruptionTarget" and one.get("status") == "True":
            return _joined(text(one, "reason"), text(one, "message"))
    why = text(terminated, "reason")
    how = f"{why}, {describe_status(_status(terminated))}" if why else describe_status(_status(terminated))
    # Its last output, or the message of the runtime.
    last = text(terminated, "message").strip().splitlines()
    return f"{how}: {last[-1]}"[:WORDS_MAX] if last else how


def _joined(reason: str, message: str) -> str:
    return ": ".join(" ".join(one.split()) for one in (reason, message) if one)[:WORDS_MAX]


def printed(pod: Mapping[str, Any]) -> str:
    """The last lines of the pod's output, taken from its status."""
    return text(of(_state(pod), "terminated"), "message")


def count_topologies(pods: Iterable[Mapping[str, Any]], now: float) -> dict[str, int]:
    """Map from topology id to the number of its pods that have not ended."""
    found: Counter[str] = Counter()
    for pod in pods:
        seen = seen_of(pod, now)
        if seen is not None and seen.ended is Ended.NO and topology_of(pod):
            found[topology_of(pod)] += 1
    return dict(found)
