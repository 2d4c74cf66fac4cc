"""Exceptions of user code grouped by type and line, over all tasks. Pure.

A bug in a bolt with twenty tasks is one line of code, so it is shown once, with one full traceback.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from heronpy.common.units import is_installed, line_of
from heronpy.proto import control_pb2

MESSAGES_MAX = 3
#: A word that so many of the messages have at one place is common to them, and what stands for the other words.
COMMON, OTHER = 0.9, "…"
_FRAME = re.compile(r'^ *File "(?P<file>[^"\n]+)", line (?P<line>\d+)(?:, in (?P<function>[^\n]+))?', re.MULTILINE)


class ExceptionGroup(Struct, kw_only=True):
    """Exceptions of one type raised at one line, over all tasks."""

    type: str
    #: `file:line in function`; empty when no traceback has it.
    where: str
    #: While the task started.
    startup: bool
    count: int
    first_at: float
    last_at: float
    #: Instances or processes.
    tasks: list[str]
    #: The first line of each different message, newest first.
    messages: list[str]
    #: The newest, whole.
    traceback: str


def groups_of(reports: Iterable[control_pb2.ExceptionReport]) -> list[tuple[ExceptionGroup, str]]:
    """The groups, the most recent first; each with the whole message of its newest exception."""
    found: dict[tuple[str, str, bool], tuple[ExceptionGroup, str]] = {}
    for report in sorted(reports, key=lambda report: -report.last_at):
        where = user_line(report.traceback)
        # Without a line it is the end of a process, which is not the same fault in other components.
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
    return list(found.values())


def alike(messages: Sequence[tuple[str, int]]) -> tuple[str, int, int]:
    """What most of these messages have in common, how many have it, and how many there are; each comes with a number.

    Words are compared place by place, among the messages of the most frequent length. "": no word is common to them.
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


def user_line(traceback: str) -> str:
    """`file:line in function` of the innermost frame of the user's code, or else of any frame."""
    from heronpy.api.user_code import is_runtime_frame  # only here: it brings the whole user API along

    frames = list(_FRAME.finditer(traceback))
    theirs = [frame for frame in frames if not (is_installed(frame["file"]) or is_runtime_frame(frame["file"]))]
    last = next(reversed(theirs or frames), None)
    if last is None:
        return ""
    return f"{last['file']}:{last['line']}" + (f" in {last['function']}" if last["function"] else "")


def short_line(traceback: str) -> str:
    """The same as part of a sentence: `function (file:line)`, and what it calls of others."""
    from heronpy.api.user_code import is_runtime_frame

    frames = [(one["file"], int(one["line"]), one["function"] or "?") for one in _FRAME.finditer(traceback)]
    return line_of(frames[::-1], lambda file: is_installed(file) or is_runtime_frame(file))
