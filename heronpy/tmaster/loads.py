"""Computes rates, shares and quantiles by component and stream from the metrics reports of all processes. Pure.

A process reports totals. A rate is the total at the last report, minus the total at an earlier report (a *mark*),
divided by the time between them. Totals continue across restarts of the process. There are two windows: the recent
window, marked every `MARK_S` per process, covers the last `MARK_S` to `2 * MARK_S` seconds; the minute covers the time
since the last call to `turn`. A figure that no task has reported is None, never 0. Invariants: No rate is negative.
Shares of a component are between 0 and 1. The number of processes in the plan bounds the memory used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite, sqrt
from typing import Any, NamedTuple

from msgspec import Struct, field, structs

from heronpy.metrics.quantiles import IN_CALL_S, quantile_in
from heronpy.proto import control_pb2
from heronpy.views.load import ComponentLoad

MARK_S = 5.0
#: Seconds of silence after which a process does not count in the recent window, unless it has announced a pause.
SILENT_S = 5.0
#: Seconds of silence after which the figures of a process are dropped.
FORGOTTEN_S = 600.0
#: Shortest time in seconds over which a rate is measured.
SHORTEST_S = 0.9
#: Maximum number of streams of one task that are counted separately.
STREAMS_MAX = 256
_NS = 1e-9

# Columns of a process: totals first, then the gauges.
EMITTED, EXECUTED, ACKED, FAILED, BUSY, BLOCKED, IDLE, CPU, HELD, SPARK_DONE, SPARK_S = range(11)
SENT_FRAMES, SENT_TUPLES, TAKEN_FRAMES, TAKEN_TUPLES = range(11, 15)
WALL, MEMORY, SPARK_WAITING, SPARK_LAG, KEYS, BACKLOG_TUPLES, BACKLOG_BYTES = range(15, 22)
_TOTALS, _WIDTH = 16, 22
_COLUMN = {
    "__emit-count": EMITTED,
    "__execute-count": EXECUTED,
    "__ack-count": ACKED,
    "__fail-count": FAILED,
    "__busy-time-ns": BUSY,
    "__blocked-time-ns": BLOCKED,
    "__idle-time-ns": IDLE,
    "__py-user-cpu-time-secs": CPU,
    "__py-sys-cpu-time-secs": CPU,
    "__time_spent_back_pressure_aggr": HELD,
    "spark-batches-committed": SPARK_DONE,
    "spark-seconds": SPARK_S,
    "__gateway-sent-packets-count": SENT_FRAMES,
    "__gateway-sent-tuples-count": SENT_TUPLES,
    "__gateway-consumed-packets-count": TAKEN_FRAMES,
    "__gateway-consumed-tuples-count": TAKEN_TUPLES,
    "__execute-time-ns": WALL,
    "__py-physical-memory-byte": MEMORY,
    "spark-batches-waiting": SPARK_WAITING,
    "spark-lag-seconds": SPARK_LAG,
    "__backlog-tuples": BACKLOG_TUPLES,
    "__backlog-bytes": BACKLOG_BYTES,
    "__state-keys": KEYS,
}
_HISTOGRAMS = ("__execute-latency", "__end-to-end-latency", "__complete-latency")
_HISTOGRAM = control_pb2.Sample.HISTOGRAM
#: Rates per second of a row, summed over its tasks.
_RATES = (
    ("emitted_per_s", EMITTED),
    ("executed_per_s", EXECUTED),
    ("acked_per_s", ACKED),
    ("failed_per_s", FAILED),
    ("cpu", CPU),
)
#: Fields that are the sum of a gauge over the tasks that report it.
_GAUGES = (("backlog_tuples", BACKLOG_TUPLES), ("backlog_bytes", BACKLOG_BYTES))
_UNKNOWN: dict[str, Any] = {one.name: None for one in structs.fields(ComponentLoad) if one.required}

#: Layout of a report: its number of samples, and the samples that are used, as (place, name, label, column).
_Layout = tuple[int, list[tuple[int, str, str, int]]]


class Counts(Struct):
    """A histogram: upper bounds of buckets, number of values per bucket (not cumulative), and sum of all values."""

    bounds: tuple[float, ...]
    each: list[float]
    total: float


class _Totals(Struct):
    """The counts of a process at one point in time."""

    at: float
    values: list[float]
    #: Bit set of the reported columns.
    told: int
    #: Tuples emitted per stream; a tuple counts once per component that receives it.
    streams: dict[str, float]
    histograms: dict[str, Counts]


class _Process(Struct):
    name: str
    #: Component of the task; empty for a stream manager or the Spark gateway.
    component: str
    epoch: int
    latest: _Totals
    #: Counts of the earlier incarnations.
    before: _Totals
    #: The two marks of the recent window, the older first, and the mark of the minute.
    older: _Totals
    newer: _Totals
    minute: _Totals
    layout: _Layout
    #: Seconds for which the process counts in the recent window after its last report.
    silent_s: float
    #: Time at which the emitted count of the process last grew; None: never.
    emitted_at: float | None = None


class Times(NamedTuple):
    """Median and 99th percentile in seconds. If `at_least`, the percentile and an equal median are lower bounds."""

    p50: float
    p99: float
    at_least: bool


class Part(Struct):
    """One component: a row that collects its tasks' figures, and figures that are not part of the row."""

    row: ComponentLoad
    #: Whether no component receives the output of the component.
    sink: bool = False
    #: Longest time in seconds that a task has spent in its current call.
    call_s: float = 0.0
    #: Bytes that several tasks count as resident because forked processes share pages: the sum of their resident
    #: sizes minus their total memory.
    shared_bytes: int = 0
    #: Whether a process of the component has reported in the window.
    heard: bool = False
    #: Time at which the emitted count of a task last grew; None: never.
    emitted_at: float | None = None
    #: Tuples emitted per second, by stream.
    streams: dict[str, float] = field(default_factory=dict)
    #: Number of tasks that have reported their shares of time, and histograms of the latencies of all tasks.
    shares: int = 0
    #: For each task: the tuples per second and, if reported, the number of keys. For all tasks together: the seconds in
    #: user code per second.
    rates: list[float] = field(default_factory=list)
    keys: list[float] = field(default_factory=list)
    wall_s: float = 0.0
    counts: dict[str, Counts] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, *, spout: bool, sink: bool = False) -> Part:
        """Create a component without figures."""
        of_kind = {"kind": "spout", "pending": 0} if spout else {"kind": "bolt", "queue_tuples": 0, "queue_bytes": 0}
        return cls(ComponentLoad(**(_UNKNOWN | {"name": name, "tasks": 0, "up": 0} | of_kind)), sink)

    def note_largest(self, most: str, which: str, value: float, task: str) -> None:
        """Update the field `most` to the largest value of any task, and the field `which` to that task."""
        known = getattr(self.row, most)
        if known is None or value > known:
            setattr(self.row, most, value)
            setattr(self.row, which, task)

    def finish(self, now: float) -> None:
        """Turn sums into means. If no call finished in the window, the latency is the duration of the current call."""
        row = self.row
        for share in ("busy", "blocked", "idle") if self.shares else ():
            setattr(row, share, getattr(row, share) / self.shares)
        if row.tuples_per_frame is not None:
            row.tuples_per_frame = row.tuples_per_frame / row.frames_per_s if row.frames_per_s else None
        row.keys = sum(self.keys) / len(self.keys) if self.keys else None
        if len(self.rates) > 1 and any(self.rates):
            mean = sum(self.rates) / len(self.rates)
            row.spread = sqrt(sum((rate - mean) ** 2 for rate in self.rates) / len(self.rates)) / mean
        if self.wall_s and row.executed_per_s:
            row.wall_s = self.wall_s / row.executed_per_s
        if row.memory_bytes is not None:
            row.memory_bytes = max(0, row.memory_bytes - self.shared_bytes) or None
        if not self.heard:
            return
        execute, end_to_end, complete = (_times(self.counts.get(kind)) for kind in _HISTOGRAMS)
        spout, still_s = row.kind == "spout", now - self.emitted_at if self.emitted_at is not None else 0.0
        # The current call has already taken this long. For acks, use the time since the last emit.
        in_call = Times(self.call_s, self.call_s, True) if self.call_s >= IN_CALL_S and not spout else None
        unacked = Times(still_s, still_s, True) if spout and row.pending and still_s >= IN_CALL_S else None
        for name, times in (
            ("latency", execute or in_call),
            ("end_to_end", end_to_end or (in_call if self.sink else None)),
            ("complete", complete or unacked),
        ):
            for figure, value in zip(("p50_s", "p99_s", "at_least"), times or (), strict=False):
                setattr(row, f"{name}_{figure}", value)


