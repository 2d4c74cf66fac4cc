"""Where tasks were found by who looked at them, and where they last raised something. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from heronpy.proto import control_pb2
from heronpy.views.exception_groups import alike, short_line

#: Of what exceptions have in common.
ALIKE_MAX_CHARS = 500


class LooksStore:
    """The newest of each task: no more than there are tasks."""

    def __init__(self) -> None:
        self._found: dict[str, control_pb2.TaskLooks] = {}

    def take(self, report: control_pb2.MetricsReport) -> None:
        """Take what the report of a task has; one that was not found in user code is not known."""
        if not report.HasField("found"):
            self._found.pop(report.process, None)
            return
        found = control_pb2.TaskLooks()
        found.CopyFrom(report.found)
        found.process, found.component, found.task_id = report.process, report.component, report.task_id
        self._found[report.process] = found

    def forget(self, process: str) -> None:
        """A task was removed."""
        self._found.pop(process, None)

    def reply(
        self, asked: control_pb2.GetLooks, exceptions: Iterable[control_pb2.ExceptionReport]
    ) -> control_pb2.LooksReply:
        """Answer GetLooks."""
        reports: defaultdict[str, list[control_pb2.ExceptionReport]] = defaultdict(list)
        for report in exceptions:
            reports[report.process].append(report)
        tasks = []
        for name in {**self._found, **reports}:
            one = raised_by(reports.get(name, ()))
            if (found := self._found.get(name)) is not None:
                one.MergeFrom(found)
            one.process = name
            if not asked.component or one.component == asked.component:
                tasks.append(one)
        return control_pb2.LooksReply(tasks=tasks)


def raised_by(reports: Sequence[control_pb2.ExceptionReport]) -> control_pb2.TaskLooks:
    """Where one task last raised something, and what the exceptions of that type and line have in common."""
    if not reports:
        return control_pb2.TaskLooks()
    last = max(reports, key=lambda report: report.last_at)
    looks = control_pb2.TaskLooks(component=last.component, task_id=last.task_id, raised=short_line(last.traceback))
    if looks.raised:
        messages = [
            (next(iter(one.message.splitlines()), ""), max(1, one.count))
            for one in reports
            if one.type == last.type and short_line(one.traceback) == looks.raised
        ]
        text, looks.alike_times, looks.raised_times = alike(messages)
        looks.alike = (f"{last.type}: {text}" if text else last.type)[:ALIKE_MAX_CHARS]
    return looks
