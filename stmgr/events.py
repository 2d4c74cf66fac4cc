"""The control half of a stream manager: its inputs (events) and outputs (effects). Plain data.

`identity` is the ZeroMQ identity of a task. `request` is the shell's token of an open registration; each
token is answered at most once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from google.protobuf.message import Message

from heronpy.common.errors import HeronError
from heronpy.proto import control_pb2, plan_pb2


# ---- events -----------------------------------------------------------------------------------
class Signal(Enum):
    """Events without content."""

    #: Time has passed.
    TICK = auto()
    #: A topology master has taken this stream manager in.
    REGISTERED = auto()
    #: The switch routes by the newest plan.
    PLAN_IN_FORCE = auto()
    #: A queue of the switch has crossed a mark.
    PRESSURE_CHANGED = auto()
    #: The switch owes credit below a quarter window.
    CREDIT_OWED = auto()
    #: The process ends.
    STOPPED = auto()


@dataclass(frozen=True, slots=True)
class TaskRegistered:
    """A process that may be a task of this container asks to take part."""

    request: int
    identity: bytes
    message: control_pb2.RegisterInstance


@dataclass(frozen=True, slots=True)
class TaskReported:
    """The heartbeat of a task."""

    identity: bytes
    status: control_pb2.TaskStatus


@dataclass(frozen=True, slots=True)
class TaskRemoved:
    """The switch has let go of a task that is not in the plan."""

    task: int


@dataclass(frozen=True, slots=True)
class PlanReceived:
    """The topology master sends a physical plan."""

    plan: plan_pb2.PhysicalPlan


@dataclass(frozen=True, slots=True)
class TasksOrdered:
    """The topology master's message for tasks: FinishTasks, HoldTicks, TraceRate or one about a checkpoint."""

    order: Message


@dataclass(frozen=True, slots=True)
class PressureHeard:
    """Another stream manager of the plan announces backpressure, or its end."""

    message: control_pb2.Backpressure


Event = Signal | TaskRegistered | TaskReported | TaskRemoved | PlanReceived | TasksOrdered | PressureHeard


# ---- effects ----------------------------------------------------------------------------------
class Duty(Enum):
    """Effects without content."""

    #: Return the credit that the switch owes.
    SETTLE_CREDIT = auto()
    #: Probe peers, and reopen the links to silent ones.
    PROBE_PEERS = auto()
    #: Report to the topology master, if there is one.
    SEND_HEARTBEAT = auto()
    #: Report to the executor.
    EXPORT_METRICS = auto()


@dataclass(frozen=True, slots=True)
class SwitchPlan:
    """Route by this plan; PLAN_IN_FORCE follows."""

    plan: plan_pb2.PhysicalPlan
    #: Component of each task of this container.
    here: dict[int, str]
    #: Stream manager of each other task.
    elsewhere: dict[int, str]
    spouts: frozenset[str]
    #: Tasks with a session.
    connected: frozenset[int]
    #: A queue above this many bytes keeps the credit of its senders.
    hold_above: int


@dataclass(frozen=True, slots=True)
class AttachTask:
    """Begin a link of a task."""

    registration: TaskRegistered
    is_spout: bool
    link_epoch: int


@dataclass(frozen=True, slots=True)
class RemoveTask:
    """Let go of a task that is not in the plan."""

    task: int


@dataclass(frozen=True, slots=True)
class Clamp:
    """Stop or resume the spouts of this container."""

    on: bool


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer a registration: with a body, with nothing, or with why not."""

    request: int
    body: control_pb2.RegisterInstanceReply | None = None
    error: HeronError | None = None


@dataclass(frozen=True, slots=True)
class Tell:
    """Send a one-way message to a task."""

    identity: bytes
    body: Message


@dataclass(frozen=True, slots=True)
class ConnectPeer:
    """Connect to a stream manager, or to its new incarnation."""

    record: plan_pb2.StmgrRecord


@dataclass(frozen=True, slots=True)
class DropPeer:
    """A stream manager has left the plan."""

    name: str


@dataclass(frozen=True, slots=True)
class Announce:
    """Send to all peers."""

    message: control_pb2.Backpressure


@dataclass(frozen=True, slots=True)
class Note:
    """A line of the log."""

    text: str
    warning: bool = False


Effect = Duty | SwitchPlan | AttachTask | RemoveTask | Clamp | Reply | Tell | ConnectPeer | DropPeer | Announce | Note
