"""The figures of a topology by component, for any number of viewers: now, and minute by minute. Pure.

`take` gets the metrics reports; the rest comes from the registry. One reply serves everybody who asks within
`SHARED_S`, so viewers cost nothing. A minute is closed by the first report after its end; a minute without any report
stays unknown.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from heronpy.common.ids import edge_id, instance_id
from heronpy.common.states import UP_STATES, lifecycle_name
from heronpy.proto import control_pb2
from heronpy.tmaster.loads import Extreme, Loads, Rates, Times, Window
from heronpy.tmaster.machine import TopologyMaster
from heronpy.tmaster.minutes import MINUTE_S, Minutes, Row
from heronpy.tmaster.totals import COUNTERS
from heronpy.views.load import IN_CALL_S, ComponentLoad, EdgeLoad, Load, LoadAnswer, culprit_of
from heronpy.views.overview import totals_of

SHARED_S = 0.45
CULPRITS_MAX = 10
#: Counters are u64 on the wire, whatever a broken process reports.
_MOST = (1 << 64) - 1
_NO_TIMES = (None, None, False)
_DEAD_LETTERS, _LOST = COUNTERS.index("dead_letters"), COUNTERS.index("lost_tuples")


@dataclass(slots=True)
class _Part:
    """One component, as the registry knows it."""

    name: str
    spout: bool
    tasks: int = 0
    up: int = 0
    queue_bytes: int = 0
    queue_tuples: int = 0
    fullest: Extreme | None = None
    pending: int = 0
    #: For how long a task of it has been in one call.
    call_s: float = 0.0
    dead_letters: int = 0
    lost: int = 0
    #: By how much the resident sizes of its tasks exceed what they take together, as forked processes share pages.
    shared_bytes: int = 0


class Figures:
    """See the module."""

    def __init__(
        self,
        machine: TopologyMaster,
        wall_offset_s: float,
        queue_bound: Callable[[str], int] = lambda component: 0,
        memory_limit: Callable[[str], int] = lambda component: 0,
    ) -> None:
        """`queue_bound` and `memory_limit` give bytes per task of a component; 0 is none."""
        self._machine = machine
        self._wall_offset_s = wall_offset_s
        self._queue_bound = queue_bound
        self._memory_limit = memory_limit
        self.loads = Loads()
        self.minutes = Minutes()
        self._number: int | None = None
        self._shared: LoadAnswer | None = None
        self._shared_at = float("-inf")
        #: Per process: the incarnation of its executor, and its restarts when last seen.
        self._seen: dict[str, tuple[int, int]] = {}
        self._restarts: defaultdict[str, int] = defaultdict(int)
        #: Restarts, dead letters and losses of each component when the last minute was closed.
        self._closed: dict[str, tuple[int, int, int]] = {}

    # ---- reports ----------------------------------------------------------------------------

    def take(self, report: control_pb2.MetricsReport, now: float) -> None:
        """Take a report of any process."""
        self.loads.take(report, now)

    def forget(self, process: str) -> None:
        """Drop a process that is no longer part of the topology."""
        self.loads.forget(process)
        self._seen.pop(process, None)

    def turn(self, now: float) -> bool:
        """Close the minute if it is over; whether one was added. To be called before `take`."""
        number = int((now + self._wall_offset_s) // MINUTE_S)
        if self._number is None:
            self._number = number
            self._closed = {name: self._counts(part) for name, part in self._parts().items()}
        if number <= self._number:
            return False
        closed, self._number = self._number, number
        window, parts = self.loads.turn(now), self._parts()
        self.minutes.add(closed, self._rows(parts, window, now))
        self._closed = {name: self._counts(part) for name, part in parts.items()}
        return True

    def end(self, now: float) -> None:
        """Close the minute that has begun, because the topology master ends."""
        if self._number is not None:
            self.minutes.add(self._number, self._rows(self._parts(), self.loads.turn(now), now))

    # ---- answers ----------------------------------------------------------------------------

    def reply(self, plan_version: int, now: float) -> LoadAnswer:
        """The figures without findings, with the plan if it is newer than this version."""
        if self._shared is None or not 0 <= now - self._shared_at < SHARED_S:
            self._shared, self._shared_at = self._look(now), now
        book = self._machine.shared.book
        if book.plan is None or book.plan.version <= plan_version:
            return self._shared
        return replace(self._shared, plan=book.plan.SerializeToString())

    def _look(self, now: float) -> LoadAnswer:
        machine, shared = self._machine, self._machine.shared
        book, registry = shared.book, shared.registry
        window, totals = self.loads.recent(now), totals_of(machine.totals(0.0))
        parts, sources = self._parts(), self._sources()
        rows = [self._row(part, window.components.get(name), name not in sources, now) for name, part in parts.items()]
        for row in rows:
            # Some losses of the topology were not counted, so a component without a count may still have losses.
            row.lost = None if totals.lost_unknown and not row.lost else row.lost
        emitted_at = {name: rates.emitted_at for name, rates in window.components.items()}
        load = Load(
            plan_version=book.plan.version if book.plan is not None else 0,
            state=lifecycle_name(machine.lifecycle),
            cause=machine.cause(now),
            at=now + self._wall_offset_s,
            window_s=window.over_s or None,
            since=self.loads.began + self._wall_offset_s if self.loads.began is not None else None,
            components=rows,
            edges=self._edges(window),
            held=window.held,
            culprits=[culprit_of(one) for one in registry.culprits()[:CULPRITS_MAX]],
            **_slowest(rows),
        )
        return LoadAnswer(
            topology_id=book.topology.id,
            load=load,
            uptime_s=max(0.0, now + self._wall_offset_s - registry.totals.started_at),
            totals=totals,
            last_event=shared.journal.last,
            still_s={
                name: max(0.0, now - at)
                for name, part in parts.items()
                if part.spout and (at := emitted_at.get(name)) is not None
            },
            findings=[],
        )

    def _edges(self, window: Window) -> list[EdgeLoad]:
        # Of the source, which counts a tuple once per component that receives it: what leaves a component is what it
        # emits, in one window.
        bolts = self._machine.shared.book.topology.bolts
        inputs = [{(one.stream.component_name, one.stream.id) for one in bolt.inputs} for bolt in bolts]
        receivers = Counter(stream for streams in inputs for stream in streams)
        found = []
        for bolt in bolts:
            for given in bolt.inputs:
                source, stream = given.stream.component_name, given.stream.id
                rates, tuples = window.components.get(source), None
                if rates is not None and rates.emitted is not None:
                    tuples = rates.streams.get(stream, 0.0) / receivers[source, stream]
                found.append(EdgeLoad(id=edge_id(source, stream, bolt.comp.name), tuples_per_s=tuples))
        return found

    def _row(self, part: _Part, known: Rates | None, sink: bool, now: float) -> ComponentLoad:
        rates = known if known is not None else Rates()
        restarts, dead_letters, lost = (min(count, _MOST) for count in self._counts(part))
        frames = (rates.sent if part.spout else rates.taken) or (None, None)
        busy_max, busiest = _worst(part, rates.busiest)
        blocked_max, most_blocked = _worst(part, rates.most_blocked)
        queue_bytes_max, fullest = _worst(part, part.fullest)
        memory_bytes_max, largest = _worst(part, rates.largest)
        latencies = _latencies(part, rates, sink, now) if known is not None else (None, None, None)
        execute, end_to_end, complete = (one or _NO_TIMES for one in latencies)
        return ComponentLoad(
            name=part.name,
            kind="spout" if part.spout else "bolt",
            tasks=part.tasks,
            up=part.up,
            emitted_per_s=rates.emitted,
            executed_per_s=rates.executed,
            acked_per_s=rates.acked,
            failed_per_s=rates.failed,
            frames_per_s=frames[0],
            tuples_per_frame=frames[1] / frames[0] if frames[0] and frames[1] is not None else None,
            busy=rates.busy,
            blocked=rates.blocked,
            idle=rates.idle,
            busy_max=busy_max,
            busiest=busiest,
            blocked_max=blocked_max,
            most_blocked=most_blocked,
            queue_tuples=None if part.spout else part.queue_tuples,
            queue_bytes=None if part.spout else part.queue_bytes,
            queue_bytes_max=int(queue_bytes_max) if queue_bytes_max is not None else None,
            fullest=fullest,
            queue_bound_bytes=None if part.spout else self._queue_bound(part.name) or None,
            pending=part.pending if part.spout else None,
            latency_p50_s=execute[0],
            latency_p99_s=execute[1],
            latency_at_least=execute[2],
            end_to_end_p50_s=end_to_end[0],
            end_to_end_p99_s=end_to_end[1],
            end_to_end_at_least=end_to_end[2],
            complete_p50_s=complete[0],
            complete_p99_s=complete[1],
            complete_at_least=complete[2],
            cpu=rates.cpu,
            memory_bytes=int(_memory(part, rates) or 0) or None,
            memory_bytes_max=int(memory_bytes_max) if memory_bytes_max is not None else None,
            largest=largest,
            memory_limit_bytes=self._memory_limit(part.name) or None,
            restarts=restarts,
            dead_letters=dead_letters,
            lost=lost,
        )

    def _sources(self) -> set[str]:
        """The components of which somebody receives what they emit; all others are sinks."""
        bolts = self._machine.shared.book.topology.bolts
        return {given.stream.component_name for bolt in bolts for given in bolt.inputs}

    # ---- parts ------------------------------------------------------------------------------

    def _parts(self) -> dict[str, _Part]:
        """The components, spouts first, in the order of the topology."""
        topology, registry = self._machine.shared.book.topology, self._machine.shared.registry
        parts = {spout.comp.name: _Part(spout.comp.name, True) for spout in topology.spouts}
        parts |= {bolt.comp.name: _Part(bolt.comp.name, False) for bolt in topology.bolts}
        for task, place in registry.places.items():
            part = parts.get(place.component)
            if part is None:
                continue  # an update is adding or removing it
            part.tasks += 1
            status = registry.tasks.get(task)
            if status is None:
                continue
            runs = registry.end_of(task) is None
            part.up += runs and status.state in UP_STATES
            part.queue_bytes += status.in_queue_bytes
            part.queue_tuples += status.in_queue_tuples
            part.pending += status.pending
            if runs and status.state == control_pb2.TASK_RUNNING:
                part.call_s = max(part.call_s, status.loop_age_s)
            if status.in_queue_bytes and (part.fullest is None or status.in_queue_bytes > part.fullest.value):
                part.fullest = Extreme(float(status.in_queue_bytes), task, place.container)
        for counts in registry.totals.tasks.values():
            part = parts.get(counts.component)
            if part is not None:
                part.dead_letters += counts.before[_DEAD_LETTERS] + counts.latest[_DEAD_LETTERS]
                part.lost += counts.before[_LOST] + counts.latest[_LOST]
        self._take_processes(parts)
        return parts

    def _take_processes(self, parts: dict[str, _Part]) -> None:
        """Count the restarts of tasks, and what their memory shares with other processes."""
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

    def _counts(self, part: _Part) -> tuple[int, int, int]:
        return self._restarts[part.name], part.dead_letters, part.lost

    def _rows(self, parts: dict[str, _Part], window: Window, now: float) -> dict[str, Row]:
        sources = self._sources()
        rows: dict[str, Row] = {
            name: _minute_row(part, window.components.get(name), self._grown(part), name not in sources, now)
            for name, part in parts.items()
        }
        book = self._machine.shared.book
        arrivals = [
            rates.emitted
            for name, rates in window.components.items()
            if name in parts and parts[name].spout and rates.emitted is not None
        ]
        rows[""] = {
            "emitted": sum(arrivals) if arrivals else None,
            "tasks": sum(part.tasks for part in parts.values()),
            "up": sum(part.up for part in parts.values()),
            "held": window.held,
            "plan_version": book.plan.version if book.plan is not None else None,
            "spark_waiting": window.spark_waiting,
            "spark_lag_s": window.spark_lag_s,
            "spark_done": window.spark_done,
            "spark_batch_s": window.spark_batch_s,
        }
        return rows

    def _grown(self, part: _Part) -> tuple[int, int, int]:
        now = self._counts(part)
        before = self._closed.get(part.name, now)
        restarts, dead_letters, lost = (max(0, b - a) for a, b in zip(before, now, strict=True))
        return restarts, dead_letters, lost


def _worst(part: _Part, found: Extreme | None) -> tuple[float | None, str | None]:
    """The value of the worst task, and its name."""
    return (found.value, instance_id(found.container, part.name, found.task_id)) if found is not None else (None, None)


def _slowest(rows: list[ComponentLoad]) -> dict[str, Any]:
    """The latencies of the whole topology."""
    ends = [(one.end_to_end_p50_s, one.end_to_end_p99_s, one.end_to_end_at_least) for one in rows]
    if not any(p99 is not None for _, p99, _ in ends):
        ends = [(one.complete_p50_s, one.complete_p99_s, one.complete_at_least) for one in rows]
    return {
        "latency_p50_s": max((p50 for p50, _, _ in ends if p50 is not None), default=None),
        "latency_p99_s": max((p99 for _, p99, _ in ends if p99 is not None), default=None),
        # The longest known one is less than what another one may be.
        "latency_at_least": any(at_least for _, _, at_least in ends),
    }


def _memory(part: _Part, rates: Rates) -> float | None:
    """What the tasks of a component take together; the pages that forked processes share count once."""
    return None if rates.memory is None else max(0.0, rates.memory - part.shared_bytes)


def _latencies(part: _Part, rates: Rates, sink: bool, now: float) -> tuple[Times | None, Times | None, Times | None]:
    """Of execute, end to end and complete. Where nothing was finished in the window, what is under way has taken this
    long at least: the call that a task is in; for acks, the time since the last emit.
    """
    in_call = Times(part.call_s, part.call_s, True) if part.call_s >= IN_CALL_S and not part.spout else None
    still_s = now - rates.emitted_at if rates.emitted_at is not None else 0.0
    unacked = Times(still_s, still_s, True) if part.spout and part.pending and still_s >= IN_CALL_S else None
    return rates.execute or in_call, rates.end_to_end or (in_call if sink else None), rates.complete or unacked


def _minute_row(part: _Part, rates: Rates | None, grown: tuple[int, int, int], sink: bool, now: float) -> Row:
    restarts, dead_letters, lost = grown
    row: dict[str, float | None] = {
        "tasks": part.tasks,
        "up": part.up,
        "restarts": restarts,
        "dead_letters": dead_letters,
        "lost": lost,
    }
    if part.spout:
        row["pending"] = part.pending
    else:
        row["queue_bytes"] = part.queue_bytes
        row["fullest_bytes"] = part.fullest.value if part.fullest is not None else 0.0
    if rates is None:
        return row
    for name in ("emitted", "executed", "acked", "failed", "busy", "blocked", "idle", "cpu"):
        row[name] = getattr(rates, name)
    row["busiest"] = rates.busiest.value if rates.busiest is not None else None
    row["memory_bytes"] = _memory(part, rates)
    row["largest_bytes"] = rates.largest.value if rates.largest is not None else None
    for name, times in zip(("execute", "end_to_end", "complete"), _latencies(part, rates, sink, now), strict=True):
        row[f"{name}_p50_s"], row[f"{name}_p99_s"] = times[:2] if times is not None else (None, None)
    return row
