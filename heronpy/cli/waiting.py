"""Waiting until a submitted topology runs, and knowing what it waits for.

`verdict` and `missing` are pure: they look at one status reply. `until_running` polls, quickly at
first, because a small topology is up within a few hundred milliseconds.
"""

from __future__ import annotations

import shutil
import sys
import time
import unicodedata
from typing import TYPE_CHECKING

from heronpy.cli import exits
from heronpy.cli.output import clean, clean_block, say
from heronpy.common.errors import DeadlineError, HeronError, RpcError
from heronpy.proto import control_pb2 as control

if TYPE_CHECKING:
    from heronpy.cli.session import Session
    from heronpy.cli.submission import Started

READY = (control.TASK_RUNNING, control.TASK_PAUSED, control.TASK_EXHAUSTED, control.TASK_FINISHED)
NAMED_MAX = 8
TRACEBACK_WAIT_S = 3.0
EXCEPTIONS_SHOWN = 5
#: How often the scheduler is asked whether a container has failed for good.
CONTAINERS_LOOK_S = 1.0
#: Where a line cannot be overwritten, what is waited for is printed this often.
SAY_WAITING_S = 10.0
#: What is over sooner is not worth a line.
SAY_WAITING_AFTER_S = 2.0


def failed(status: control.StatusReply) -> bool:
    return status.lifecycle == control.LIFE_FAILED or bool(status.startup_exceptions)


def ready(status: control.StatusReply) -> bool:
    """Whether every task has initialised; a bounded topology may be past RUNNING already."""
    return status.lifecycle in (
        control.LIFE_RUNNING,
        control.LIFE_DEGRADED,
        control.LIFE_PAUSED,
        control.LIFE_FINISHING,
        control.LIFE_FINISHED,
    )


def task_name(task: control.TaskStatus) -> str:
    return task.instance_id or f"{task.component} (task {task.task_id})"


def listed(names: list[str]) -> str:
    """The names, the first few when there are many."""
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


def missing(status: control.StatusReply | None, tasks: int) -> str:
    """What is not there yet, as part of a sentence."""
    if status is None:
        return "the topology master has not answered yet"
    waiting = [task_name(task) for task in status.tasks if task.state not in READY]
    unknown = tasks - len(status.tasks)
    parts = []
    if waiting:
        parts.append(f"{len(waiting)} of {tasks} tasks not ready: {listed(waiting)}")
    if unknown > 0:
        parts.append(f"{unknown} of {tasks} tasks not heard of")
    if status.cause:
        parts.append(status.cause)
    return clean("; ".join(parts) or "the topology master has not declared it running")


def failure_report(status: control.StatusReply) -> str:
    """Tracebacks of the tasks that failed, whole; tasks that failed alike share one."""
    alike: dict[str, list[str]] = {}
    for report in status.startup_exceptions:
        text = clean_block(report.traceback or report.message).rstrip()
        alike.setdefault(text, []).append(clean(report.instance_id or report.process))
    blocks = [f"{listed(names)} failed to start:\n{text}" for text, names in alike.items()]
    if not blocks:
        for task in status.tasks:
            if task.state == control.TASK_FAILED:
                blocks.append(f"{clean(task_name(task))}: {clean_block(task.error)}")
    return "\n\n".join(blocks)


def exceptions_report(session: Session, name: str, status: control.StatusReply) -> str:
    """Tracebacks that explain a failure, as far as the topology master can still tell."""
    from heronpy.cli.metrics import exception_text

    report = failure_report(status)
    if status.startup_exceptions:
        return report
    try:
        reply = session.ask(name, control.GetExceptions(), 2.0)
    except (HeronError, exits.Failure):
        return report
    return "\n\n".join(exception_text(item) for item in reply.exceptions[-EXCEPTIONS_SHOWN:]) or report


def failure(session: Session, name: str, status: control.StatusReply) -> exits.Failure:
    cause = status.cause
    if not cause and status.startup_exceptions:
        first = status.startup_exceptions[0]
        where = first.instance_id or first.process
        said = first.message.strip().splitlines()[:1]
        cause = f"{where} failed: {': '.join([first.type or 'an exception', *said])}"
    report = exceptions_report(session, name, status)
    return exits.Failure(f"topology '{name}' failed: {cause or 'see its logs'}", report=report)


def cut(text: str, columns: int) -> str:
    """The begin of a line that takes no more columns than these on a terminal, with … where something is left out."""
    used, fitting = 0, 0
    for index, letter in enumerate(text):
        used += _columns_of(letter)
        if used > columns:
            return text[:fitting] + "…" if columns > 0 else ""
        if used < columns:  # so many letters leave a column for the …
            fitting = index + 1
    return text


def _columns_of(letter: str) -> int:
    """Columns that a letter takes: none for marks on the one before, two for wide ones."""
    if unicodedata.combining(letter) or unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in ("W", "F") else 1


