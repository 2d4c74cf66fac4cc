"""The doctor's findings as structs (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from heronpy.health.findings import CALM, Finding, Verdict, from_proto
from heronpy.health.signals import Signals
from heronpy.health.texts import advice, sentence
from heronpy.proto import control_pb2
from heronpy.views import advice as shapes

#: How urgent a finding is; a verdict that is not named needs action, as 2 says.
_RANKS = {Verdict.FAILED: 4, Verdict.DOWN: 3, Verdict.HUNG: 3, Verdict.MEMORY: 3, Verdict.CRASHING: 3,
          Verdict.LOSSES: 3, Verdict.CHANGING: 1}  # fmt: skip


def findings_of(messages: Iterable[control_pb2.HealthFinding]) -> list[Finding]:
    """Findings that a topology master has made; verdicts of a newer release are left out."""
    return [found for found in map(from_proto, messages) if found is not None]


def finding_of(finding: Finding, cluster: str, topology: str, *, values: bool = False) -> shapes.Finding:
    """One finding in words; without `values` it does not quote the key of a skew, only its share."""
    if finding.verdict is Verdict.SKEW and not values:
        finding = replace(finding, quote="")
    return shapes.Finding(
        verdict=finding.verdict.value,
        calm=finding.verdict in CALM,
        sentence=sentence(finding, topology),
        next=advice(finding, cluster, topology),
        component=finding.component,
        task=finding.task,
        figures=dict(finding.figures),
        names=list(finding.names),
        host=finding.host,
    )


def rank_of(finding: Finding | None) -> int:
    """How urgent it is: 0 needs nothing, 4 has failed."""
    if finding is None:
        return 0
    return _RANKS.get(finding.verdict, 0 if finding.verdict in CALM else 2)


def doctor_of(signals: Signals, findings: Sequence[Finding], cluster: str, *, values: bool = False) -> shapes.Doctor:
    """`GET /doctor`; `values` as in `finding_of`."""
    return shapes.Doctor(
        topology=signals.topology,
        healthy=all(finding.verdict in CALM for finding in findings),
        window_s=signals.window_s,
        findings=[finding_of(one, cluster, signals.topology, values=values) for one in findings],
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
    )
