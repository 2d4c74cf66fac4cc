"""Waits until a submitted topology runs; polls often at first, because a small topology starts in 100 to 300 ms."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

from heronpy.cli import exits
from heronpy.cli.output import clean
from heronpy.cli.render import summary
from heronpy.cli.render.containers import QUEUED, late
from heronpy.cli.render.containers import text as container_text
from heronpy.cli.render.exceptions import exception_text
from heronpy.cli.render.progress import Progress
from heronpy.cli.render.summary import failure_report, missing, ready
from heronpy.clusters.session import Session, failed_of
from heronpy.common.errors import GaveUpError, HeronError
from heronpy.common.states import has_failed
from heronpy.launching.model import Started
from heronpy.launching.spawning import scheduler_died
from heronpy.procs.exit_reason import COUNTED, ExitReason
from heronpy.proto import control_pb2

TRACEBACK_WAIT_S = 3.0
EXCEPTIONS_SHOWN = 5
#: A topology gets at least this long to start, however long the program took.
LEAST_S = 1.0
#: Reasons for an end without a request. A container that was requeued for such a reason does not count as waiting.
_OWN_ENDS = {reason.value for reason in COUNTED - {ExitReason.KILLED}}
#: Interval of the checks whether a container has failed permanently.
CONTAINERS_LOOK_S = 1.0
#: How long the topology master may wait for the start of all tasks before it answers.
STARTING_S = 0.5


class TopologyFailed(exits.Failure):
    """The last status of the topology is FAILED: it can neither start nor finish."""

    def __init__(self, text: str, status: control_pb2.StatusReply, report: str) -> None:
        super().__init__(text, report=report)
        self.status = status


def exceptions_report(session: Session, name: str, status: control_pb2.StatusReply) -> str:
    """Return the tracebacks of a failure that the topology master still has."""
    report = failure_report(status)
    if status.startup_exceptions:
        return report
    return "\n\n".join(exception_text(item) for item in _exceptions(session, name)[-EXCEPTIONS_SHOWN:]) or report


def user_errors(session: Session, name: str) -> str:
    """Return each traceback of user code once, even if the first line, which names the attempt at a unit, differs."""
    told = {
        (item.type, item.traceback.partition("\n")[2] or item.message): item
        for item in _exceptions(session, name)
        if item.type.rpartition(".")[2] != GaveUpError.__name__
    }
    return "\n\n".join(exception_text(item) for item in list(told.values())[-EXCEPTIONS_SHOWN:])


def _exceptions(session: Session, name: str) -> list[control_pb2.ExceptionReport]:
    with suppress(HeronError):
        return list(session.ask(name, control_pb2.GetExceptions(), 2.0).exceptions)
    return []


def exceptions_said(session: Session, name: str) -> list[str]:
    """Return a line for each of a topology's newest exceptions, to print after its end; equal lines appear once."""
    found = _exceptions(session, name)
    said = (": ".join([item.type, *item.message.strip().splitlines()[:1]]) for item in found)
    return list(dict.fromkeys(said))[-EXCEPTIONS_SHOWN:]


def failure(session: Session, name: str, status: control_pb2.StatusReply) -> TopologyFailed:
    # Until the topology is FAILED, its cause says only what it is waiting for.
    cause = status.cause if status.lifecycle == control_pb2.LIFE_FAILED else ""
    if not cause and status.startup_exceptions:
        first = status.startup_exceptions[0]
        where = first.instance_id or first.process
        said = first.message.strip().splitlines()[:1]
        cause = f"{where} failed: {': '.join([first.type or 'an exception', *said])}"
    report = exceptions_report(session, name, status)
    return TopologyFailed(f"topology '{name}' failed: {cause or 'see its logs'}", status, report)


class Queue:
    """Tracks containers that wait in an engine's queue; `look` reads the scheduler's report."""

    def __init__(self, name: str, timeout_s: float | None, now: float) -> None:
        self._name, self._timeout_s, self._looked_at = name, timeout_s, now
        self._queued_s = 0.0
        #: Why a container waits in the queue; "" if no container waits.
        self.waits_for = ""
        #: The first container that does not run; "" if all run or there is no engine.
        self.late = ""

    def look(self, containers: Sequence[control_pb2.ProcessRecord], now: float, wall_s: float) -> None:
        """Raise a Failure when containers have waited longer than the limit."""
        queued = [one for one in containers if one.phase == QUEUED and one.exit_reason not in _OWN_ENDS]
        self._queued_s += now - self._looked_at if queued and self.waits_for else 0.0
        self._looked_at = now
        self.waits_for = _with_others(queued, wall_s)
        self.late = _with_others(late(containers), wall_s)
        if queued and self._timeout_s is not None and self._queued_s >= self._timeout_s:
            raise exits.Failure(
                f"topology '{self._name}' was still in the queue after {self._timeout_s:g} s: {clean(self.waits_for)}",
                exits.TIMED_OUT,
            )


