"""The summary of a topology, from the last answer of its topology master, or from the kept file of an ended topology.

See `scheduler.teardown` for kept files. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from heronpy.common.errors import AnswerError
from heronpy.common.losses import missing_text, state_label
from heronpy.health.doctor import finding_of, rank_of
from heronpy.metrics.names import CPU_METRICS
from heronpy.net.answers import read
from heronpy.plan.component_config import reliability_mode, shown_mode
from heronpy.proto import control_pb2, plan_pb2, topology_pb2
from heronpy.scheduler.teardown import last_life
from heronpy.tmaster.minutes import Minutes
from heronpy.tmaster.totals import Totals
from heronpy.views.findings import Verdict
from heronpy.views.load import ComponentLoad, LoadAnswer
from heronpy.views.overview import Topology, totals_of
from heronpy.views.past import Event, Timeline, event_of

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
    job: bool = False,
) -> Topology:
    """The summary of a topology in the state manager.

    `absent` is the state to show if the topology's master does not answer, and `cause` is the reason; the last totals
    are still shown.
    """
    load = reply.load if reply is not None else None
    leading = next(iter(reply.findings), None) if reply is not None and not absent else None
    state = absent or (state_label(reply.load.state, reply.totals) if reply is not None else STARTING)
    said = finding_of(leading, record.cluster, record.topology, job) if leading is not None else None
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
        mode=shown_mode(definition) if definition is not None else None,
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


# ---- ended topologies -------------------------------------------------------------------------

#: Sentences on ended topologies.
SENTENCES = {"finished": "has finished", "failed": "has failed and was removed", "killed": "was killed"}


class Used(Struct, kw_only=True):
    """The resources that a run has used."""

    #: From the submit to the end of the run.
    wall_s: float
    #: CPU seconds reported by the tasks; None: unknown.
    cpu_s: float | None
    #: Highest memory of all tasks together in a minute of the last day; None: unknown.
    memory_bytes: int | None


def how_ended(last_state: str) -> str:
    """How a topology ended (`finished`, `failed` or `killed`), given its last recorded state, such as `running`."""
    return last_state if last_state in ("finished", "failed") else "killed"


def told_by(kept: control_pb2.EndedTopology) -> tuple[Topology, list[Event], Timeline]:
    """The summary, the events and the metrics of the last minutes, from a topology's kept file."""
    timeline = last_minutes(kept).query(control_pb2.GetTimeline())
    return summary_of(kept), [event_of(one) for one in kept.events.events], timeline


def last_load(kept: control_pb2.EndedTopology) -> LoadAnswer | None:
    """The last load report in a kept file; None if there is none, or if another release wrote it."""
    try:
        return read(kept.last.load, LoadAnswer)
    except AnswerError:
        return None


def last_minutes(kept: control_pb2.EndedTopology) -> Minutes:
    """The metrics per minute in a kept file, for up to the last day."""
    minutes = Minutes()
    of_master = kept.last.minutes
    minutes.take_over(of_master if of_master.minutes else kept.minutes, kept.record.topology_id)
    return minutes


def summary_of(kept: control_pb2.EndedTopology) -> Topology:
    """The summary of a topology, with the doctor's last finding, from its kept file."""
    record, life = kept.record, last_life(kept)
    how = how_ended(life.reason)
    known = topology_of(
        record,
        last_load(kept),
        kept.topology if kept.HasField("topology") else None,
        kept.packing if kept.HasField("packing") else None,
        # A topology with a Spark gateway has the gateway's last report in its kept file.
        spark=kept.HasField("spark"),
    )
    totals = known.totals
    if kept.HasField("totals"):
        mode = reliability_mode(kept.topology) if kept.HasField("topology") else ""
        counts = Totals.of(kept.totals, record.topology_id)
        totals = totals_of(counts.summed(mode=mode), counts.dropped)
    failure = life.text.partition(": ")[2] if how == "failed" else ""
    lost = missing_text(totals) if how == "finished" and totals is not None else ""
    text = f"topology '{known.name}' {SENTENCES[how]}" + (f" with losses: {lost}" if lost else "")
    cause = f"{text}: {failure}" if failure else text
    # For a failed topology, the doctor's finding already has the cause.
    known = _with_final_message(known if how != "failed" else _said_nothing(known), cause)
    return msgspec.structs.replace(
        known, state=state_label(how.upper(), totals), cause=cause, next=None,
        rank=4 if how == "failed" else 2 if lost else 0,
        uptime_s=max(0.0, kept.ended_at - record.submitted_at),
        tasks_up=None, emitted_per_s=None, held=None, latency_p99_s=None, totals=totals, ended_at=kept.ended_at,
    )  # fmt: skip


def _said_nothing(shown: Topology) -> Topology:
    return msgspec.structs.replace(
        shown, verdict=None, sentence=None, calm=None, next=None, component="", task="", host="", unquoted=""
    )


def _with_final_message(known: Topology, cause: str) -> Topology:
    """The summary whose `sentence` is the result and the doctor's last finding; `unquoted` leaves out users' values."""
    if known.sentence is None or known.verdict == Verdict.CHANGING.value:
        return _said_nothing(known)
    said, plain = f"{cause}; the doctor's last finding: {known.sentence}", cause.partition(": ")[0]
    unquoted = f"{plain}; the doctor's last finding: {known.unquoted or known.sentence}"
    return msgspec.structs.replace(known, sentence=said, unquoted=unquoted if unquoted != said else "")


def used_by(kept: control_pb2.EndedTopology) -> Used:
    """The resources that a run had used at its end, or when its figures were last written."""
    samples = [one for report in kept.last.counts.reports for one in report.samples if one.name in CPU_METRICS]
    timeline = last_minutes(kept).query(control_pb2.GetTimeline(names=["memory_bytes"]))
    minutes = zip(*(one.values for one in timeline.series))
    memory = max((sum(value or 0.0 for value in minute) for minute in minutes), default=0.0)
    return Used(
        wall_s=max(0.0, kept.ended_at - kept.record.submitted_at),
        cpu_s=sum(one.value for one in samples) if samples else None,
        memory_bytes=int(memory) or None,
    )
