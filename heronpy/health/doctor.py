"""The doctor's findings as structs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from heronpy.common.units import listed
from heronpy.health.texts import advice, sentence
from heronpy.views import advice as shapes
from heronpy.views.findings import CALM, Finding, Verdict
from heronpy.views.quotes import UNSEEN

if TYPE_CHECKING:
    from heronpy.health.signals import Signals

#: The urgency of a finding. Verdicts that are missing here have urgency 2, which means that they need action.
_RANKS = {Verdict.FAILED: 4, Verdict.DOWN: 3, Verdict.HUNG: 3, Verdict.MEMORY: 3, Verdict.CRASHING: 3,
          Verdict.LOSSES: 3, Verdict.STOPPED: 3, Verdict.MACHINE: 1, Verdict.CHANGING: 1}  # fmt: skip
#: Verdicts that quote a line of code. All other verdicts quote messages of the running topology.
_QUOTE_CODE = frozenset((Verdict.HUNG, Verdict.DEPENDENCY, Verdict.SLOW_TASK))
#: Verdicts that quote the last message of a process.
_QUOTE_PROCESSES = frozenset((Verdict.FAILED, Verdict.DOWN, Verdict.MEMORY, Verdict.CRASHING))


def finding_of(finding: Finding, cluster: str, topology: str, job: bool = False) -> shapes.Finding:
    """Return a finding as text; `unquoted` is its sentence without the user's values."""
    said = sentence(finding, topology)
    return shapes.Finding(
        verdict=finding.verdict.value,
        calm=finding.verdict in CALM,
        sentence=said,
        next=advice(finding, cluster, topology, job),
        component=finding.component,
        task=finding.task,
        figures=dict(finding.figures),
        names=list(finding.names),
        host=finding.host,
        scope=finding.scope,
        unquoted=_unquoted(finding, topology) if finding.quote and finding.verdict not in _QUOTE_CODE else "",
    )


def _unquoted(finding: Finding, topology: str) -> str:
    said = sentence(replace(finding, quote=""), topology)
    return f"{said}; {UNSEEN}" if finding.verdict in _QUOTE_PROCESSES else said


def rank_of(finding: Finding | None) -> int:
    """Return the urgency of a finding, from 0 (no action needed) to 4 (the topology has failed)."""
    if finding is None:
        return 0
    return _RANKS.get(finding.verdict, 0 if finding.verdict in CALM else 2)


def _not_told(signals: Signals) -> str:
    if not signals.unanswered:
        return ""
    return f"the topology master did not answer in time: {listed(signals.unanswered)}"


def doctor_of(signals: Signals, findings: Sequence[Finding], cluster: str) -> shapes.Doctor:
    """Return the answer to `GET /doctor`."""
    return shapes.Doctor(
        topology=signals.topology,
        healthy=all(finding.verdict in CALM for finding in findings),
        window_s=signals.window_s,
        findings=[finding_of(one, cluster, signals.topology, signals.job) for one in findings],
        emitted_per_s=signals.arrival,
        held=signals.held,
        tasks=[
            shapes.TaskSignal(
                instance_id=task.name,
                component=task.component,
                up=task.up,
                executed_per_s=task.executed,
                emitted_per_s=task.emitted,
                busy=task.busy,
                cpu=task.cpu,
                queue_bytes=task.queue_bytes,
                lag_s=task.lag_s,
                silent_s=task.silent_s,
            )
            for task in signals.tasks
        ],
        events_known=signals.events_known,
        not_known=_not_told(signals),
    )
