"""The parts of task reports that are not figures: hot lines, exceptions, memory, slow tuples. Pure."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from heronpy.health.signals import HotSpots
from heronpy.proto import control_pb2
from heronpy.views.exception_groups import short_line
from heronpy.views.past import Slow, SlowTuple

#: Limits for the common text of exceptions.
ALIKE_MAX_CHARS = 500
#: Share of messages that must have the same word at a position, and the placeholder for differing words.
COMMON, OTHER = 0.9, "…"
#: Minimum seconds between two points of a memory trail, and maximum number of points.
STEP_S, POINTS_MAX = 4.0, 30
TRAIL_KEPT_S = 300.0
#: Minimum change of memory within a trail that is reported.
TOLD_BYTES = 2 << 20
_METRIC = "__py-physical-memory-byte"
#: Number of slow tuples kept per process.
SLOW_KEPT = 16


class _Trail(Struct):
    """A task's memory trail, and the slow tuples and hot lines of its current process."""

    times: array[float] = field(default_factory=lambda: array("d"))
    sizes: array[float] = field(default_factory=lambda: array("d"))

    @property
    def changed(self) -> bool:
        return len(self.sizes) > 1 and max(self.sizes) - min(self.sizes) >= TOLD_BYTES

    def add(self, report: control_pb2.MetricsReport, now: float) -> None:
        """Add the memory size of a report, unless the last point is too recent."""
        if self.times and now - self.times[-1] < STEP_S:
            return
        value = next((sample.value for sample in report.samples if sample.name == _METRIC), 0.0)
        if 0 < value < 1 << 63:
            self.times.append(now)
            self.sizes.append(value)
            if len(self.times) > POINTS_MAX:
                del self.times[0], self.sizes[0]

    def told(self, now: float) -> list[tuple[float, float]]:
        return [(max(0.0, now - at), size) for at, size in zip(self.times, self.sizes, strict=True)]


class _Task(Struct):
    component: str
    epoch: int
    #: The slow tuples of the current process, and the slowest tuples of the earlier processes.
    slow: list[SlowTuple] = field(default_factory=list)
    slow_before: list[SlowTuple] = field(default_factory=list)
    #: The hot lines of the current process; None: not in user code.
    hot: HotSpots | None = None
    trail: _Trail = field(default_factory=_Trail)
    trail_before: _Trail = field(default_factory=_Trail)


class TaskReports:
    """The slow tuples and hot lines of each task, and its memory over the last two minutes.

    A process reports all slow tuples that it keeps. The slowest tuples of the task's earlier processes are kept as
    well. Memory is recorded in short steps, because a leak may reach its limit within a minute. Invariants: At most
    `SLOW_KEPT` slow tuples are kept of a task's current process, and the same number of its earlier processes. A trail
    of memory has at most `POINTS_MAX` points of one process, at least `STEP_S` apart. The trail of the previous process
    is kept for `TRAIL_KEPT_S`.
    """

    def __init__(self) -> None:
        self._tasks: dict[str, _Task] = {}

    def take(self, report: control_pb2.MetricsReport, now: float) -> None:
        """Record the data of a task's report; reports of earlier processes are ignored."""
        if not report.task_id:
            return
        task = self._tasks.get(report.process)
        if task is None:
            task = self._tasks[report.process] = _Task(report.component, report.epoch)
        if report.epoch < task.epoch:
            return
        if report.epoch > task.epoch:
            task.epoch = report.epoch
            task.slow_before = slowest((*task.slow_before, *task.slow))[:SLOW_KEPT]
            if task.trail.times:
                task.trail_before, task.trail = task.trail, _Trail()
        task.slow = [_named(one, report) for one in report.slow[:SLOW_KEPT]]
        task.hot = _hot_spots_of(report.found) if report.HasField("found") else None
        task.trail.add(report, now)

    def forget(self, process: str) -> None:
        """Drop the reports of a removed task."""
        self._tasks.pop(process, None)

    def slow(self, asked: control_pb2.GetSlow) -> Slow:
        """Return the slowest tuples, for a GetSlow request; an empty component and task 0 select everything."""
        return Slow(
            tuples=slowest(
                one
                for task in self._tasks.values()
                for one in (*task.slow, *task.slow_before)
                if (not asked.component or one.component == asked.component)
                and (not asked.task_id or one.task_id == asked.task_id)
            )
        )

    def hot_spots(
        self, component: str, exceptions: Iterable[control_pb2.ExceptionReport], now: float
    ) -> dict[str, HotSpots]:
        """Return the reports by process; an empty component selects all. Memory that has hardly changed is omitted."""
        reports: defaultdict[str, list[control_pb2.ExceptionReport]] = defaultdict(list)
        for report in exceptions:
            if component in ("", report.component):
                reports[report.process].append(report)
        tasks = {name: task for name, task in self._tasks.items() if component in ("", task.component)}
        hot = {name: task.hot for name, task in tasks.items() if task.hot is not None}
        found = {name: raised_by(reports.get(name, ()), hot.get(name, HotSpots())) for name in {**hot, **reports}}
        for name, task in tasks.items():
            before = task.trail_before
            if not before.times or now - before.times[-1] > TRAIL_KEPT_S:
                before = _Trail()
            if task.trail.changed or before.changed:
                one = found.setdefault(name, HotSpots())
                one.memory, one.memory_before = task.trail.told(now), before.told(now)
        return found