def _with_others(containers: Sequence[control_pb2.ProcessRecord], wall_s: float) -> str:
    if not containers:
        return ""
    more = f" (and {len(containers) - 1} more)" if len(containers) > 1 else ""
    return container_text(containers[0], wall_s) + more


def until_running(
    session: Session,
    started: Started,
    tasks: int,
    timeout_s: float,
    begun_at: float,
    queue_timeout_s: float | None = None,
) -> control_pb2.StatusReply:
    """Return the first status in which the topology is ready; raises a Failure if it fails, vanishes or times out.

    Time spent WAITING does not count: it has its own limits, after which the topology fails
    (`heron.spark.start_timeout_s`, `heron.instance.ready_timeout_s`). Time in an engine's queue has the limit
    `queue_timeout_s` instead, except for a container that has returned to the queue after a failure.
    """
    name = started.record.topology
    deadline = max(begun_at + timeout_s, time.monotonic() + LEAST_S)
    pause, status, progress = 0.01, None, Progress()
    queue = Queue(name, queue_timeout_s, time.monotonic())
    look_at = time.monotonic() + CONTAINERS_LOOK_S
    try:
        while True:
            latest = session.poll(name, starting_s=STARTING_S)
            status = latest or status
            if latest is not None and has_failed(latest):
                raise failure(session, name, _with_tracebacks(session, name, latest))
            if latest is not None and ready(latest):
                return latest
            if latest is None:
                _refuse_gone(session, started)
            if time.monotonic() > look_at:
                found = session.containers(name)
                _refuse_failed_container(name, found)
                queue.look(found.containers if found is not None else (), time.monotonic(), time.time())
                look_at = time.monotonic() + CONTAINERS_LOOK_S
            now = time.monotonic()
            if latest is not None and latest.lifecycle == control_pb2.LIFE_WAITING:
                deadline = max(deadline, now + timeout_s)
                progress.show_waiting(f"WAITING: {clean(latest.cause)}", now)
            elif queue.waits_for:
                deadline = max(deadline, now + timeout_s)
                progress.show_waiting(clean(queue.waits_for), now)
            elif now > deadline:
                what = f"{clean(queue.late)}; {missing(status, tasks)}" if queue.late else missing(status, tasks)
                raise exits.Failure(
                    f"topology '{name}' was not running after {timeout_s:g} s: {what}",
                    exits.TIMED_OUT,
                )
            else:
                progress.show(clean(queue.late) or _progress_text(status, tasks))
            time.sleep(pause)
            pause = min(pause * 1.3, 0.1)
    finally:
        progress.clear()


def _progress_text(status: control_pb2.StatusReply | None, tasks: int) -> str:
    if status is None or status.lifecycle == control_pb2.LIFE_STARTING:
        return f"STARTING: {missing(status, tasks)}"
    return clean(summary.state_text(status))


def _with_tracebacks(session: Session, name: str, status: control_pb2.StatusReply) -> control_pb2.StatusReply:
    """Wait until the status has the reasons for the failure, which arrive separately from the states, and return it."""
    deadline = time.monotonic() + TRACEBACK_WAIT_S
    while not status.startup_exceptions and any(task.state == control_pb2.TASK_FAILED for task in status.tasks):
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
        status = session.poll(name) or status
    return status


def _refuse_failed_container(name: str, found: control_pb2.ContainersReply | None) -> None:
    """Raise a Failure for a container that cannot start, which the topology master may be unable to report."""
    container = failed_of(found)
    if container is not None:
        why = f"{container.exit_reason.replace('_', ' ')}: {container.exit_detail}".strip(": ")
        raise exits.Failure(f"topology '{name}' failed: {container.name} failed: {clean(why)}")


def _refuse_gone(session: Session, started: Started) -> None:
    record = session.record(started.record.topology)
    if record is None or record.topology_id != started.record.topology_id:
        raise exits.Failure(f"topology '{started.record.topology}' was killed while it was starting")
    if started.scheduler.poll() is not None:
        raise scheduler_died(started.spec, started.scheduler)
