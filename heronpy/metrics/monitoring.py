"""Alert rules for Prometheus and a dashboard for Grafana, based on heronpy's metrics pages. Pure.

The dashboard shows a topology's work and limits, from either kind of page. Each alert works with the executors' pages
or with the tracker's; an alert whose series are not scraped never fires. Alerts describe symptoms that
need attention; `heron doctor` names the cause.

Expressions use registered names. The executors' pages have a series per task, the tracker's page has sums by component.
Either kind of page alone must give the same result: `either` takes the executors' value, or else the tracker's.

"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heronpy.metrics.names import METRICS, Kind
from heronpy.metrics.prometheus import own_name
from heronpy.metrics.sums import SUMS

GROUP = "heron"
#: States of `heron_topology_state` in which a topology does not process tuples.
BAD_STATES = ("FAILED", "DEAD", "NO MASTER", "NO ANSWER")
#: Labels that identify a topology and a component. The first three are labels of the targets of `heron metrics
#: targets`.
TOPOLOGY = "cluster, role, environ, topology"
COMPONENT = f"{TOPOLOGY}, component"
_DATA = {"type": "prometheus", "uid": "${datasource}"}
_OF = 'cluster=~"$cluster", topology="$topology"'
_WIDTH, _HEIGHT = 12, 8
_RATE = "$__rate_interval"


def of_task(name: str) -> str:
    """Return the name of a Heron metric on the executors' pages."""
    metric = METRICS[name]
    suffix = {Kind.COUNTER: "_total", Kind.HISTOGRAM: "_bucket", Kind.GAUGE: ""}[metric.kind]
    return own_name(metric) + suffix


def of_sum(name: str) -> str:
    """Return the name of a sum on the tracker's page. Raises KeyError if the name is unknown."""
    return SUMS[name].shown


def by(labels: str, aggregate: str, expression: str) -> str:
    return f"{aggregate} by ({labels}) ({expression})"


def either(executors: str, tracker: str) -> str:
    """Return an expression for the executors' value, or else the tracker's value."""
    return f"{executors} or {tracker}"


@dataclass(frozen=True, slots=True)
class Alert:
    """One rule: it fires when the expression has had a result for `lasts`."""

    name: str
    expr: str
    #: A duration in the format of Prometheus.
    lasts: str
    #: `critical` (act now) or `warning` (act today).
    severity: str
    #: Text of the alert, with `{{ $labels.x }}` and `{{ $value }}`.
    summary: str
    #: The command to run.
    fix: str

    def as_rule(self) -> dict[str, Any]:
        """Return the rule in the format of a rules file."""
        return {
            "alert": self.name,
            "expr": self.expr,
            "for": self.lasts,
            "labels": {"severity": self.severity},
            "annotations": {"summary": self.summary, "description": self.fix},
        }


#: Labels of metrics of a pipeline of work units.
PIPELINE = f"{TOPOLOGY}, pipeline"
_P = "{{ $labels.pipeline }}"
_T, _C = "{{ $labels.topology }}", "{{ $labels.component }}"
_WHERE = "{{ $labels.cluster }} {{ $labels.topology }}"
_DOCTOR = f"heron doctor {_WHERE}"


def _grown(labels: str, name: str) -> str:
    """Return the condition that a counter has increased in the last 10 minutes."""
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
        "0m", "warning", f"{_T} {_C} turns tuples into dead letters.", f"heron dead-letters {_WHERE}",
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
        "10m", "warning", f"1 % of the tuples of {_T} take more than 10 s from spout to sink.", _DOCTOR,
    ),
    Alert(
        "HeronFailing",
        either(
            f"{_rate(of_task('__fail-count'))} / {_rate(of_task('__ack-count'))} > 0.01",
            f"{_rate(of_sum('heron_topology_failed_total'))} / {_rate(of_sum('heron_topology_acked_total'))} > 0.01",
        ),
        "5m", "warning", f"More than 1 % of the tuples of {_T} fail.", f"heron exceptions {_WHERE}",
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
        "1m", "critical", f"{{{{ $value }}}} units of pipeline {_P} of {_T} have failed and wait for a retry.",
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
        f"heron doctor reports for {_T} {_C}: {{{{ $labels.verdict }}}}.", _DOCTOR,
    ),
)  # fmt: skip


