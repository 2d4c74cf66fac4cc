"""Exceptions of user code grouped by type and line, over all tasks. Pure.

A bug in a bolt with 20 tasks has one line of code as its cause, so the bug is shown once, with one full traceback.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from heronpy.common.units import is_installed, line_of
from heronpy.proto import control_pb2

MESSAGES_MAX = 3
_FRAME = re.compile(r'^ *File "(?P<file>[^"\n]+)", line (?P<line>\d+)(?:, in (?P<function>[^\n]+))?', re.MULTILINE)


class ExceptionGroup(Struct, kw_only=True):
    """Exceptions of one type raised at one line, over all tasks."""

    type: str
    #: `file:line in function`; empty if no traceback contains a line.
    where: str
    #: Whether the exception was raised while the task started.
    startup: bool
    count: int
    first_at: float
    last_at: float
    #: Names of the instances or processes that raised the exception.
    tasks: list[str]
    #: The first line of each different message, newest first.
    messages: list[str]
    #: The newest traceback, complete; empty for an error of heronpy.
    traceback: str
    #: Whether heronpy itself raised the error.
    of_heronpy: bool = False


def groups_of(reports: Iterable[control_pb2.ExceptionReport]) -> list[tuple[ExceptionGroup, str]]:
    """Group exceptions, most recent first; each group comes with the complete message of its newest exception.

    heronpy's own errors come last, without a place or a traceback, because their messages name the cause and the fix.
    """
    found: dict[tuple[str, str, bool], tuple[ExceptionGroup, str]] = {}
    for report in sorted(reports, key=lambda report: -report.last_at):
        where = user_line(report.traceback)
        # A report without a line is about the end of a process, which has a different cause in each component.
        key = (report.type, where or f" {report.component}", report.startup)
        if key not in found:
            group = ExceptionGroup(
                type=report.type, where=where, startup=report.startup, count=0, first_at=report.first_at,
                last_at=report.last_at, tasks=[], messages=[], traceback=report.traceback,
            )  # fmt: skip
            found[key] = group, report.message
        group, _ = found[key]
        group.count += max(1, report.count)
        group.first_at = min(group.first_at or report.first_at, report.first_at)
        task = report.instance_id or report.process
        if task not in group.tasks:
            group.tasks.append(task)
        message = next(iter(report.message.splitlines()), "")
        if message not in group.messages:
            group.messages.append(message)
    for group, _ in found.values():
        if _is_own(group):
            group.where = group.traceback = ""
            group.of_heronpy = True
    return sorted(found.values(), key=lambda one: one[0].of_heronpy)


def _is_own(group: ExceptionGroup) -> bool:
    """Whether heronpy itself raised the error, outside user code."""
    frames, theirs = _frames(group.traceback)
    return group.type.startswith("heronpy.") and bool(frames) and not theirs


def _frames(traceback: str) -> tuple[list[re.Match[str]], list[re.Match[str]]]:
    """Return all frames, and the frames of the user's code."""
    from heronpy.api.user_code import is_runtime_frame  # imported here because the module loads the whole user API

    frames = list(_FRAME.finditer(traceback))
    return frames, [one for one in frames if not (is_installed(one["file"]) or is_runtime_frame(one["file"]))]


def user_line(traceback: str) -> str:
    """Return `file:line in function` for the innermost frame in the user's code, or else for the innermost frame."""
    frames, theirs = _frames(traceback)
    last = next(reversed(theirs or frames), None)
    if last is None:
        return ""
    return f"{last['file']}:{last['line']}" + (f" in {last['function']}" if last["function"] else "")


def short_line(traceback: str) -> str:
    """Return the user's line as part of a sentence: `function (file:line)`, and the function that it calls."""
    from heronpy.api.user_code import is_runtime_frame

    frames = [(one["file"], int(one["line"]), one["function"] or "?") for one in _FRAME.finditer(traceback)]
    return line_of(frames[::-1], lambda file: is_installed(file) or is_runtime_frame(file))
