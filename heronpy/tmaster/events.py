"""What happened: the plain data that the shell feeds to the topology master's machine.

`peer` is the ZeroMQ identity of the sender, which is where answers and later messages to it go.
`request` is the shell's token of an open request; the machine answers each token exactly once.
"""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.message import Message

from heronpy.proto import checkpoint_pb2, control_pb2


@dataclass(frozen=True, slots=True)
class StmgrRegistered:
    """A stream manager asks to take part."""

    peer: bytes
    request: int
    message: control_pb2.RegisterStmgr


@dataclass(frozen=True, slots=True)
class StmgrBeat:
    """A stream manager tells how it and its tasks are."""

    peer: bytes
    message: control_pb2.StmgrHeartbeat


@dataclass(frozen=True, slots=True)
class ExecutorRegistered:
    """An executor says that it supervises a container."""

    peer: bytes
    request: int
    message: control_pb2.RegisterExecutor


@dataclass(frozen=True, slots=True)
class ExecutorBeat:
    """An executor tells how its processes are."""

    peer: bytes
    message: control_pb2.ExecutorHeartbeat


@dataclass(frozen=True, slots=True)
class ExceptionsReported:
    """User code raised."""

    reports: tuple[control_pb2.ExceptionReport, ...]


@dataclass(frozen=True, slots=True)
class StateRequested:
    """A request to activate or deactivate the topology."""

    request: int
    active: bool
    end_input: bool = False
    """Inactive for good: the bolts are to be finished."""


@dataclass(frozen=True, slots=True)
class RestartRequested:
    """A request to restart a task, a component, a container or everything."""

    request: int
    container: int
    task_id: int
    component: str = ""


@dataclass(frozen=True, slots=True)
class UpdateRequested:
    """A request to run by another packing plan."""

    request: int
    message: control_pb2.UpdateTopology


@dataclass(frozen=True, slots=True)
class ConfigRequested:
    """A request to change settings of the running topology."""

    request: int
    settings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TaskAnswered:
    """A task has saved its state for a checkpoint, or declines."""

    message: control_pb2.TaskCheckpoint


@dataclass(frozen=True, slots=True)
class RestoreFailed:
    """A task cannot restore what its attempt starts from."""

    message: control_pb2.RestoreFailed


@dataclass(frozen=True, slots=True)
class DataLost:
    """A stream manager had to give up frames."""

    message: control_pb2.DataLost


@dataclass(frozen=True, slots=True)
class MetadataWritten:
    """The metadata of a checkpoint lies at `location`, or does not and `error` says why."""

    metadata: checkpoint_pb2.Metadata
    location: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointRequested:
    """A request for a checkpoint or savepoint."""

    request: int
    savepoint: bool


@dataclass(frozen=True, slots=True)
class RewindRequested:
    """A request that everything goes back to a checkpoint; 0: the newest."""

    request: int
    checkpoint: int


@dataclass(frozen=True, slots=True)
class DeleteRequested:
    """A request to delete complete checkpoints."""

    request: int
    checkpoints: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CheckpointsDeleted:
    """The files of deleted checkpoints are gone, or `error` says why some are left."""

    request: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class SendFailed:
    """A message could not be handed to its peer; the part that sent it sends it again."""

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
