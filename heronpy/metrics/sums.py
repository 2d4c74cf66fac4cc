"""The metric names on the tracker's page for Prometheus, which has sums by component from topology masters. Pure.

The names differ from the names on the executors' pages, so both kinds of pages can be scraped without counting values
twice. `of` is the field of `heronpy.views` that has the value.
"""

from __future__ import annotations

from dataclasses import dataclass

from heronpy.metrics.names import Kind

_C, _G = Kind.COUNTER, Kind.GAUGE


@dataclass(frozen=True, slots=True)
class Sum:
    """One metric on the page; its name excludes `_total`."""

    name: str
    kind: Kind
    help: str
    of: str = ""

    @property
    def shown(self) -> str:
        """Name of the series on the page, with `_total` if it is a counter."""
        return f"{self.name}_total" if self.kind is Kind.COUNTER else self.name


STATE = Sum("heron_topology_state", _G, "1 for the current state of the topology, which is in a label.")
FINDING = Sum("heron_topology_finding", _G, "1 for each finding of `heron doctor` that needs action.")
UNREADABLE = Sum("heron_tracker_cluster_unreadable", _G, "1 if the tracker cannot read the state of a cluster.")
DISCARDED = Sum("heron_tracker_series_discarded", _G, "Series omitted from this page because there are too many.")
REFUSED = Sum(
    "heron_tracker_refused_requests", _C, "Requests refused because they lack a token or come from another web site."
)

#: Figures of a topology.
TOPOLOGY = (
    Sum("heron_topology_uptime_seconds", _G, "Time since the topology's first topology master started.", "uptime_s"),
    Sum("heron_topology_tasks", _G, "Tasks in the plan.", "tasks"),
    Sum("heron_topology_tasks_up", _G, "Running tasks.", "tasks_up"),
    Sum("heron_topology_emitted_per_second", _G, "Tuples emitted by the spouts.", "emitted_per_s"),
    Sum("heron_topology_held_ratio", _G, "Share of time for which the spouts were held back.", "held"),
    Sum(
        "heron_topology_latency_p99_seconds",
        _G,
        "99th percentile of the time from a spout to the slowest sink.",
        "latency_p99_s",
    ),
)
#: Totals of a topology, since it was submitted.
TOTALS = (
    Sum("heron_topology_acked", _C, "Tuple trees that were acked.", "acked"),
    Sum("heron_topology_failed", _C, "Tuple trees that failed or timed out.", "failed"),
    Sum("heron_topology_dead_letters", _C, "Tuples that became dead letters.", "dead_letters"),
    Sum("heron_topology_lost", _C, "Tuples lost.", "lost"),
    Sum("heron_topology_restores", _C, "Restores of a part of the topology from a checkpoint.", "restores"),
)
#: Figures of a component, over all its tasks.
COMPONENT = (
    Sum("heron_component_tasks", _G, "Tasks in the plan.", "tasks"),
    Sum("heron_component_tasks_up", _G, "Running tasks.", "up"),
    Sum("heron_component_emitted_per_second", _G, "Tuples emitted.", "emitted_per_s"),
    Sum("heron_component_executed_per_second", _G, "Tuples processed.", "executed_per_s"),
    Sum("heron_component_acked_per_second", _G, "Tuples acked; for a spout, tuple trees.", "acked_per_s"),
    Sum("heron_component_failed_per_second", _G, "Tuples failed; for a spout, tuple trees.", "failed_per_s"),
    Sum("heron_component_busy_ratio", _G, "Mean busy share of the tasks.", "busy"),
    Sum("heron_component_blocked_ratio", _G, "Mean blocked share of the tasks.", "blocked"),
    Sum("heron_component_idle_ratio", _G, "Mean idle share of the tasks.", "idle"),
    Sum("heron_component_busy_max_ratio", _G, "Busy share of the busiest task.", "busy_max"),
    Sum("heron_component_blocked_max_ratio", _G, "Blocked share of the most blocked task.", "blocked_max"),
    Sum("heron_component_queue_tuples", _G, "Tuples waiting in the queues of the tasks.", "queue_tuples"),
    Sum("heron_component_queue_bytes", _G, "Bytes waiting in the queues of the tasks.", "queue_bytes"),
    Sum("heron_component_queue_max_bytes", _G, "Bytes in the longest queue of a task.", "queue_bytes_max"),
    Sum("heron_component_queue_bound_bytes", _G, "Maximum number of bytes in a task's queue.", "queue_bound_bytes"),
    Sum("heron_component_pending_tuples", _G, "Tuples of a spout that are neither acked nor failed.", "pending"),
    Sum("heron_component_execute_p50_seconds", _G, "Median time of one tuple in user code.", "latency_p50_s"),
    Sum(
        "heron_component_execute_p99_seconds",
        _G,
        "99th percentile of the time of one tuple in user code.",
        "latency_p99_s",
    ),
    Sum("heron_component_end_to_end_p50_seconds", _G, "Median time from the spout to this sink.", "end_to_end_p50_s"),
    Sum(
        "heron_component_end_to_end_p99_seconds",
        _G,
        "99th percentile of the time from the spout to this sink.",
        "end_to_end_p99_s",
    ),
    Sum(
        "heron_component_complete_p50_seconds",
        _G,
        "Median time from emitting a tuple to its full ack.",
        "complete_p50_s",
    ),
    Sum(
        "heron_component_complete_p99_seconds",
        _G,
        "99th percentile of the time from emitting a tuple to its full ack.",
        "complete_p99_s",
    ),
    Sum("heron_component_cpu_cores", _G, "Used CPU cores.", "cpu"),
    Sum("heron_component_memory_bytes", _G, "Resident memory.", "memory_bytes"),
    Sum("heron_component_memory_max_bytes", _G, "Resident memory of the largest task.", "memory_bytes_max"),
    Sum("heron_component_memory_limit_bytes", _G, "Memory limit of one task.", "memory_limit_bytes"),
    Sum("heron_component_restarts", _C, "Restarts of tasks, as recorded by the topology master.", "restarts"),
    Sum("heron_component_dead_letters", _C, "Tuples that became dead letters.", "dead_letters"),
    Sum("heron_component_lost", _C, "Tuples lost.", "lost"),
)

#: Every name on the page, with `_total`.
SUMS: dict[str, Sum] = {
    one.shown: one for one in (STATE, FINDING, UNREADABLE, DISCARDED, REFUSED, *TOPOLOGY, *TOTALS, *COMPONENT)
}
