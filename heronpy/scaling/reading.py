"""Makes the input of the scaler from the answers of a topology master. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from heronpy.scaling.figures import Figures, Observation, Past
from heronpy.views.findings import Finding
from heronpy.views.load import ComponentLoad, Load


def observation_of(
    topology: str,
    load: Load | None,
    findings: Collection[Finding],
    asynchronous: Collection[str],
    pinned: Mapping[str, str],
    room_bytes: int | None,
    past: Mapping[str, Past],
    now: float,
    program: str = "",
    updated_at: float | None = None,
    queue_s: float | None = None,
) -> Observation:
    """Make the observation of a topology. Without a load, the observation has no components.

    `asynchronous` names the asynchronous bolts; `pinned` maps each component with a value in layer oncall to a
    sentence that says so; `program` is the digest of the program.
    """
    if load is None or load.window_s is None:
        return Observation(topology=topology, at=now, findings=tuple(findings), program=program)
    holds = {one.component for one in load.culprits}
    return Observation(
        topology=topology,
        at=now,
        components=tuple(
            _figures(one, load, one.name in asynchronous, pinned.get(one.name, ""), one.name in holds)
            for one in load.components
        ),
        findings=tuple(findings),
        program=program,
        updated_at=updated_at,
        window_s=load.window_s,
        held=load.held or 0.0,
        end_to_end_s=load.latency_p99_s,
        queue_s=queue_s,
        room_bytes=room_bytes,
        past=dict(past),
    )


def _figures(one: ComponentLoad, load: Load, asynchronous: bool, pinned: str, holds: bool) -> Figures:
    is_spout = one.kind == "spout"
    inputs: dict[str, float] = {}
    for edge in load.edges:
        source, _, rest = edge.id.partition("/")
        if rest.rpartition(">")[2] == one.name and edge.tuples_per_s is not None:
            inputs[source] = inputs.get(source, 0.0) + edge.tuples_per_s
    waits = one.backlog_tuples if is_spout else one.queue_tuples
    return Figures(
        name=one.name,
        is_spout=is_spout,
        tasks=one.tasks,
        concurrency=max(1, one.concurrency or 1) if asynchronous else 1,
        asynchronous=asynchronous,
        processed=one.emitted_per_s if is_spout else one.executed_per_s,
        inputs=inputs,
        busy=one.busy,
        spread=one.spread,
        backlog=float(waits) if waits is not None else None,
        memory_mean=one.memory_bytes / one.tasks if one.memory_bytes and one.tasks else None,
        memory_max=float(one.memory_bytes_max) if one.memory_bytes_max is not None else None,
        memory_limit=one.memory_limit_bytes,
        keys=one.keys,
        saturated=holds,
        fixed=one.not_scalable,
        pinned=pinned,
        usual_s=one.usual_s,
        cpu=one.cpu,
    )
