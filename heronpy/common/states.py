"""The states of topologies, tasks and processes on the wire: which states count as up, and names for people. Pure."""

from __future__ import annotations

from typing import Final

from heronpy.common.units import format_duration
from heronpy.proto import control_pb2

#: States of a task that has initialised and is running, or has ended properly.
UP_STATES: Final = frozenset(
    {control_pb2.TASK_RUNNING, control_pb2.TASK_PAUSED, control_pb2.TASK_EXHAUSTED, control_pb2.TASK_FINISHED}
)
#: Seconds for which a queue must be full to show that its task is slow.
BRIEF_S: Final = 0.1
#: Map from phase of the start to the field of StartTimes with its end, and a description.
START_PHASES = {
    "package": ("packaged_at", "the program is loaded, planned and packed"),
    "launch": ("launched_at", "scheduler, containers and topology master start"),
    "register": ("registered_at", "all stream managers register"),
    "plan": ("planned_at", "the physical plan is made"),
    "initialise": ("running_at", "the tasks start and initialise"),
}


def lifecycle_name(lifecycle: control_pb2.Lifecycle) -> str:
    """Return the name of a lifecycle state, such as RUNNING or PAUSED."""
    return control_pb2.Lifecycle.Name(lifecycle).removeprefix("LIFE_")


def task_name(task: control_pb2.TaskStatus) -> str:
    """Return the task name to show to users, which is its instance id if it has one."""
    return task.instance_id or f"{task.component} (task {task.task_id})"


def task_state_name(state: control_pb2.TaskState) -> str:
    """Return the name of a task state, such as RUNNING or EXHAUSTED."""
    return control_pb2.TaskState.Name(state).removeprefix("TASK_")


def process_state_name(state: control_pb2.ProcessState) -> str:
    """Return the name of a process state, such as RUNNING or BACKOFF."""
    return control_pb2.ProcessState.Name(state).removeprefix("PROC_")


def culprit_name(culprit: control_pb2.Culprit) -> str:
    """Return the name of the task, or of the link between stream managers, that slows the topology down."""
    return culprit.instance_id or culprit.component or f"the link from {culprit.stmgr_id} to {culprit.peer or 'a peer'}"


def holds(culprit: control_pb2.Culprit) -> bool:
    """Whether senders wait for the culprit; otherwise its tuples go to other tasks or are discarded."""
    return not (culprit.avoided or culprit.drops)


def has_failed(status: control_pb2.StatusReply) -> bool:
    """Whether the topology has failed, or one of its tasks cannot start."""
    return status.lifecycle == control_pb2.LIFE_FAILED or bool(status.startup_exceptions)


def start_phases(start: control_pb2.StartTimes) -> dict[str, float]:
    """Return the seconds that each finished phase took; they may be negative if the clocks of two hosts differ."""
    found: dict[str, float] = {}
    before = start.begun_at
    for name, (field, _) in START_PHASES.items():
        ended_at = getattr(start, field)
        if not ended_at:
            break
        found[name], before = ended_at - before, ended_at
    return found


def start_text(start: control_pb2.StartTimes) -> str:
    """Format the phases of a start, such as `5.2s: package 1.3s, launch 1s, ...`."""
    took = start_phases(start)
    parts = ", ".join(f"{name} {format_duration(round(seconds, 2))}" for name, seconds in took.items())
    return f"{format_duration(round(sum(took.values()), 2))}: {parts}"
