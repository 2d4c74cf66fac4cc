"""A dashboard for Grafana: what a topology does, and what holds it back, over either kind of page. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heronpy.metrics.expressions import by, either, of_sum, of_task

_DATA = {"type": "prometheus", "uid": "${datasource}"}
_OF = 'cluster=~"$cluster", topology="$topology"'
_WIDTH, _HEIGHT = 12, 8
_RATE = "$__rate_interval"


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart: pairs of an expression and the legend of its lines. `unit` is one of Grafana's."""

    title: str
    unit: str
    lines: tuple[tuple[str, str], ...]


def _rate(name: str, aggregate: str = "sum", labels: str = "component") -> str:
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
        ((either(_rate("__emit-count"), _sum("heron_component_emitted_per_second")), _NAMED),),
    ),
    Panel(
        "Tuples processed", "ops",
        ((either(_rate("__execute-count"), _sum("heron_component_executed_per_second")), _NAMED),),
    ),
    Panel(
        "Busy, mean task", "percentunit",
        ((either(_rate("__busy-time-ns", "avg"), _sum("heron_component_busy_ratio", aggregate="avg")), _NAMED),),
    ),
    Panel(
        "Kept from working, mean task", "percentunit",
        ((either(_rate("__blocked-time-ns", "avg"), _sum("heron_component_blocked_ratio", aggregate="avg")), _NAMED),),
    ),
    Panel(
        "Spouts held back", "percentunit",
        ((
            either(
                _rate("__time_spent_back_pressure_aggr", "max", "topology"),
                _sum("heron_topology_held_ratio", "topology", "max"),
            ),
            "held",
        ),),
    ),
    Panel(
        "Latency end to end, 99 %", "s",
        ((
            either(_quantile("__end-to-end-latency", "component"), _sum("heron_component_end_to_end_p99_seconds")),
            _NAMED,
        ),),
    ),
    Panel(
        "Latency of one call of process, 99 %", "s",
        ((either(_quantile("__execute-latency", "component"), _sum("heron_component_execute_p99_seconds")), _NAMED),),
    ),
    Panel(
        "Waiting in front of tasks", "short",
        ((
            either(_now(of_task("__gateway-in-stream-queue-size")), _sum("heron_component_queue_tuples")),
            _NAMED,
        ),),
    ),
    Panel(
        "Failed, given up, lost", "ops",
        (
            (
                either(
                    _rate("__fail-count", labels="topology"), _sum("heron_component_failed_per_second", "topology")
                ),
                "failed",
            ),
            (_rate("__dead-letters", labels="topology"), "dead letters"),
            (_rate("__gateway-lost-tuples", labels="topology"), "lost"),
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
        ((either(_rate("__process/__cpu_seconds"), _sum("heron_component_cpu_cores")), _NAMED),),
    ),
    Panel(
        "Memory", "bytes",
        ((either(_now(of_task("__process/__resident_bytes")), _sum("heron_component_memory_bytes")), _NAMED),),
    ),
)  # fmt: skip


def dashboard() -> dict[str, Any]:
    """The model, for Dashboards > New > Import."""
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
    """A choice among the values of a label; the names are those that either page has."""
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
        # A page that is scraped without the label of a cluster matches, too.
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
