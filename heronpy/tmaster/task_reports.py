"""What tasks report beside their figures: where they are found and raise, their memory, slow tuples. Pure."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from heronpy.health.signals import LookSignals
from heronpy.proto import control_pb2
from heronpy.views.exception_groups import alike, short_line
from heronpy.views.past import Slow, SlowTuple

#: Of what exceptions have in common.
ALIKE_MAX_CHARS = 500
#: Of a trail of memory.
STEP_S, POINTS_MAX = 4.0, 30
TRAIL_KEPT_S = 300.0
#: A trail that has changed by less is not told.
TOLD_BYTES = 2 << 20
_METRIC = "__py-physical-memory-byte"
#: Slow tuples of a process.
SLOW_KEPT = 16


@dataclass(slots=True)
class _Task:
    epoch: int
    now: list[SlowTuple] = field(default_factory=list)
    before: list[SlowTuple] = field(default_factory=list)


class SlowStore:
    """The slow tuples that tasks report.

    A process reports all that it keeps; of its predecessors in the same task the slowest stay. At most `SLOW_KEPT` of
    the process and as many of those before it are kept per task.
    """

    def __init__(self) -> None:
        self._tasks: dict[str, _Task] = {}

    def take(self, report: control_pb2.MetricsReport) -> None:
        """Take what a report of a task has."""
        task = self._tasks.get(report.process)
        if task is None:
            if not report.slow:
                return
            task = self._tasks[report.process] = _Task(report.epoch)
        if report.epoch < task.epoch:
            return
        if report.epoch > task.epoch:
            task.epoch, task.before = report.epoch, slowest((*task.before, *task.now))[:SLOW_KEPT]
        task.now = [_named(one, report) for one in report.slow[:SLOW_KEPT]]

    def forget(self, process: str) -> None:
        """A task was removed."""
        self._tasks.pop(process, None)

    def reply(self, asked: control_pb2.GetSlow) -> Slow:
        """Answer GetSlow; empty component and task 0 select everything."""
        return Slow(
            tuples=slowest(
                one
                for task in self._tasks.values()
                for one in (*task.now, *task.before)
                if (not asked.component or one.component == asked.component)
                and (not asked.task_id or one.task_id == asked.task_id)
            )
        )


def slowest(tuples: Iterable[SlowTuple]) -> list[SlowTuple]:
    """The slowest first, of equal ones the newest."""
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


@dataclass(slots=True)
class _Trail:
    epoch: int
    times: array[float] = field(default_factory=lambda: array("d"))
    sizes: array[float] = field(default_factory=lambda: array("d"))
    before: _Trail | None = None


class MemoryStore:
    """The memory of each process over the last two minutes, from the metrics reports.

    Minutes are too coarse for a leak that fills its limit within one. Invariants: a trail has at most `POINTS_MAX`
    points, at least `STEP_S` apart, of one incarnation of a process; of the incarnation before, the trail is kept for
    `TRAIL_KEPT_S`.
    """

    def __init__(self) -> None:
        self._trails: dict[str, _Trail] = {}

    def take(self, report: control_pb2.MetricsReport, now: float) -> None:
        """Note the memory of a task's process, unless that was done just now."""
        if not report.task_id:
            return
        trail = self._trails.get(report.process)
        newer = trail is None or report.epoch > trail.epoch
        if trail is not None and not newer and (report.epoch < trail.epoch or now - trail.times[-1] < STEP_S):
            return
        value = next((sample.value for sample in report.samples if sample.name == _METRIC), 0.0)
        if not 0 < value < 1 << 63:
            return
        if trail is None or newer:
            if trail is not None:
                trail.before = None
            trail = self._trails[report.process] = _Trail(report.epoch, before=trail)
        trail.times.append(now)
        trail.sizes.append(value)
        if len(trail.times) > POINTS_MAX:
            del trail.times[0], trail.sizes[0]

    def forget(self, process: str) -> None:
        """A task was removed."""
        self._trails.pop(process, None)

    def add_to(self, found: dict[str, LookSignals], processes: Iterable[str], now: float) -> None:
        """Add the trails of these processes, unless they have hardly changed."""
        for process in processes:
            trail = self._trails.get(process)
            if trail is None:
                continue
            before = trail.before if trail.before is not None and now - trail.before.times[-1] <= TRAIL_KEPT_S else None
            if _changed(trail) or (before is not None and _changed(before)):
                look = found.setdefault(process, LookSignals())
                look.memory = _told(trail, now)
                look.memory_before = _told(before, now) if before is not None else []


def _changed(trail: _Trail) -> bool:
    return max(trail.sizes) - min(trail.sizes) >= TOLD_BYTES


def _told(trail: _Trail, now: float) -> list[tuple[float, float]]:
    return [(max(0.0, now - at), size) for at, size in zip(trail.times, trail.sizes, strict=True)]


class LooksStore:
    """Where tasks were found by who looked at them, and where they last raised something: the newest of each task."""

    def __init__(self) -> None:
        #: By process: its component, and what is known of it.
        self._found: dict[str, tuple[str, LookSignals]] = {}

    def take(self, report: control_pb2.MetricsReport) -> None:
        """Take what the report of a task has; one that was not found in user code is not known."""
        if not report.HasField("found"):
            self._found.pop(report.process, None)
            return
        found = report.found
        self._found[report.process] = (
            report.component,
            LookSignals(
                looks=found.looks,
                keyed=found.keyed,
                line=found.line,
                at_line=found.at_line / found.looks if found.looks else 0.0,
                key=found.key,
                of_key=found.of_key / found.keyed if found.keyed else 0.0,
            ),
        )

    def forget(self, process: str) -> None:
        """A task was removed."""
        self._found.pop(process, None)

    def of(self, component: str, exceptions: Iterable[control_pb2.ExceptionReport]) -> dict[str, LookSignals]:
        """What is known by process; an empty component selects all."""
        reports: defaultdict[str, list[control_pb2.ExceptionReport]] = defaultdict(list)
        for report in exceptions:
            if component in ("", report.component):
                reports[report.process].append(report)
        found = {name: look for name, (its, look) in self._found.items() if component in ("", its)}
        return {name: raised_by(reports.get(name, ()), found.get(name, LookSignals())) for name in {**found, **reports}}


def raised_by(reports: Sequence[control_pb2.ExceptionReport], look: LookSignals) -> LookSignals:
    """The look, and where the task last raised something; what the exceptions of that type and line have in common."""
    look = replace(look)
    if not reports:
        return look
    last = max(reports, key=lambda report: report.last_at)
    look.raised = short_line(last.traceback)
    if look.raised:
        messages = [
            (next(iter(one.message.splitlines()), ""), max(1, one.count))
            for one in reports
            if one.type == last.type and short_line(one.traceback) == look.raised
        ]
        text, look.alike_times, look.raised_times = alike(messages)
        look.alike = (f"{last.type}: {text}" if text else last.type)[:ALIKE_MAX_CHARS]
    return look
