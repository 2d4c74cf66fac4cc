"""The control half of a stream manager: its inputs (events) and outputs (effects). Plain data. Pure.

`identity` is the ZeroMQ identity of a task. `request` is the shell's token for an open registration; each token is
answered at most once.
"""

from __future__ import annotations

from enum import Enum, auto

from google.protobuf.message import Message
from msgspec import Struct

from heronpy.common.errors import HeronError
from heronpy.proto import control_pb2, plan_pb2


# ---- events -----------------------------------------------------------------------------------
class Signal(Enum):
    """Events without content."""

    #: Time has passed.
    TICK = auto()
    #: A topology master has accepted this stream manager.
    REGISTERED = auto()
    #: The switch routes by the newest plan.
    PLAN_IN_FORCE = auto()
    #: A queue of the switch has crossed a mark.
    PRESSURE_CHANGED = auto()
    #: The switch has not returned some credit, because it is below a quarter window.
    CREDIT_OWED = auto()
    #: The process ends.
    STOPPED = auto()


class TaskRegistered(Struct, frozen=True):
    """A process that may be a task of this container requests its registration."""

    request: int
    identity: bytes
    message: control_pb2.RegisterInstance


class TaskReported(Struct, frozen=True):
    identity: bytes
    status: control_pb2.TaskStatus


class TaskRemoved(Struct, frozen=True):
    """The switch has removed a task that is not in the plan."""

    task: int


class PlanReceived(Struct, frozen=True):
    """The topology master sends a physical plan."""

    plan: plan_pb2.PhysicalPlan


class TasksOrdered(Struct, frozen=True):
    """The topology master's message for tasks: FinishTasks, HoldTicks, TraceRate, or a message about a checkpoint."""

    order: Message


class PressureHeard(Struct, frozen=True):
    """Another stream manager in the plan announces backpressure, or its end."""

    message: control_pb2.Backpressure


Event = Signal | TaskRegistered | TaskReported | TaskRemoved | PlanReceived | TasksOrdered | PressureHeard


# ---- effects ----------------------------------------------------------------------------------
class Duty(Enum):
    """Effects without content."""

    #: Return the credit that the switch has not returned yet.
    SETTLE_CREDIT = auto()
    #: Probe peers, and reopen the links to silent ones.
    PROBE_PEERS = auto()
    #: Report to the topology master, if there is one.
    SEND_HEARTBEAT = auto()
    #: Report to the executor.
    EXPORT_METRICS = auto()


class SwitchPlan(Struct, frozen=True):
    """Route by this plan; PLAN_IN_FORCE follows."""

    plan: plan_pb2.PhysicalPlan
    #: Component of each task of this container.
    here: dict[int, str]
    #: The stream manager of each other task.
    elsewhere: dict[int, str]
    spouts: frozenset[str]
    #: Tasks with a session.
    connected: frozenset[int]
    #: True if a full queue withholds the credit of its senders.
    holds: bool
    #: The tuples that are discarded instead of holding senders back; "": none.
    drops: str


class AttachTask(Struct, frozen=True):
    """Begin a link to a task."""

    registration: TaskRegistered
    is_spout: bool
    link_epoch: int


class RemoveTask(Struct, frozen=True):
    """Remove a task that is not in the plan."""

    task: int


class Clamp(Struct, frozen=True):
    """Stop or resume the spouts of this container."""

    on: bool


class HoldCredit(Struct, frozen=True):
    """Hold back the credit of frames for full tasks, or return it while a checkpoint saves the tuples in flight."""

    on: bool


class Reply(Struct, frozen=True):
    """Answer a registration with a body, with nothing, or with the reason for a refusal."""

    request: int
    body: control_pb2.RegisterInstanceReply | None = None
    error: HeronError | None = None


class Tell(Struct, frozen=True):
    """Send a one-way message to a task."""

    identity: bytes
    body: Message


class ConnectPeer(Struct, frozen=True):
    """Connect to a stream manager, or to its new incarnation."""

    record: plan_pb2.StmgrRecord


class DropPeer(Struct, frozen=True):
    """Drop a stream manager that has left the plan."""

    name: str


class Announce(Struct, frozen=True):
    """Announce backpressure, or its end, to all peers."""

    message: control_pb2.Backpressure


class Note(Struct, frozen=True):
    """Write a line to the log."""

    text: str
    warning: bool = False


Effect = (
    Duty
    | SwitchPlan
    | AttachTask
    | RemoveTask
    | Clamp
    | HoldCredit
    | Reply
    | Tell
    | ConnectPeer
    | DropPeer
    | Announce
    | Note
)
