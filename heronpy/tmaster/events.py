"""What happened: the plain data that the shell feeds to the topology master's machine.

`peer` is the ZeroMQ identity of the sender, to which answers and later messages are sent.
`request` is the shell's token of an open request; the machine answers each token exactly once.
"""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.message import Message

from heronpy.proto import checkpoint_pb2, control_pb2


@dataclass(frozen=True, slots=True)
class StmgrRegistered:
    """A stream manager registers."""

    peer: bytes
    request: int
    message: control_pb2.RegisterStmgr


@dataclass(frozen=True, slots=True)
class StmgrBeat:
    """A stream manager reports the state of itself and its tasks."""

    peer: bytes
    message: control_pb2.StmgrHeartbeat


@dataclass(frozen=True, slots=True)
class ExecutorRegistered:
    """An executor registers for a container."""

    peer: bytes
    request: int
    message: control_pb2.RegisterExecutor


@dataclass(frozen=True, slots=True)
class ExecutorBeat:
    """An executor reports the state of its processes."""

    peer: bytes
    message: control_pb2.ExecutorHeartbeat


@dataclass(frozen=True, slots=True)
class ExceptionsReported:
    """User code raised."""

    reports: tuple[control_pb2.ExceptionReport, ...]


@dataclass(frozen=True, slots=True)
class OutageReported:
    """A process waits for something outside, such as a full disk; `why` is empty when it no longer does."""

    process: str
    why: str


@dataclass(frozen=True, slots=True)
class StateRequested:
    """A request to activate or deactivate the topology."""

    request: int
    active: bool
    end_input: bool = False
    """Inactive for good: the bolts must finish."""


@dataclass(frozen=True, slots=True)
class RestartRequested:
    """A request to restart a task, a component, a container or everything."""

    request: int
    container: int
    task_id: int
    component: str = ""


@dataclass(frozen=True, slots=True)
class UpdateRequested:
    """A request to change to another packing plan."""

    request: int
    message: control_pb2.UpdateTopology


@dataclass(frozen=True, slots=True)
class ConfigRequested:
    """A request to change settings of the running topology."""

    request: int
    settings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TaskAnswered:
    """A task has saved its state for a checkpoint, or has declined."""

    message: control_pb2.TaskCheckpoint


@dataclass(frozen=True, slots=True)
class RestoreFailed:
    """A task cannot restore the checkpoint of its attempt."""

    message: control_pb2.RestoreFailed


@dataclass(frozen=True, slots=True)
class DataLost:
    """A stream manager had to give up frames."""

    message: control_pb2.DataLost


@dataclass(frozen=True, slots=True)
class Written:
    """The metadata of a checkpoint is on disk."""

    location: str


@dataclass(frozen=True, slots=True)
class Failed:
    """Files could not be written or deleted; `reason` is for people alone."""

    reason: str


@dataclass(frozen=True, slots=True)
class MetadataWritten:
    """The end of the write of a checkpoint's metadata."""

    metadata: checkpoint_pb2.Metadata
    outcome: Written | Failed


@dataclass(frozen=True, slots=True)
class CheckpointRequested:
    """A request for a checkpoint or savepoint."""

    request: int
    savepoint: bool


@dataclass(frozen=True, slots=True)
class RewindRequested:
    """A request to rewind the topology to a checkpoint; 0: the newest."""

    request: int
    checkpoint: int


@dataclass(frozen=True, slots=True)
class DeleteRequested:
    """A request to delete complete checkpoints."""

    request: int
    checkpoints: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CheckpointsDeleted:
    """The files of deleted checkpoints are deleted, unless some are left because of a failure."""

    request: int
    failure: Failed | None = None


@dataclass(frozen=True, slots=True)
class SendFailed:
    """A message could not be delivered to its peer; the part that sent it sends it again."""

    peer: bytes
    body: Message


@dataclass(frozen=True, slots=True)
class Tick:
    """The machine's deadline has passed."""


Event = (
    StmgrRegistered
    | StmgrBeat
    | ExecutorRegistered
    | ExecutorBeat
    | ExceptionsReported
    | OutageReported
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
