"""Alert rules for Prometheus. Pure.

Each works with the executors' pages or with the tracker's; a rule whose series are not scraped never fires. They are
about symptoms that a person should look at; `heron doctor` names the cause.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heronpy.metrics.expressions import COMPONENT, TOPOLOGY, by, either, of_sum, of_task

GROUP = "heron"
#: States of `heron_topology_state` in which a topology does not do its work.
BAD_STATES = ("FAILED", "DEAD", "NO MASTER", "NO ANSWER")


@dataclass(frozen=True, slots=True)
class Alert:
    """One rule: it fires when the expression has had a result for `lasts`."""

    name: str
    expr: str
    #: A duration as Prometheus writes it.
    lasts: str
    #: `critical`: now; `warning`: today.
    severity: str
    #: With `{{ $labels.x }}` and `{{ $value }}`.
    summary: str
    #: What to run.
    fix: str

    def as_rule(self) -> dict[str, Any]:
        """As it stands in a file of rules."""
        return {
            "alert": self.name,
            "expr": self.expr,
            "for": self.lasts,
            "labels": {"severity": self.severity},
            "annotations": {"summary": self.summary, "description": self.fix},
        }


#: Labels of what is told of a pipeline of work units.
PIPELINE = f"{TOPOLOGY}, pipeline"
_P = "{{ $labels.pipeline }}"
_T, _C = "{{ $labels.topology }}", "{{ $labels.component }}"
_WHERE = "{{ $labels.cluster }} {{ $labels.topology }}"
_DOCTOR = f"heron doctor {_WHERE}"


def _grown(labels: str, name: str) -> str:
    """That a counter has grown in ten minutes."""
    return by(labels, "sum", f"increase({name}[10m])") + " > 0"


def _rate(name: str) -> str:
    return by(TOPOLOGY, "sum", f"rate({name}[5m])")


ALERTS = (
    Alert(
        "HeronTopologyDown",
        f'{of_sum("heron_topology_state")}{{state=~"{"|".join(BAD_STATES)}"}} == 1', "2m", "critical",
        f"{_T} is {{{{ $labels.state }}}}.", f"heron status {_WHERE}",
    ),
    Alert(
        "HeronTasksDown",
        either(
            by(TOPOLOGY, "count", f"{of_task('__process/__up')} == 0") + " > 0",
            by(TOPOLOGY, "sum", f"{of_sum('heron_component_tasks')} - {of_sum('heron_component_tasks_up')}") + " > 0",
        ),
        "2m", "critical", f"{{{{ $value }}}} processes of {_T} are down.", f"heron status {_WHERE}",
    ),
    Alert(
        "HeronRestarting",
        either(
            by(COMPONENT, "sum", f"increase({of_task('__process/__restarts')}[10m])") + " > 3",
            by(COMPONENT, "sum", f"increase({of_sum('heron_component_restarts_total')}[10m])") + " > 3",
        ),
        "0m", "warning", f"Processes of {_T} {_C} keep being restarted.", f"heron events {_WHERE}",
    ),
    Alert(
        "HeronOutOfMemory",
        _grown(COMPONENT, of_task("__process/__out_of_memory")),
        "0m", "warning", f"A process of {_T} {_C} ran out of memory.", _DOCTOR,
    ),
    Alert(
        "HeronTuplesLost",
        either(
            _grown(TOPOLOGY, of_task("__gateway-lost-tuples")),
            _grown(TOPOLOGY, of_sum("heron_topology_lost_total")),
        ),
        "0m", "critical", f"{_T} has lost tuples.", _DOCTOR,
    ),
    Alert(
        "HeronDeadLetters",
        either(
            _grown(COMPONENT, of_task("__dead-letters")),
            _grown(COMPONENT, of_sum("heron_component_dead_letters_total")),
        ),
        "0m", "warning", f"{_T} {_C} gives up tuples.", f"heron dead-letters {_WHERE}",
    ),
    Alert(
        "HeronBackpressure",
        either(
            by(TOPOLOGY, "max", f"rate({of_task('__time_spent_back_pressure_aggr')}[5m])") + " > 0.5",
            by(TOPOLOGY, "max", of_sum("heron_topology_held_ratio")) + " > 0.5",
        ),
        "10m", "warning", f"The spouts of {_T} are held back more than half of the time.", _DOCTOR,
    ),
    Alert(
        "HeronSaturated",
        either(
            by(COMPONENT, "avg", f"rate({of_task('__busy-time-ns')}[5m])") + " > 0.9",
            by(COMPONENT, "avg", of_sum("heron_component_busy_ratio")) + " > 0.9",
        ),
        "15m", "warning", f"The tasks of {_T} {_C} are busy more than 90 % of the time.", _DOCTOR,
    ),
    Alert(
        "HeronSlow",
        either(
            "histogram_quantile(0.99, "
            + by(f"{TOPOLOGY}, le", "sum", f"rate({of_task('__end-to-end-latency')}[5m])") + ") > 10",
            by(TOPOLOGY, "max", of_sum("heron_topology_latency_p99_seconds")) + " > 10",
        ),
        "10m", "warning", f"One tuple in a hundred takes more than 10 s through {_T}.", _DOCTOR,
    ),
    Alert(
        "HeronFailing",
        either(
            f"{_rate(of_task('__fail-count'))} / {_rate(of_task('__ack-count'))} > 0.01",
            f"{_rate(of_sum('heron_topology_failed_total'))} / {_rate(of_sum('heron_topology_acked_total'))} > 0.01",
        ),
        "5m", "warning", f"More than one tuple in a hundred of {_T} fails.", f"heron exceptions {_WHERE}",
    ),
    Alert(
        "HeronSparkBehind",
        by(TOPOLOGY, "max", of_task("spark-lag-seconds")) + " > 600",
        "5m", "warning", f"The oldest micro-batch of {_T} has waited for more than 10 minutes.", _DOCTOR,
    ),
    Alert(
        "HeronUnitsBehind",
        by(PIPELINE, "max", of_task("units-oldest-seconds")) + " > 600",
        "5m", "warning", f"The oldest byte of pipeline {_P} of {_T} has waited for more than 10 minutes.",
        f"heron units show {_P}",
    ),
    Alert(
        "HeronUnitsFailed",
        by(PIPELINE, "max", of_task("units-failed")) + " > 0",
        "1m", "critical", f"{{{{ $value }}}} units of pipeline {_P} of {_T} were given up and wait for a retry.",
        f"heron units show {_P}",
    ),
    Alert(
        "HeronUnitsBad",
        by(PIPELINE, "max", f"delta({of_task('units-bad-ranges')}[10m])") + " > 0",
        "0m", "warning", f"Pipeline {_P} of {_T} has bytes that cannot be processed.", f"heron units bad {_P}",
    ),
    Alert(
        "HeronFinding",
        f"{of_sum('heron_topology_finding')} == 1", "10m", "warning",
        f"The doctor says of {_T} {_C}: {{{{ $labels.verdict }}}}.", _DOCTOR,
    ),
)  # fmt: skip


def rules() -> dict[str, Any]:
    """A file of rules, as YAML has it."""
    return {"groups": [{"name": GROUP, "rules": [alert.as_rule() for alert in ALERTS]}]}
