"""What happened: the plain data that the shell feeds to the topology master's machine.

`peer` is the ZeroMQ identity of the sender, which is where answers and later messages to it go.
`request` is the shell's token of an open request; the machine answers each token exactly once.
"""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.message import Message

from heronpy.proto import checkpoint_pb2 as ckpt
from heronpy.proto import control_pb2 as control


@dataclass(frozen=True, slots=True)
class StmgrRegistered:
    """A stream manager asks to take part."""

    peer: bytes
    request: int
    message: control.RegisterStmgr


@dataclass(frozen=True, slots=True)
class StmgrBeat:
    """A stream manager tells how it and its tasks are."""

    peer: bytes
    message: control.StmgrHeartbeat


@dataclass(frozen=True, slots=True)
class ExecutorRegistered:
    """An executor says that it supervises a container."""

    peer: bytes
    request: int
    message: control.RegisterExecutor


@dataclass(frozen=True, slots=True)
class ExecutorBeat:
    """An executor tells how its processes are."""

    peer: bytes
    message: control.ExecutorHeartbeat


@dataclass(frozen=True, slots=True)
class ExceptionsReported:
    """User code raised."""

    reports: tuple[control.ExceptionReport, ...]


@dataclass(frozen=True, slots=True)
class StateRequested:
    """Somebody wants the topology activated or deactivated."""

    request: int
    active: bool
    end_input: bool = False
    """Inactive for good: the bolts are to be finished."""


@dataclass(frozen=True, slots=True)
class RestartRequested:
    """Somebody wants a task, a component, a container or everything restarted."""

    request: int
    container: int
    task_id: int
    component: str = ""


@dataclass(frozen=True, slots=True)
class UpdateRequested:
    """Somebody wants the topology to run by another packing plan."""

    request: int
    message: control.UpdateTopology


@dataclass(frozen=True, slots=True)
class ConfigRequested:
    """Somebody wants settings of the running topology changed."""

    request: int
    settings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TaskAnswered:
    """A task has saved its state for a checkpoint, or declines."""

    message: control.TaskCheckpoint


@dataclass(frozen=True, slots=True)
class RestoreFailed:
    """A task cannot restore what its attempt starts from."""

    message: control.RestoreFailed


@dataclass(frozen=True, slots=True)
class DataLost:
    """A stream manager had to give up frames."""

    message: control.DataLost


@dataclass(frozen=True, slots=True)
class MetadataWritten:
    """The metadata of a checkpoint lies at `location`, or does not and `error` says why."""

    metadata: ckpt.Metadata
    location: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointRequested:
    """Somebody wants a checkpoint or savepoint."""

    request: int
    savepoint: bool


@dataclass(frozen=True, slots=True)
class RewindRequested:
    """Somebody wants everything to go back to a checkpoint; 0: the newest."""

    request: int
    checkpoint: int


@dataclass(frozen=True, slots=True)
class DeleteRequested:
    """Somebody wants complete checkpoints deleted."""

    request: int
    checkpoints: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CheckpointsDeleted:
    """The files of checkpoints that somebody wanted deleted are gone, or not all and `error` says why."""

    request: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class SendFailed:
    """A message could not be handed to its peer; whoever needs it there sends it again."""

    peer: bytes
    body: Message


@dataclass(frozen=True, slots=True)
class Tick:
    """The machine's deadline came."""


Event = (
    StmgrRegistered
    | StmgrBeat
    | ExecutorRegistered
    | ExecutorBeat
    | ExceptionsReported
    | StateRequested
    | RestartRequested
    | UpdateRequested
    | ConfigRequested
    | TaskAnswered
    | RestoreFailed
    | DataLost
    | MetadataWritten
    | CheckpointRequested
    | RewindRequested
    | DeleteRequested
    | CheckpointsDeleted
    | SendFailed
    | Tick
)