class Progress:
    """One line that is overwritten, on a terminal only; elsewhere now and then a line of what is waited for."""

    def __init__(self) -> None:
        self._on = sys.stderr.isatty()
        self._say_at: float | None = None
        self._shown = ""
        self._frames = 0

    def show(self, text: str) -> None:
        if self._on:
            self._frames += 1
            wheel = "|/-\\"[self._frames // 3 % 4]
            # A line that wraps cannot be overwritten. The last column stays free, for terminals that wrap there.
            self._shown = cut(f"{wheel} {text}", shutil.get_terminal_size().columns - 1)
            sys.stderr.write(f"\r\x1b[K{self._shown}")
            sys.stderr.flush()

    def show_waiting(self, text: str, now: float) -> None:
        """Everything runs but for something outside, which may take long: said on any output."""
        self.show(text)
        if self._say_at is None:
            self._say_at = now + SAY_WAITING_AFTER_S
        if not self._on and now >= self._say_at:
            self._say_at = now + SAY_WAITING_S
            say(text)

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = ""


def until_running(session: Session, started: Started, tasks: int, timeout_s: float) -> control.StatusReply:
    """The first status that is ready; a Failure when the topology fails, vanishes or is late.

    The time in which it is WAITING does not count: what it waits for has a limit of its own, after which the
    topology fails (`heron.spark.start_timeout_s`, `heron.instance.ready_timeout_s`).
    """
    name, deadline = started.record.topology, time.monotonic() + timeout_s
    pause, status, progress = 0.01, None, Progress()
    look_at = time.monotonic() + CONTAINERS_LOOK_S
    try:
        while True:
            latest = poll(session, name)
            status = latest or status
            if latest is not None and failed(latest):
                raise failure(session, name, _with_tracebacks(session, name, latest))
            if latest is not None and ready(latest):
                return latest
            if latest is None:
                _refuse_gone(session, started)
            if time.monotonic() > look_at:
                _refuse_failed_container(session, name)
                look_at = time.monotonic() + CONTAINERS_LOOK_S
            now = time.monotonic()
            if latest is not None and latest.lifecycle == control.LIFE_WAITING:
                deadline = max(deadline, now + timeout_s)
                progress.show_waiting(f"WAITING: {clean(latest.cause)}", now)
            elif now > deadline:
                raise exits.Failure(
                    f"topology '{name}' was not running after {timeout_s:g} s: {missing(status, tasks)}",
                    exits.TIMED_OUT,
                )
            else:
                progress.show(_progress_text(status, tasks))
            time.sleep(pause)
            pause = min(pause * 1.3, 0.1)
    finally:
        progress.clear()


def _progress_text(status: control.StatusReply | None, tasks: int) -> str:
    from heronpy.cli import summary

    if status is None or status.lifecycle == control.LIFE_STARTING:
        return f"STARTING: {missing(status, tasks)}"
    return clean(summary.state_text(status))


def _with_tracebacks(session: Session, name: str, status: control.StatusReply) -> control.StatusReply:
    """The status again once it holds why tasks cannot start: that takes another way than their state."""
    deadline = time.monotonic() + TRACEBACK_WAIT_S
    while not status.startup_exceptions and any(task.state == control.TASK_FAILED for task in status.tasks):
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
        status = poll(session, name) or status
    return status


def poll(session: Session, name: str, timeout_s: float = 1.0) -> control.StatusReply | None:
    """A status, or None while the topology master cannot answer."""
    from heronpy.net.rpc import RpcClient

    location = session.tmaster_location(name)
    if location is None:
        return None
    try:
        peer = f"the topology master of '{name}'"
        with RpcClient(location.endpoint, peer=peer, keys=session.keys(name)) as client:
            reply: control.StatusReply | None = client.call(control.GetStatus(), timeout_s)
            return reply
    except (DeadlineError, RpcError):
        return None


def _refuse_failed_container(session: Session, name: str) -> None:
    """What the topology master cannot tell: a container that cannot start, perhaps its own."""
    from heronpy.net.rpc import RpcClient

    location = session.scheduler_location(name)
    if location is None:
        return
    try:
        with RpcClient(location.endpoint, peer=f"the scheduler of '{name}'") as client:
            reply = client.call(control.GetContainers(), 1.0)
    except (DeadlineError, RpcError):
        return
    for container in reply.containers if reply is not None else ():
        if container.state == control.PROC_FAILED:
            why = f"{container.exit_reason.replace('_', ' ')}: {container.exit_detail}".rstrip(": ")
            raise exits.Failure(f"topology '{name}' failed: {container.name} failed: {clean(why)}")


def _refuse_gone(session: Session, started: Started) -> None:
    from heronpy.cli.submission import scheduler_died

    record = session.record(started.record.topology)
    if record is None or record.topology_id != started.record.topology_id:
        raise exits.Failure(f"topology '{started.record.topology}' was killed while it was starting")
    if started.scheduler.poll() is not None:
        raise scheduler_died(started.spec, started.scheduler)
