"""The figures of a topology by component, both current and by minute, for any number of viewers. Pure.

`take` receives the metrics reports; other figures come from the registry. Requests within `SHARED_S` share one reply,
so additional viewers cost nothing. The first report after the end of a minute closes the minute. A minute without any
report stays unknown.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from heronpy.common.ids import edge_id
from heronpy.common.setting_types import InstanceSettings
from heronpy.common.states import UP_STATES, holds, lifecycle_name
from heronpy.plan.component_config import live_concurrency
from heronpy.plan.validation import not_scalable, rereading
from heronpy.proto import control_pb2
from heronpy.tmaster.loads import Loads, Part, Window
from heronpy.tmaster.machine import TopologyMaster
from heronpy.tmaster.minutes import MINUTE_S, NAMES, Minutes, Row
from heronpy.tmaster.totals import COUNTERS
from heronpy.views.load import ComponentLoad, EdgeLoad, Load, LoadAnswer, culprit_of
from heronpy.views.overview import totals_of
from heronpy.views.past import metric_name

SHARED_S = 0.45
CULPRITS_MAX = 10
#: Largest counter: counters are u64 on the wire, even if a broken process reports more.
_MOST = (1 << 64) - 1
#: The series of a component, and the field of its row from which each is taken.
_OF_COMPONENT = [(name, metric_name(name)) for name in NAMES if metric_name(name) in ComponentLoad.__struct_fields__]
_DEAD_LETTERS, _LOST = COUNTERS.index("dead_letters"), COUNTERS.index("lost_tuples")


class Figures:
    def __init__(
        self,
        machine: TopologyMaster,
        wall_offset_s: float,
        instance: Callable[[str], InstanceSettings] = lambda component: InstanceSettings(in_queue_bytes_max=0),
    ) -> None:
        """`instance` returns the settings of a component's tasks."""
        self._machine = machine
        self._wall_offset_s = wall_offset_s
        self._instance = instance
        self.loads = Loads()
        self.minutes = Minutes()
        self._number: int | None = None
        self._shared: LoadAnswer | None = None
        self._shared_at = float("-inf")
        #: By process: the incarnation of its executor and the last reported number of restarts.
        self._seen: dict[str, tuple[int, int]] = {}
        self._restarts: defaultdict[str, int] = defaultdict(int)
        #: Restarts, dead letters and losses of each component when the last minute was closed.
        self._closed: dict[str, tuple[int, int, int]] = {}

    # ---- reports ----------------------------------------------------------------------------

    def take(self, report: control_pb2.MetricsReport, now: float) -> None:
        self.loads.take(report, now)

    def forget(self, process: str) -> None:
        """Drop a process that is no longer part of the topology."""
        self.loads.forget(process)
        self._seen.pop(process, None)

    def turn(self, now: float) -> bool:
        """Close the minute if it is over; return whether a minute was added. Must be called before `take`."""
        number = int((now + self._wall_offset_s) // MINUTE_S)
        if self._number is None:
            self._number = number
            self._closed = {name: _counts(part.row) for name, part in self._parts().items()}
        if number <= self._number:
            return False
        closed, self._number = self._number, number
        self._close(closed, now)
        return True

    def end(self, now: float) -> None:
        """Close the current minute, because the topology master is ending."""
        if self._number is not None:
            self._close(self._number, now)

    def _close(self, number: int, now: float) -> None:
        parts = self._parts()
        window = self.loads.turn(now, parts)
        self.minutes.add(number, self._rows(parts, window))
        self._closed = {name: _counts(part.row) for name, part in parts.items()}

    # ---- answers ----------------------------------------------------------------------------

    def reply(self, plan_version: int, now: float) -> LoadAnswer:
        """Return the figures without findings, and the plan if it is newer than the given version."""
        if self._shared is None or not 0 <= now - self._shared_at < SHARED_S:
            self._shared, self._shared_at = self._look(now), now
        book = self._machine.shared.book
        if book.plan is None or book.plan.version <= plan_version:
            return self._shared
        return replace(self._shared, plan=book.plan.SerializeToString())

    def _look(self, now: float) -> LoadAnswer:
        machine, shared = self._machine, self._machine.shared
        book, registry = shared.book, shared.registry
        parts, totals = self._parts(), totals_of(machine.totals(0.0), registry.totals.dropped)
        window, culprits = self.loads.recent(now, parts), registry.culprits()
        rows = [part.row for part in parts.values()]
        uptime_s = max(0.0, now + self._wall_offset_s - registry.totals.started_at)
        _cap(rows, uptime_s)
        for row in rows:
            # Some losses of the topology were not counted, so a component without a count may still have losses.
            row.lost = None if totals.lost_unknown and not row.lost else row.lost
        load = Load(
            plan_version=book.plan.version if book.plan is not None else 0,
            state=lifecycle_name(machine.lifecycle),
            cause=machine.cause(now),
            at=now + self._wall_offset_s,
            window_s=window.over_s or None,
            since=self.loads.began + self._wall_offset_s if self.loads.began is not None else None,
            components=rows,
            edges=self._edges(parts),
            held=window.held,
            culprits=[culprit_of(one) for one in culprits if holds(one)][:CULPRITS_MAX],
            avoided=[culprit_of(one) for one in culprits if one.avoided and not one.drops][:CULPRITS_MAX],
            dropping=[culprit_of(one) for one in culprits if one.drops][:CULPRITS_MAX],
            dropped=registry.totals.dropped,
            **_slowest(rows),
        )
        return LoadAnswer(
            topology_id=book.topology.id,
            load=load,
            uptime_s=uptime_s,
            totals=totals,
            last_event=shared.event_log.last,
            still_s={
                name: max(0.0, now - part.emitted_at)
                for name, part in parts.items()
                if part.row.kind == "spout" and part.emitted_at is not None
            },
            findings=[],
        )

    def _edges(self, parts: dict[str, Part]) -> list[EdgeLoad]:
        # Divide by the number of receivers of a stream, because the source counts an emitted tuple once per receiving
        # component.
        bolts = self._machine.shared.book.topology.bolts
        inputs = [{(one.stream.component_name, one.stream.id) for one in bolt.inputs} for bolt in bolts]
        receivers = Counter(stream for streams in inputs for stream in streams)
        found = []
        for bolt in bolts:
            for given in bolt.inputs:
                source, stream = given.stream.component_name, given.stream.id
                part, tuples = parts.get(source), None
                if part is not None and part.row.emitted_per_s is not None:
                    tuples = part.streams.get(stream, 0.0) / receivers[source, stream]
                found.append(EdgeLoad(id=edge_id(source, stream, bolt.comp.name), tuples_per_s=tuples))
        return found

    # ---- parts ------------------------------------------------------------------------------

    def _parts(self) -> dict[str, Part]:
        """Return the components in the registry, spouts first, in the order of the topology."""
        topology, registry = self._machine.shared.book.topology, self._machine.shared.registry
        sources = {given.stream.component_name for bolt in topology.bolts for given in bolt.inputs}
        parts = {
            name: Part.of(name, spout=spout, sink=name not in sources)
            for spout, kind in ((True, topology.spouts), (False, topology.bolts))
            for name in [one.comp.name for one in kind]
        }
        for task, place in registry.places.items():
            part = parts.get(place.component)
            if part is None:
                continue  # an update is adding or removing the task
            row = part.row
            row.tasks += 1
            status = registry.tasks.get(task)
            if status is None:
                continue
            runs = registry.end_of(task) is None
            row.up += runs and status.state in UP_STATES
            if row.pending is not None:
                row.pending += status.pending
            if row.queue_bytes is not None and row.queue_tuples is not None:
                row.queue_bytes += status.in_queue_bytes
                row.queue_tuples += status.in_queue_tuples
            if runs and status.state == control_pb2.TASK_RUNNING:
                part.call_s = max(part.call_s, status.loop_age_s)
            if status.in_queue_bytes:
                part.note_largest("queue_bytes_max", "fullest", status.in_queue_bytes, place.name)
        self._take_processes(parts)
        usual_s, limits = self.minutes.baseline.usual_s, self._machine.shared.book.memory_limits
        concurrent = {bolt.comp.name for bolt in topology.bolts if bolt.comp.asynchronous}
        dead_letters, lost = Counter[str](), Counter[str]()
        for counts in registry.totals.tasks.values():
            dead_letters[counts.component] += counts.before[_DEAD_LETTERS] + counts.latest[_DEAD_LETTERS]
            lost[counts.component] += counts.before[_LOST] + counts.latest[_LOST]
        checkpoints = self._machine.checkpoints
        plain, again = checkpoints.plain if checkpoints is not None else (), rereading(topology)
        for name, part in parts.items():
            row = part.row
            row.restarts, row.dead_letters, row.lost = (
                min(counted[name], _MOST) for counted in (self._restarts, dead_letters, lost)
            )
            row.not_scalable = not_scalable(name, plain, again)
            settings = self._instance(name)
            row.queue_bound_bytes = settings.in_queue_bytes_max or None if row.kind == "bolt" else None
            row.memory_limit_bytes = limits.get(name) or settings.memory_soft_limit_bytes or None
            row.usual_s = usual_s.get(name)
            if name in concurrent:
                row.concurrency = live_concurrency(topology, name) or settings.async_concurrency
        return parts

    def _take_processes(self, parts: dict[str, Part]) -> None:
        """Count the restarts of tasks, and the memory that tasks share with other processes."""
        registry = self._machine.shared.registry
        for executor in registry.executors.values():
            epoch = executor.record.epoch
            for process in executor.record.processes:
                place = registry.places.get(process.task_id)
                if place is None or place.name != process.name:
                    continue
                if process.pss_bytes and place.component in parts:
                    parts[place.component].shared_bytes += max(0, process.rss_bytes - process.pss_bytes)
                known = self._seen.get(process.name, (epoch, process.restarts))
                before = known[1] if known[0] == epoch else 0
                self._restarts[place.component] += max(0, process.restarts - before)
                self._seen[process.name] = epoch, process.restarts

    def _rows(self, parts: dict[str, Part], window: Window) -> dict[str, Row]:
        rows: dict[str, Row] = {name: self._minute_row(part.row) for name, part in parts.items()}
        arrivals = [
            part.row.emitted_per_s
            for part in parts.values()
            if part.row.kind == "spout" and part.row.emitted_per_s is not None
        ]
        plan = self._machine.shared.book.plan
        rows[""] = {
            "emitted": sum(arrivals) if arrivals else None,
            "tasks": sum(part.row.tasks for part in parts.values()),
            "up": sum(part.row.up for part in parts.values()),
            "held": window.held,
            "plan_version": plan.version if plan is not None else None,
            "spark_waiting": window.spark_waiting,
            "spark_lag_s": window.spark_lag_s,
            "spark_done": window.spark_done,
            "spark_batch_s": window.spark_batch_s,
        }
        return rows

    def _minute_row(self, row: ComponentLoad) -> Row:
        found: dict[str, float | None] = {name: getattr(row, metric) for name, metric in _OF_COMPONENT}
        counts = _counts(row)
        before = self._closed.get(row.name, counts)
        for name, earlier, later in zip(("restarts", "dead_letters", "lost"), before, counts, strict=True):
            found[name] = max(0, later - earlier)
        found["fullest_bytes"] = (row.queue_bytes_max or 0) if row.kind == "bolt" else None
        return found


def _counts(row: ComponentLoad) -> tuple[int, int, int]:
    return row.restarts or 0, row.dead_letters or 0, row.lost or 0


def _cap(rows: list[ComponentLoad], age_s: float) -> None:
    """Limit latencies to the topology's age, because a quantile's bucket may exceed this age."""
    for row in rows:
        for name in ("end_to_end_p50_s", "end_to_end_p99_s", "complete_p50_s", "complete_p99_s"):
            if (value := getattr(row, name)) is not None:
                setattr(row, name, min(value, age_s))


def _slowest(rows: list[ComponentLoad]) -> dict[str, Any]:
    ends = [(one.end_to_end_p50_s, one.end_to_end_p99_s, one.end_to_end_at_least) for one in rows]
    if not any(p99 is not None for _, p99, _ in ends):
        ends = [(one.complete_p50_s, one.complete_p99_s, one.complete_at_least) for one in rows]
    return {
        "latency_p50_s": max((p50 for p50, _, _ in ends if p50 is not None), default=None),
        "latency_p99_s": max((p99 for _, p99, _ in ends if p99 is not None), default=None),
        # An unknown latency may be longer than the longest known one.
        "latency_at_least": any(at_least for _, _, at_least in ends),
    }
