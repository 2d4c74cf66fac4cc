"""Containers on an engine: requests to the engine, and records and descriptions for users. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from heronpy.common.ids import executor_id
from heronpy.engines.contract import Explained
from heronpy.packing.demand import ResourceRequest
from heronpy.procs.supervision import EXITS
from heronpy.proto import control_pb2, endpoint_pb2
from heronpy.scheduler.placement_events import ContainerSpec, ContainerView, Phase

_STATES = {
    Phase.QUEUED: control_pb2.PROC_STARTING,
    Phase.STARTING: control_pb2.PROC_STARTING,
    Phase.STANDBY: control_pb2.PROC_STARTING,
    Phase.RUNNING: control_pb2.PROC_RUNNING,
    Phase.LEAVING: control_pb2.PROC_RUNNING,
    Phase.UNCONFIRMED: control_pb2.PROC_RUNNING,
    Phase.FAILED: control_pb2.PROC_FAILED,
}


def with_standby(containers: Iterable[int], standbys: int) -> tuple[int, ...]:
    """The containers in which a standby topology master runs."""
    return tuple(sorted(containers)[1 : 1 + standbys])


def container_specs(requests: Mapping[int, ResourceRequest], standbys: int) -> tuple[ContainerSpec, ...]:
    """The containers to request from an engine. Container 0 and containers with a standby avoid each other's hosts."""
    numbers = sorted(requests)
    apart = with_standby(numbers, standbys)
    return tuple(
        ContainerSpec(
            number,
            requests[number].cpu,
            requests[number].ram_bytes,
            requests[number].disk_bytes,
            apart_from=apart if number == 0 else (0,) if number in apart else (),
        )
        for number in numbers
    )


def record_of(
    view: ContainerView,
    explained: Mapping[str, Explained],
    starts: Sequence[endpoint_pb2.StartSpan],
    started_at: float,
    termination_report: str = "",
) -> control_pb2.ProcessRecord:
    """The record of a container, for commands such as `heron status`.

    `started_at` is the wall time at which the container began to act, or 0 if it does not act; `termination_report` is
    its last message before it ended.
    """
    failed = view.phase is Phase.FAILED
    # Between two submissions, the engine does not list the container and cannot report why the last one ended.
    ended = failed or not view.engine_id
    words = f"{view.words}: {termination_report}" if ended and termination_report and view.exit_reason else view.words
    why = explained.get(view.engine_id) if view.phase is Phase.QUEUED else None
    return control_pb2.ProcessRecord(
        name=executor_id(view.container),
        state=_STATES[view.phase],
        restarts=view.restarts,
        exit_reason=view.exit_reason.value if view.exit_reason is not None else "refused" if failed else "",
        exit=EXITS[view.exit_reason],
        exit_detail=words if failed else "",
        epoch=view.epoch,
        started_at=started_at,
        host=view.host,
        engine_id=view.engine_id,
        phase=view.phase.name,
        words=why.words if why is not None and why.words else words,
        submission=view.submission,
        starts_at=(why.starts_at or 0.0) if why is not None else 0.0,
        start_spans=starts,
    )


def standing(views: Sequence[ContainerView], containers: Sequence[int]) -> str:
    """Describes the containers that are not running, with their phases, as part of a message."""
    late = [view for view in views if view.container in containers and view.phase is not Phase.RUNNING]
    return "; ".join(
        f"container {view.container} is {view.phase.name}" + (f" ({view.words})" if view.words else "") for view in late
    )
