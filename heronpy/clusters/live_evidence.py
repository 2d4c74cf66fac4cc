"""Requests evidence of one process, such as its stacks or a profile, from its executor's file service."""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.message import Message

from heronpy.clusters.errors import ClusterError, RequestError
from heronpy.clusters.session import Session
from heronpy.common.ids import executor_id, is_called
from heronpy.common.nearest import suggestion
from heronpy.common.units import listed
from heronpy.proto import control_pb2

#: Time that an executor needs in addition to the samples; py-spy may fail before the process samples itself.
ANSWER_S = 45.0
#: Longest stop of a process while its objects are counted.
HEAP_LIMIT_S = 2.0


@dataclass(frozen=True, slots=True)
class Process:
    """A running process of a topology."""

    #: `container_1_word_3`, `stmgr-1`, `tmaster`, `executor-1`.
    name: str
    container: int
    #: Endpoint of the process's executor.
    service: str
    pid: int
    rss_bytes: int = 0


def find_process(topology: str, status: control_pb2.StatusReply, what: str) -> Process:
    """The process or task with this name (`is_called`), or the only task of this component.

    Raises RequestError, with the nearest name or all possible names, unless exactly one process matches, and
    ClusterError if this process is not running.
    """
    known: dict[str, Process] = {}
    down = set()
    for executor in status.executors:
        place = executor.container, executor.file_service
        for one in executor.processes:
            known[one.name] = Process(one.name, *place, one.pid, one.rss_bytes)
            if one.state != control_pb2.PROC_RUNNING or not one.pid:
                down.add(one.name)
        name = executor_id(executor.container)
        known[name] = Process(name, *place, executor.pid)
    found = known.get(what)
    if found is None:
        tasks = [one.instance_id for one in status.tasks if one.component == what]
        meant = list(dict.fromkeys([*tasks, *(name for name in known if is_called(name, what))]))
        if len(meant) > 1:
            whose = f"component '{what}'" if set(meant) == set(tasks) else f"the name '{what}'"
            raise RequestError(
                f"{whose} of topology '{topology}' has {len(meant)} tasks; name one of them: {listed(meant, 30)}"
            )
        found = known.get(meant[0]) if meant else None
    if found is None:
        hint = suggestion(what[:200], known, f"; it has {', '.join(sorted(known)[:30])}")
        raise RequestError(f"topology '{topology}' has no task or process '{what[:200]}'{hint}")
    if found.name in down:
        raise ClusterError(f"{found.name} is not running; see 'heron status'")
    if not found.service:
        raise ClusterError(f"the executor of {found.name} has no file service, because it is from an earlier release")
    return found


def pause_text(name: str, limit_s: float) -> str:
    return f"{name} stops for up to {limit_s:g} s while its objects are counted"


def answer_s(takes_s: float) -> float:
    """Time limit in seconds for the answer to a request that takes `takes_s`."""
    return 2 * takes_s + ANSWER_S


def take(session: Session, topology: str, process: Process, request: Message, takes_s: float) -> Message:
    """Request evidence of a process; blocking. Raises RpcError if refused, DeadlineError if the answer is late."""
    reply: Message = session.ask_executor(topology, process.container, process.service, request, answer_s(takes_s))
    return reply
