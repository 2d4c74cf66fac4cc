"""`POST` and `GET /api/v1/.../tasks/{id}/{stacks|profile|heap}`: captures the current activity of a process.

POST starts a capture, and GET returns the last result, because a profile takes longer than a request should. The
executor runs one capture per process at a time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from heronpy.clusters.errors import ClusterError, RequestError
from heronpy.clusters.live_evidence import HEAP_LIMIT_S, Process, answer_s, find_process, pause_text
from heronpy.common.errors import HeronError, InvalidRpcError, RetryableRpcError
from heronpy.common.ids import is_called
from heronpy.net.answers import read
from heronpy.proto import control_pb2
from heronpy.tracker.calls import Call, Table
from heronpy.tracker.evidence_cache import Entry
from heronpy.tracker.guard import Problem, Scope
from heronpy.tracker.reading import TASK
from heronpy.tracker.sources import Watched
from heronpy.views.evidence import Evidence, EvidenceBody, Heap, Profile

STACKS, PROFILE, HEAP = "stacks", "profile", "heap"
DURATION_MIN_S, DURATION_MAX_S = 0.5, 60.0
RATE_MAX, TOP_MAX = 1000, 500

#: A process that does not run, as part of a sentence.
_DOWN = {
    control_pb2.PROC_STARTING: "is being started",
    control_pb2.PROC_BACKOFF: "has ended and is about to be restarted",
    control_pb2.PROC_FAILED: "has ended and will not be restarted",
    control_pb2.PROC_STOPPED: "has ended",
}

table = Table()

Request = control_pb2.DumpStacks | control_pb2.Profile | control_pb2.Heap


async def _start(call: Call, kind: str, takes_s: float, make: Callable[[str], Request]) -> Evidence:
    """Start a capture of the process that the path names."""
    watched, tracker = call.watched, call.tracker
    status = await watched.master.ask(control_pb2.GetStatus())
    try:
        process = find_process(watched.name, status, call.path["id"])
    except RequestError as error:
        raise Problem(404, "not-found", str(error)) from None
    except ClusterError as error:
        why = why_down(status, call.path["id"]) or str(error)
        raise Problem(409, "not-running", why, "see its log") from None
    busy = tracker.evidence.busy(watched.record.topology_id, process.name)
    if busy is not None:
        text = f"evidence of {process.name} is already being collected: {busy.kind}"
        raise Problem(409, "busy", text, "wait until the collection has ended")
    if tracker.evidence.is_full:
        raise Problem(503, "busy", "evidence of too many processes is being collected", "try again in a few seconds")
    found = Evidence(process=process.name, kind=kind, under_way=True, at=time.time(), takes_s=takes_s)
    entry = Entry(watched.record.topology_id, process.name, kind, found)
    tracker.evidence.begin(entry, _take(call, watched, process, kind, takes_s, make(process.name)))
    return found


async def _take(
    call: Call, watched: Watched, process: Process, kind: str, takes_s: float, request: Request
) -> Evidence:
    """Request the capture from the executor, and log the client and the outcome."""
    outcome = "was interrupted"
    try:
        reply = await watched.master.take(process.container, request, answer_s(takes_s))
        outcome = "done"
    except HeronError as error:
        outcome = await _why_none(watched, process, error)
        if outcome != str(error):
            raise ClusterError(outcome) from None
        raise
    finally:
        call.tracker.changed(call.asker, f"{kind} of {process.name}", watched.place, outcome)
    found = Evidence(process=process.name, kind=kind, under_way=False, at=0.0, takes_s=takes_s)
    if isinstance(reply, control_pb2.DumpStacksReply):
        found.stacks = reply.text
    elif kind == PROFILE:
        found.profile = read(reply, Profile)
    else:
        found.heap = read(reply, Heap)
    return found


async def _why_none(watched: Watched, process: Process, error: HeronError) -> str:
    """Return why there is no result: the process has meanwhile ended or, otherwise, the error."""
    said = str(error)
    if isinstance(error, InvalidRpcError):  # its executor reports the end sooner than the topology master
        said = f"{process.name} has ended, and may be about to be restarted"
    try:
        status = await watched.master.ask(control_pb2.GetStatus())
    except HeronError:
        return said
    now = next((one for each in status.executors for one in each.processes if one.name == process.name), None)
    if now is not None and now.state == control_pb2.PROC_RUNNING and now.pid not in (0, process.pid):
        return f"{process.name} has ended in the meantime{_reason(now)}, and was restarted; try again"
    return why_down(status, process.name) or said


def why_down(status: control_pb2.StatusReply, what: str) -> str:
    """Return a sentence if the named process has ended or is restarting; "" if it is running or does not exist."""
    for executor in status.executors:
        for one in executor.processes:
            if is_called(one.name, what) and one.state in _DOWN:
                return f"{one.name} {_DOWN[one.state]}{_reason(one)}"
    return ""


def _reason(process: control_pb2.ProcessRecord) -> str:
    return f" ({process.exit_reason})" if process.exit_reason else ""


def _newest(call: Call, kind: str) -> Evidence:
    """Return the last capture; raises Problem if there is none, or if it failed."""
    what, watched = call.path["id"], call.watched
    entry = call.tracker.evidence.find(watched.record.topology_id, what, kind)
    if entry is None:
        raise Problem(404, "not-found", f"{kind} of {what[:200]!r} was not requested", f"POST .../{kind} first")
    if isinstance(entry.problem, RetryableRpcError):
        raise Problem(409, "busy", str(entry.problem), "send the request again")
    if entry.problem is not None:
        raise entry.problem.with_traceback(None)
    return entry.found


def _declare_newest(kind: str, summary: str) -> None:
    async def newest(call: Call) -> Evidence:
        return _newest(call, kind)

    newest.__name__, newest.__doc__ = kind, summary
    table.route("GET", TASK + kind, Scope.ALL, returns=Evidence)(newest)


_declare_newest(STACKS, "The last captured stacks.")
_declare_newest(PROFILE, "The last captured profile.")
_declare_newest(HEAP, "The most recently counted objects, by type.")


@table.route("POST", TASK + STACKS, Scope.ALL, takes=EvidenceBody, returns=Evidence)
async def take_stacks(call: Call) -> Evidence:
    """Capture the stacks of all threads of a task, or of another named process."""
    _check(call.body)
    return await _start(call, STACKS, 1.0, lambda name: control_pb2.DumpStacks(name=name))


@table.route("POST", TASK + PROFILE, Scope.ALL, takes=EvidenceBody, returns=Evidence)
async def take_profile(call: Call) -> Evidence:
    """Sample a task, or another named process, for `duration_s`."""
    body: EvidenceBody = call.body
    _check(body)

    def make(name: str) -> control_pb2.Profile:
        return control_pb2.Profile(
            name=name, duration_s=body.duration_s, rate=body.rate, idle=body.idle, native=body.native
        )

    return await _start(call, PROFILE, body.duration_s, make)


@table.route("POST", TASK + HEAP, Scope.ALL, takes=EvidenceBody, returns=Evidence)
async def take_heap(call: Call) -> Evidence:
    """Count the objects in a task, or in another process. This stops the process for a time, so `pause` is required."""
    body: EvidenceBody = call.body
    _check(body)
    if not body.pause:
        text = pause_text(call.path["id"][:200], HEAP_LIMIT_S)
        raise Problem(428, "pause", text, "confirm the pause with pause: true")
    return await _start(
        call, HEAP, HEAP_LIMIT_S, lambda name: control_pb2.Heap(name=name, top=body.top, limit_s=HEAP_LIMIT_S)
    )


def _check(body: EvidenceBody) -> None:
    """Raise Problem for a number that is out of range."""
    limits = (
        ("duration_s", body.duration_s, DURATION_MIN_S, DURATION_MAX_S),
        ("rate", body.rate, 1, RATE_MAX),
        ("top", body.top, 1, TOP_MAX),
    )
    for name, value, low, high in limits:
        if not (math.isfinite(value) and low <= value <= high):
            raise Problem(400, "bad-request", f"{name} is {value:g}; it must be from {low:g} to {high:g}")
