"""Waiting until a submitted topology runs: short polls at first, because a small one is up in a few 100 ms."""

from __future__ import annotations

import time

from heronpy.cli import exits
from heronpy.cli.output import clean
from heronpy.cli.render import summary
from heronpy.cli.render.exceptions import exception_text
from heronpy.cli.render.progress import Progress
from heronpy.cli.render.summary import failure_report, missing, ready
from heronpy.cli.submit.model import Started
from heronpy.cli.submit.submission import scheduler_died
from heronpy.clusters.session import Session
from heronpy.common.errors import HeronError
from heronpy.common.states import has_failed
from heronpy.proto import control_pb2

TRACEBACK_WAIT_S = 3.0
EXCEPTIONS_SHOWN = 5
#: A topology gets at least this long to start, whatever the program took.
LEAST_S = 1.0
#: How often the scheduler is asked whether a container has failed permanently.
CONTAINERS_LOOK_S = 1.0


def exceptions_report(session: Session, name: str, status: control_pb2.StatusReply) -> str:
    """Tracebacks that explain a failure, as far as the topology master still has them."""
    report = failure_report(status)
    if status.startup_exceptions:
        return report
    try:
        reply = session.ask(name, control_pb2.GetExceptions(), 2.0)
    except (HeronError, exits.Failure):
        return report
    return "\n\n".join(exception_text(item) for item in reply.exceptions[-EXCEPTIONS_SHOWN:]) or report


def failure(session: Session, name: str, status: control_pb2.StatusReply) -> exits.Failure:
    # Until the topology is FAILED its cause is what it waits for, and not why that will never come.
    cause = status.cause if status.lifecycle == control_pb2.LIFE_FAILED else ""
    if not cause and status.startup_exceptions:
        first = status.startup_exceptions[0]
        where = first.instance_id or first.process
        said = first.message.strip().splitlines()[:1]
        cause = f"{where} failed: {': '.join([first.type or 'an exception', *said])}"
    report = exceptions_report(session, name, status)
    return exits.Failure(f"topology '{name}' failed: {cause or 'see its logs'}", report=report)


def until_running(
    session: Session, started: Started, tasks: int, timeout_s: float, begun_at: float
) -> control_pb2.StatusReply:
    """The first status that is ready; a Failure when the topology fails, vanishes or is late.

    Time spent WAITING does not count: what it waits for has its own limit, after which the
    topology fails (`heron.spark.start_timeout_s`, `heron.instance.ready_timeout_s`).
    """
    name = started.record.topology
    deadline = max(begun_at + timeout_s, time.monotonic() + LEAST_S)
    pause, status, progress = 0.01, None, Progress()
    look_at = time.monotonic() + CONTAINERS_LOOK_S
    try:
        while True:
            latest = session.poll(name)
            status = latest or status
            if latest is not None and has_failed(latest):
                raise failure(session, name, _with_tracebacks(session, name, latest))
            if latest is not None and ready(latest):
                return latest
            if latest is None:
                _refuse_gone(session, started)
            if time.monotonic() > look_at:
                _refuse_failed_container(session, name)
                look_at = time.monotonic() + CONTAINERS_LOOK_S
            now = time.monotonic()
            if latest is not None and latest.lifecycle == control_pb2.LIFE_WAITING:
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


def _progress_text(status: control_pb2.StatusReply | None, tasks: int) -> str:
    if status is None or status.lifecycle == control_pb2.LIFE_STARTING:
        return f"STARTING: {missing(status, tasks)}"
    return clean(summary.state_text(status))


def _with_tracebacks(session: Session, name: str, status: control_pb2.StatusReply) -> control_pb2.StatusReply:
    """The status again once it holds why tasks cannot start: reasons arrive separately from states."""
    deadline = time.monotonic() + TRACEBACK_WAIT_S
    while not status.startup_exceptions and any(task.state == control_pb2.TASK_FAILED for task in status.tasks):
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
        status = session.poll(name) or status
    return status


def _refuse_failed_container(session: Session, name: str) -> None:
    """A Failure that the topology master cannot report: a container that cannot start, perhaps its own."""
    container = session.failed_container(name)
    if container is not None:
        why = f"{container.exit_reason.replace('_', ' ')}: {container.exit_detail}".rstrip(": ")
        raise exits.Failure(f"topology '{name}' failed: {container.name} failed: {clean(why)}")


def _refuse_gone(session: Session, started: Started) -> None:
    record = session.record(started.record.topology)
    if record is None or record.topology_id != started.record.topology_id:
        raise exits.Failure(f"topology '{started.record.topology}' was killed while it was starting")
    if started.scheduler.poll() is not None:
        raise scheduler_died(started.spec, started.scheduler)
