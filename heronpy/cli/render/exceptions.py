"""Exceptions of user code as text."""

from __future__ import annotations

from textwrap import indent

from heronpy.cli.output import clean, clean_block, moment
from heronpy.common.errors import GaveUpError
from heronpy.common.units import listed
from heronpy.proto import control_pb2
from heronpy.views.exception_groups import MESSAGES_MAX, ExceptionGroup


def group_text(group: ExceptionGroup, message: str) -> str:
    """Return one group as text: type, place, count, tasks, and the newest traceback in full; without one, `message`."""
    times = "once" if group.count == 1 else f"{group.count:,} times"
    where = f" at {clean(group.where)}" if group.where else ""
    phase = _phase(group.type, group.startup)
    lines = [f"{clean(group.type)}{where}{phase}: {times}"]
    lines.append(f"  tasks     {clean(listed(sorted(group.tasks)))}")
    when = moment(group.last_at) if group.count == 1 else f"{moment(group.first_at)} to {moment(group.last_at)}"
    lines.append(f"  seen      {when}")
    others = [clean(message[:200]) for message in group.messages[1 : MESSAGES_MAX + 1]]
    if others:
        left = len(group.messages) - 1 - len(others)
        lines += [f"  {'also' if number == 0 else '':<9} {message}" for number, message in enumerate(others)]
        lines += [f"            and {left:,} more messages"] if left else []
    body = group.traceback or f"{group.type}: {message}"
    return "\n".join([*lines, body_of(body)])


def _phase(kind: str, startup: bool) -> str:
    """Return the exception's phase. A task that stops retrying reports `startup`, like a task that cannot start."""
    if kind.rpartition(".")[2] == GaveUpError.__name__:
        return ", after which the task was not restarted"
    return " while it started" if startup else ""


def body_of(text: str) -> str:
    """Return a traceback or message of user code, indented so that no line can look like heron's output."""
    return indent(clean_block(text).rstrip(), "  ")


def exception_text(item: control_pb2.ExceptionReport) -> str:
    """Return one exception as text, with its full traceback."""
    where = clean(item.instance_id or item.process)
    times = "once" if item.count <= 1 else f"{item.count:,} times, first {moment(item.first_at)}, last"
    phase = _phase(item.type, item.startup)
    head = f"{where}: {clean(item.type)}{phase}, {times} {moment(item.last_at)}"
    body = item.traceback or f"{item.type}: {item.message}"
    return f"{head}\n{body_of(body)}"