class Window(Struct):
    """The load of the topology in a window."""

    #: Longest time in seconds over which a process was measured.
    over_s: float = 0.0
    #: Share of the window in which spouts were held back.
    held: float | None = None
    spark_waiting: float | None = None
    spark_lag_s: float | None = None
    #: Batches committed per second, and the mean time of a batch in seconds.
    spark_done: float | None = None
    spark_batch_s: float | None = None


class Loads:
    def __init__(self) -> None:
        self._processes: dict[str, _Process] = {}
        #: Time of the first report; None before it.
        self.began: float | None = None

    def __len__(self) -> int:
        return len(self._processes)

    def take(self, report: control_pb2.MetricsReport, now: float) -> None:
        """Record a report; reports of earlier incarnations of the process are ignored."""
        if self.began is None:
            self.began = now
        known = self._processes.get(report.process)
        if known is not None and report.epoch < known.epoch:
            return
        if known is None:
            totals, layout = _read(report, now, None, (-1, []))
            none, quiet_s = _Totals(now, [0.0] * _WIDTH, 0, {}, {}), _silent_s(report)
            component = report.component if report.task_id else ""
            self._processes[report.process] = _Process(
                report.process, component, report.epoch, totals, none, totals, totals, totals, layout, quiet_s
            )
            return
        if report.epoch > known.epoch:
            known.before, known.epoch = known.latest, report.epoch
        due = now - known.newer.at >= MARK_S
        latest, known.layout = _read(report, now, None if due else known.latest, known.layout)
        _add(latest, known.before, histograms=due)
        if latest.values[EMITTED] > known.latest.values[EMITTED]:
            known.emitted_at = now
        silent_s, known.silent_s = known.silent_s, _silent_s(report)
        if now - known.latest.at > silent_s:
            known.older = known.newer = latest
        elif due:
            known.older, known.newer = known.newer, latest
        known.latest = latest

    def forget(self, process: str) -> None:
        """Drop a process that is no longer part of the topology."""
        self._processes.pop(process, None)

    def recent(self, now: float, parts: Mapping[str, Part]) -> Window:
        """Add each reporting process's figures of the last `MARK_S` to `2 * MARK_S` seconds to its part."""
        heard = (one for one in self._processes.values() if now - one.latest.at <= one.silent_s)
        return _window(((one, one.older) for one in heard), now, parts)

    def turn(self, now: float, parts: Mapping[str, Part]) -> Window:
        """Add the figures since the last call to this method to the parts; the next window begins now."""
        heard = [one for one in self._processes.values() if one.latest.at > one.minute.at]
        window = _window(((one, one.minute) for one in heard), now, parts)
        for one in self._processes.values():
            one.minute = one.latest
        for name in [name for name, one in self._processes.items() if now - one.latest.at > FORGOTTEN_S]:
            del self._processes[name]
        return window


