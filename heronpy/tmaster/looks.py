"""Where tasks were found by who looked at them, and where they last raised something. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

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
        raised: dict[str, control_pb2.ExceptionReport] = {}
        reports: defaultdict[str, list[control_pb2.ExceptionReport]] = defaultdict(list)
        for report in exceptions:
            reports[report.process].append(report)
            before = raised.get(report.process)
            if before is None or before.last_at <= report.last_at:
                raised[report.process] = report
        tasks = []
        for name in {**self._found, **raised}:
            found, last = self._found.get(name), raised.get(name)
            one = control_pb2.TaskLooks(process=name)
            if found is not None:
                one.CopyFrom(found)
            if last is not None:
                one.component, one.task_id = last.component, last.task_id
                one.raised = short_line(last.traceback)
                _add_alike(one, last, reports[name])
            if not asked.component or one.component == asked.component:
                tasks.append(one)
        return control_pb2.LooksReply(tasks=tasks)


def _add_alike(
    looks: control_pb2.TaskLooks, last: control_pb2.ExceptionReport, reports: Iterable[control_pb2.ExceptionReport]
) -> None:
    """What the exceptions of its task have in common with the last one: those of its type that its line raised."""
    if not looks.raised:
        return
    messages = [
        (next(iter(one.message.splitlines()), ""), max(1, one.count))
        for one in reports
        if one.type == last.type and short_line(one.traceback) == looks.raised
    ]
    text, looks.alike_times, looks.raised_times = alike(messages)
    looks.alike = (f"{last.type}: {text}" if text else last.type)[:ALIKE_MAX_CHARS]