def rules() -> dict[str, Any]:
    """Return the content of a rules file, to be written as YAML."""
    return {"groups": [{"name": GROUP, "rules": [alert.as_rule() for alert in ALERTS]}]}


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart, with pairs of an expression and the legend of its lines. `unit` is a Grafana unit."""

    title: str
    unit: str
    lines: tuple[tuple[str, str], ...]


def _per_s(name: str, aggregate: str = "sum", labels: str = "component") -> str:
    return by(labels, aggregate, f"rate({of_task(name)}{{{_OF}}}[{_RATE}])")


def _now(name: str, labels: str = "component", aggregate: str = "sum") -> str:
    return by(labels, aggregate, f"{name}{{{_OF}}}")


def _sum(name: str, labels: str = "component", aggregate: str = "sum") -> str:
    return _now(of_sum(name), labels, aggregate)


def _quantile(name: str, labels: str) -> str:
    buckets = by(f"{labels}, le" if labels else "le", "sum", f"rate({of_task(name)}{{{_OF}}}[{_RATE}])")
    return f"histogram_quantile(0.99, {buckets})"


_NAMED = "{{component}}"
PANELS = (
    Panel(
        "Tuples emitted", "ops",
        ((either(_per_s("__emit-count"), _sum("heron_component_emitted_per_second")), _NAMED),),
    ),
    Panel(
        "Tuples processed", "ops",
        ((either(_per_s("__execute-count"), _sum("heron_component_executed_per_second")), _NAMED),),
    ),
    Panel(
        "Mean busy share of tasks", "percentunit",
        ((either(_per_s("__busy-time-ns", "avg"), _sum("heron_component_busy_ratio", aggregate="avg")), _NAMED),),
    ),
    Panel(
        "Mean blocked share of tasks", "percentunit",
        ((either(_per_s("__blocked-time-ns", "avg"), _sum("heron_component_blocked_ratio", aggregate="avg")), _NAMED),),
    ),
    Panel(
        "Spouts held back", "percentunit",
        ((
            either(
                _per_s("__time_spent_back_pressure_aggr", "max", "topology"),
                _sum("heron_topology_held_ratio", "topology", "max"),
            ),
            "held",
        ),),
    ),
    Panel(
        "End-to-end latency, 99th percentile", "s",
        ((
            either(_quantile("__end-to-end-latency", "component"), _sum("heron_component_end_to_end_p99_seconds")),
            _NAMED,
        ),),
    ),
    Panel(
        "Latency of process calls, 99th percentile", "s",
        ((either(_quantile("__execute-latency", "component"), _sum("heron_component_execute_p99_seconds")), _NAMED),),
    ),
    Panel(
        "Tuples waiting for tasks", "short",
        ((
            either(_now(of_task("__gateway-in-stream-queue-size")), _sum("heron_component_queue_tuples")),
            _NAMED,
        ),),
    ),
    Panel(
        "Failed, dead letters, lost", "ops",
        (
            (
                either(
                    _per_s("__fail-count", labels="topology"), _sum("heron_component_failed_per_second", "topology")
                ),
                "failed",
            ),
            (_per_s("__dead-letters", labels="topology"), "dead letters"),
            (_per_s("__gateway-lost-tuples", labels="topology"), "lost"),
        ),
    ),
    Panel(
        "Restarts in 10 minutes", "short",
        ((
            either(
                by("component", "sum", f"increase({of_task('__process/__restarts')}{{{_OF}}}[10m])"),
                by("component", "sum", f"increase({of_sum('heron_component_restarts_total')}{{{_OF}}}[10m])"),
            ),
            _NAMED,
        ),),
    ),
    Panel(
        "CPU", "short",
        ((either(_per_s("__process/__cpu_seconds"), _sum("heron_component_cpu_cores")), _NAMED),),
    ),
    Panel(
        "Memory", "bytes",
        ((either(_now(of_task("__process/__resident_bytes")), _sum("heron_component_memory_bytes")), _NAMED),),
    ),
)  # fmt: skip


def dashboard() -> dict[str, Any]:
    """Return the JSON model of the dashboard, for Dashboards > New > Import in Grafana."""
    return {
        "title": "Heron topology",
        "uid": "heron-topology",
        "tags": ["heron"],
        "editable": True,
        "schemaVersion": 39,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "10s",
        "templating": {"list": [_source(), _variable("cluster", True), _variable("topology", False)]},
        "panels": [_panel(number, panel) for number, panel in enumerate(PANELS)],
    }


def _source() -> dict[str, Any]:
    return {"name": "datasource", "label": "Source", "type": "datasource", "query": "prometheus"}


def _variable(label: str, every: bool) -> dict[str, Any]:
    """Return a variable for choosing the value of a label that exists on both kinds of pages."""
    pages = f'{{__name__=~"{of_task("__process/__up")}|{of_sum("heron_topology_state")}"}}'
    query = f"label_values({pages}, {label})"
    return {
        "name": label,
        "label": label.capitalize(),
        "type": "query",
        "datasource": _DATA,
        "query": {"query": query, "refId": label},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "includeAll": every,
        # Match pages that are scraped without the label of a cluster, too.
        **({"allValue": ".*", "current": {"text": "All", "value": "$__all"}} if every else {}),
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    place = {"x": number % 2 * _WIDTH, "y": number // 2 * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
    targets = [
        {"refId": chr(ord("A") + index), "datasource": _DATA, "expr": expr, "legendFormat": legend}
        for index, (expr, legend) in enumerate(panel.lines)
    ]
    return {
        "id": number + 1,
        "title": panel.title,
        "type": "timeseries",
        "datasource": _DATA,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": targets,
    }
