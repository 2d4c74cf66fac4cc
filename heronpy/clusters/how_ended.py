"""How a topology has ended, and the other content of its kept file, see `scheduler.teardown`. Pure."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from heronpy.clusters.summary import topology_of
from heronpy.common.errors import AnswerError
from heronpy.common.losses import missing_text, state_label
from heronpy.metrics.names import CPU_METRICS
from heronpy.net.answers import read
from heronpy.plan.component_config import reliability_mode
from heronpy.proto import control_pb2
from heronpy.scheduler.teardown import last_life
from heronpy.tmaster.minutes import Minutes
from heronpy.tmaster.totals import Totals
from heronpy.views.findings import Verdict
from heronpy.views.load import LoadAnswer
from heronpy.views.overview import Topology, totals_of
from heronpy.views.past import Event, Timeline, event_of

#: Sentences on ended topologies.
SENTENCES = {"finished": "has finished", "failed": "has failed and was removed", "killed": "was killed"}


class Used(Struct, kw_only=True):
    """The resources that a run has used."""

    #: From the submit to its end.
    wall_s: float
    #: CPU seconds of its tasks, as reported; None: unknown.
    cpu_s: float | None
    #: Highest memory of all tasks together in a minute of the last day; None: unknown.
    memory_bytes: int | None


def how_ended(last_state: str) -> str:
    """`finished`, `failed` or `killed`, from the last state of the life cycle, as `running`."""
    return last_state if last_state in ("finished", "failed") else "killed"


def told_by(kept: control_pb2.EndedTopology) -> tuple[Topology, list[Event], Timeline]:
    """The result, events and last minutes of a topology."""
    timeline = last_minutes(kept).query(control_pb2.GetTimeline())
    return summary_of(kept), [event_of(one) for one in kept.events.events], timeline


def last_load(kept: control_pb2.EndedTopology) -> LoadAnswer | None:
    """The last figures; None if they were not kept, or if another release wrote them."""
    try:
        return read(kept.last.load, LoadAnswer)
    except AnswerError:
        return None


def last_minutes(kept: control_pb2.EndedTopology) -> Minutes:
    """The last minutes, up to a day."""
    minutes = Minutes()
    of_master = kept.last.minutes
    minutes.take_over(of_master if of_master.minutes else kept.minutes, kept.record.topology_id)
    return minutes


def summary_of(kept: control_pb2.EndedTopology) -> Topology:
    """The result of a topology, and the doctor's last finding."""
    record, life = kept.record, last_life(kept)
    how = how_ended(life.reason)
    known = topology_of(
        record,
        last_load(kept),
        kept.topology if kept.HasField("topology") else None,
        kept.packing if kept.HasField("packing") else None,
        # A Spark gateway leaves a last report.
        spark=kept.HasField("spark"),
    )
    totals = known.totals
    if kept.HasField("totals"):
        mode = reliability_mode(kept.topology) if kept.HasField("topology") else ""
        totals = totals_of(Totals.of(kept.totals, record.topology_id).summed(mode=mode))
    failure = life.text.partition(": ")[2] if how == "failed" else ""
    lost = missing_text(totals) if how == "finished" and totals is not None else ""
    text = f"topology '{known.name}' {SENTENCES[how]}" + (f" with losses: {lost}" if lost else "")
    cause = f"{text}: {failure}" if failure else text
    # For a failed topology, the doctor has already said the same.
    known = _with_final_message(known if how != "failed" else _said_nothing(known), cause)
    return msgspec.structs.replace(
        known, state=state_label(how.upper(), totals), cause=cause, next=None,
        rank=4 if how == "failed" else 2 if lost else 0,
        uptime_s=max(0.0, kept.ended_at - record.submitted_at),
        tasks_up=None, emitted_per_s=None, held=None, latency_p99_s=None, totals=totals, ended_at=kept.ended_at,
    )  # fmt: skip


def _said_nothing(shown: Topology) -> Topology:
    """The summary without a finding."""
    return msgspec.structs.replace(
        shown, verdict=None, sentence=None, calm=None, next=None, component="", task="", host="", unquoted=""
    )


def _with_final_message(known: Topology, cause: str) -> Topology:
    """The result, with the doctor's last finding as one sentence; and the same without values."""
    if known.sentence is None or known.verdict == Verdict.CHANGING.value:
        return _said_nothing(known)
    said, plain = f"{cause}; the doctor said last: {known.sentence}", cause.partition(": ")[0]
    unquoted = f"{plain}; the doctor said last: {known.unquoted or known.sentence}"
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