def _hot_spots_of(found: control_pb2.TaskLooks) -> HotSpots:
    return HotSpots(
        samples=found.looks,
        keyed=found.keyed,
        line=found.line,
        at_line=found.at_line / found.looks if found.looks else 0.0,
        key=found.key,
        of_key=found.of_key / found.keyed if found.keyed else 0.0,
    )


def slowest(tuples: Iterable[SlowTuple]) -> list[SlowTuple]:
    """Sort tuples, slowest first; among equally slow tuples the newest first."""
    return sorted(tuples, key=lambda one: (-one.took_s, -one.at))


def _named(one: control_pb2.SlowTuple, report: control_pb2.MetricsReport) -> SlowTuple:
    return SlowTuple(
        at=one.at,
        instance_id=report.process,
        component=report.component,
        task_id=report.task_id,
        source=one.source,
        source_task=one.source_task,
        took_s=one.took_s,
        value=one.value or None,
        tuples=one.tuples,
    )


def raised_by(reports: Sequence[control_pb2.ExceptionReport], hot: HotSpots) -> HotSpots:
    """Return the hot lines, with the line that raised the task's last exception, and the text that most exceptions
    of this type and line share.
    """
    hot = replace(hot)
    if not reports:
        return hot
    last = max(reports, key=lambda report: report.last_at)
    hot.raised = short_line(last.traceback)
    if hot.raised:
        messages = [
            (next(iter(one.message.splitlines()), ""), max(1, one.count))
            for one in reports
            if one.type == last.type and short_line(one.traceback) == hot.raised
        ]
        text, hot.alike_times, hot.raised_times = alike(messages)
        hot.alike = (f"{last.type}: {text}" if text else last.type)[:ALIKE_MAX_CHARS]
    return hot


def alike(messages: Sequence[tuple[str, int]]) -> tuple[str, int, int]:
    """Return the words that most of these messages share, the number of messages with these words, and the total.

    Each message has a count. Words are compared by position among the messages of the most frequent length. The text is
    "" if there is no common word.
    """
    total = sum(times for _, times in messages)
    lengths: Counter[int] = Counter()
    for message, times in messages:
        lengths[len(message.split())] += times
    if not total:
        return "", 0, 0
    length, of_length = lengths.most_common(1)[0]
    rows = [(words, times) for message, times in messages if len(words := message.split()) == length]
    found = []
    for place in range(length):
        there: Counter[str] = Counter()
        for words, times in rows:
            there[words[place]] += times
        word, times = there.most_common(1)[0]
        found.append(word if times >= COMMON * of_length else OTHER)
    having = sum(times for words, times in rows if all(one in (OTHER, word) for one, word in zip(found, words)))
    known = any(word != OTHER and any(map(str.isalnum, word)) for word in found)
    return (" ".join(found), having, total) if known else ("", 0, total)