def _silent_s(report: control_pb2.MetricsReport) -> float:
    """Return for how many seconds the sender may be silent: its report's `pause_s`, clamped to the valid range."""
    return min(max(SILENT_S, report.pause_s), FORGOTTEN_S) if isfinite(report.pause_s) else SILENT_S


def _layout(report: control_pb2.MetricsReport) -> _Layout:
    wanted = [
        (place, sample.name, sample.label, column)
        for place, sample in enumerate(report.samples)
        if (column := _COLUMN.get(sample.name)) is not None
    ]
    return len(report.samples), wanted


def _read(
    report: control_pb2.MetricsReport, now: float, before: _Totals | None, layout: _Layout
) -> tuple[_Totals, _Layout]:
    """Read the figures of a report. If `before` is given, histograms are skipped, because they are counted elsewhere.

    A process appends samples and keeps their order, so `layout` names the samples to read, about a quarter of all. If
    the layout does not fit, the report is searched, and a new layout is returned.
    """
    samples = report.samples
    if len(samples) != layout[0]:
        layout = _layout(report)
    values, told, streams = [0.0] * _WIDTH, 0, dict[str, float]()
    for place, name, label, column in layout[1]:
        sample = samples[place]
        if sample.name != name or sample.label != label:
            return _read(report, now, before, (-1, []))
        value = sample.value
        if isfinite(value) and value >= 0:
            values[column] += value
            told |= 1 << column
            if column == EMITTED and len(streams) < STREAMS_MAX:
                streams[label] = value
    histograms: dict[str, Counts] = {} if before is None else before.histograms
    if before is None:
        for sample in samples:
            if sample.type == _HISTOGRAM and sample.name in _HISTOGRAMS:
                _merge(histograms, sample.name, _counts(sample))
    return _Totals(now, values, told, streams, histograms), layout


