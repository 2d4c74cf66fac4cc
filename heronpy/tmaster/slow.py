"""The slow tuples that tasks report. Pure.

A process reports all that it keeps; of its predecessors in the same task the slowest stay. At most `KEPT` of the
process and as many of those before it are kept per task.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from heronpy.proto import control_pb2

KEPT = 16

_Slow = control_pb2.SlowTuple


@dataclass(slots=True)
class _Task:
    epoch: int
    now: list[_Slow] = field(default_factory=list)
    before: list[_Slow] = field(default_factory=list)


class SlowStore:
    """See the module."""

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
            task.epoch, task.before = report.epoch, slowest((*task.before, *task.now))[:KEPT]
        task.now = [_named(one, report) for one in report.slow[:KEPT]]

    def forget(self, process: str) -> None:
        """A task was removed."""
        self._tasks.pop(process, None)

    def reply(self, asked: control_pb2.GetSlow) -> control_pb2.SlowReply:
        """Answer GetSlow; empty component and task 0 select everything."""
        return control_pb2.SlowReply(
            tuples=slowest(
                one
                for task in self._tasks.values()
                for one in (*task.now, *task.before)
                if (not asked.component or one.component == asked.component)
                and (not asked.task_id or one.task_id == asked.task_id)
            )
        )


def slowest(tuples: Iterable[_Slow]) -> list[_Slow]:
    """The slowest first, of equal ones the newest."""
    return sorted(tuples, key=lambda one: (-one.took_s, -one.at))


def _named(one: _Slow, report: control_pb2.MetricsReport) -> _Slow:
    named = _Slow()
    named.CopyFrom(one)
    named.process, named.component, named.task_id = report.process, report.component, report.task_id
    return named
