"""A topology's summary from its record and the last answer of its topology master. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from heronpy.common.losses import state_label
from heronpy.health.doctor import finding_of, rank_of
from heronpy.plan.component_config import reliability_mode
from heronpy.proto import plan_pb2, topology_pb2
from heronpy.views.load import ComponentLoad, LoadAnswer
from heronpy.views.overview import Topology

NO_ANSWER, NO_MASTER, DEAD, STARTING = "NO ANSWER", "NO MASTER", "DEAD", "STARTING"
#: Urgency of a state without a finding.
_RANKS = {"FAILED": 4, DEAD: 4, NO_MASTER: 3, NO_ANSWER: 3, "DEGRADED": 3, STARTING: 1, "WAITING": 1, "UPDATING": 1}


def topology_of(
    record: plan_pb2.ExecutionState,
    reply: LoadAnswer | None,
    definition: topology_pb2.Topology | None,
    packing: plan_pb2.PackingPlan | None,
    *,
    absent: str = "",
    cause: str = "",
    recent: Sequence[float | None] = (),
    spark: bool | None = None,
) -> Topology:
    """`absent` is the state of a topology whose master does not answer now, `cause` the reason; its totals stay."""
    load = reply.load if reply is not None else None
    leading = next(iter(reply.findings), None) if reply is not None and not absent else None
    state = absent or (state_label(reply.load.state, reply.totals) if reply is not None else STARTING)
    said = finding_of(leading, record.cluster, record.topology) if leading is not None else None
    return Topology(
        cluster=record.cluster,
        role=record.role,
        environ=record.environ,
        name=record.topology,
        id=record.topology_id,
        state=state,
        cause=cause or (load.cause if load is not None and not absent else ""),
        verdict=said.verdict if said is not None else None,
        sentence=said.sentence if said is not None else None,
        calm=said.calm if said is not None else None,
        next=said.next if said is not None else None,
        rank=max(_RANKS.get(state, 0), rank_of(leading)),
        submitted_at=record.submitted_at,
        submission_user=record.submission_user,
        release=record.release,
        uptime_s=reply.uptime_s if reply is not None else None,
        mode=reliability_mode(definition) if definition is not None else None,
        plan_version=packing.version if packing is not None else None,
        tasks=sum(len(one.instances) for one in packing.containers) if packing is not None else None,
        tasks_up=sum(one.up for one in load.components) if load is not None and not absent else None,
        containers=len(packing.containers) if packing is not None else None,
        emitted_per_s=_emitted(load.components) if load is not None and not absent else None,
        latency_p99_s=load.latency_p99_s if load is not None else None,
        held=load.held if load is not None else None,
        last_event=reply.last_event if reply is not None else None,
        totals=reply.totals if reply is not None else None,
        asked_at=load.at if load is not None else None,
        recent_per_s=list(recent),
        component=said.component if said is not None else "",
        task=said.task if said is not None else "",
        host=said.host if said is not None else "",
        unquoted=said.unquoted if said is not None else "",
        spark=spark,
    )


def _emitted(components: Sequence[ComponentLoad]) -> float | None:
    known = [one.emitted_per_s for one in components if one.kind == "spout" and one.emitted_per_s is not None]
    return sum(known) if known else None