def _counts(sample: control_pb2.Sample) -> Counts:
    bounds = tuple([bucket.le for bucket in sample.buckets])
    cumulative = [bucket.count for bucket in sample.buckets]
    each = [float(max(0, b - a)) for a, b in zip([0, *cumulative], cumulative, strict=False)]
    return Counts(bounds, each, sample.sum if isfinite(sample.sum) else 0.0)


def _merge(into: dict[str, Counts], name: str, counts: Counts) -> None:
    """Add a histogram to the one with the same name; ignore it if its bounds differ."""
    known = into.get(name)
    if known is None:
        into[name] = Counts(counts.bounds, list(counts.each), counts.total)
    elif known.bounds == counts.bounds:
        known.each[:] = map(float.__add__, known.each, counts.each)
        known.total += counts.total


def _add(totals: _Totals, before: _Totals, histograms: bool) -> None:
    """Add the counts of earlier incarnations to the totals; gauges are not summed."""
    if not before.told and not before.histograms:
        return
    totals.values[:_TOTALS] = map(float.__add__, totals.values[:_TOTALS], before.values[:_TOTALS])
    totals.told |= before.told & ((1 << _TOTALS) - 1)
    for label, value in before.streams.items():
        if label in totals.streams or len(totals.streams) < STREAMS_MAX:
            totals.streams[label] = totals.streams.get(label, 0.0) + value
    if histograms:
        for name, counts in before.histograms.items():
            _merge(totals.histograms, name, counts)


def _window(marked: Iterable[tuple[_Process, _Totals]], now: float, parts: Mapping[str, Part]) -> Window:
    window = Window()
    for process, mark in marked:
        over_s = process.latest.at - mark.at
        window.over_s = max(window.over_s, over_s)
        if not process.component:
            _take_others(window, process.latest, mark, over_s)
        elif (part := parts.get(process.component)) is not None:  # else an update is adding or removing the component
            _take_task(part, process, mark, over_s)
    for part in parts.values():
        part.finish(now)
    return window


def _grown(latest: _Totals, mark: _Totals, column: int) -> float | None:
    """Return the growth of a total; None if it was not reported. A total without a mark has grown from 0."""
    return max(0.0, latest.values[column] - mark.values[column]) if latest.told >> column & 1 else None


def _take_task(part: Part, process: _Process, mark: _Totals, over_s: float) -> None:
    row, latest, name = part.row, process.latest, process.name
    part.heard = True
    if latest.told >> MEMORY & 1:
        memory = int(latest.values[MEMORY])
        row.memory_bytes = (row.memory_bytes or 0) + memory
        part.note_largest("memory_bytes_max", "largest", memory, name)
    for gauge, column in _GAUGES if row.kind == "spout" else ():
        if latest.told >> column & 1:
            setattr(row, gauge, (getattr(row, gauge) or 0) + int(latest.values[column]))
    if latest.told >> KEYS & 1:
        part.keys.append(latest.values[KEYS])
    if process.emitted_at is not None:
        part.emitted_at = max(part.emitted_at or 0.0, process.emitted_at)
    if over_s < SHORTEST_S:
        return
    for rate, column in _RATES:
        grown = _grown(latest, mark, column)
        if grown is not None:
            setattr(row, rate, (getattr(row, rate) or 0.0) + grown / over_s)
    part.wall_s += (_grown(latest, mark, WALL) or 0.0) * _NS / over_s
    part.rates.append((_grown(latest, mark, EMITTED if row.kind == "spout" else EXECUTED) or 0.0) / over_s)
    frames, tuples = (SENT_FRAMES, SENT_TUPLES) if row.kind == "spout" else (TAKEN_FRAMES, TAKEN_TUPLES)
    passed, carried = _grown(latest, mark, frames), _grown(latest, mark, tuples)
    if passed is not None and carried is not None:
        row.frames_per_s = (row.frames_per_s or 0.0) + passed / over_s
        row.tuples_per_frame = (row.tuples_per_frame or 0.0) + carried / over_s  # divided by the frames at the end
    shares = [_grown(latest, mark, column) for column in (BUSY, BLOCKED, IDLE)]
    whole = sum(share for share in shares if share is not None)
    if None not in shares and whole > 0:
        part.shares += 1
        for share, grown in zip(("busy", "blocked", "idle"), shares, strict=True):
            setattr(row, share, (getattr(row, share) or 0.0) + (grown or 0.0) / whole)
        part.note_largest("busy_max", "busiest", (shares[0] or 0.0) / whole, name)
        part.note_largest("blocked_max", "most_blocked", (shares[1] or 0.0) / whole, name)
    for label, total in latest.streams.items():
        grown = max(0.0, total - mark.streams.get(label, 0.0))
        part.streams[label] = part.streams.get(label, 0.0) + grown / over_s
    for kind, counts in latest.histograms.items():
        earlier = mark.histograms.get(kind)
        if earlier is None:
            _merge(part.counts, kind, counts)
        elif earlier.bounds == counts.bounds:
            each = [max(0.0, b - a) for a, b in zip(earlier.each, counts.each, strict=True)]
            _merge(part.counts, kind, Counts(counts.bounds, each, max(0.0, counts.total - earlier.total)))


def _take_others(window: Window, latest: _Totals, mark: _Totals, over_s: float) -> None:
    """Add the figures of a stream manager or of the Spark gateway."""
    if latest.told >> SPARK_WAITING & 1:
        window.spark_waiting = latest.values[SPARK_WAITING]
    if latest.told >> SPARK_LAG & 1:
        window.spark_lag_s = latest.values[SPARK_LAG]
    if over_s < SHORTEST_S:
        return
    held_ms = _grown(latest, mark, HELD)
    if held_ms is not None:
        window.held = max(window.held or 0.0, min(1.0, held_ms / 1000 / over_s))
    done, seconds = _grown(latest, mark, SPARK_DONE), _grown(latest, mark, SPARK_S)
    if done is not None:
        window.spark_done = done / over_s
        if done and seconds is not None:
            window.spark_batch_s = seconds / done


def _times(counts: Counts | None) -> Times | None:
    if counts is None:
        return None
    p50, p99 = (quantile_in(counts.bounds, counts.each, part, counts.total) for part in (0.5, 0.99))
    return Times(p50.value * _NS, p99.value * _NS, p99.at_least) if p50 is not None and p99 is not None else None
