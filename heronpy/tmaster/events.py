"""Events and effects: the plain data between the topology master's machine and its shell. Pure.

`peer` is the ZeroMQ identity of the sender, to which answers and later messages are sent.
`request` is the shell's token for an open request; the machine answers each token exactly once.

The shell performs effects strictly in order, and a `Persist` is stored before the next effect
begins. So no process ever acts on a plan that this master's successor would not find.
"""

from __future__ import annotations

from enum import Enum

from google.protobuf.message import Message
from msgspec import Struct

from heronpy.common.errors import HeronError
from heronpy.proto import checkpoint_pb2, control_pb2


class StmgrRegistered(Struct, frozen=True):
    """A stream manager registers."""

    peer: bytes
    request: int
    message: control_pb2.RegisterStmgr


class StmgrBeat(Struct, frozen=True):
    """A stream manager reports its state and the state of its tasks."""

    peer: bytes
    message: control_pb2.StmgrHeartbeat


class ExecutorRegistered(Struct, frozen=True):
    peer: bytes
    request: int
    message: control_pb2.RegisterExecutor


class ExecutorBeat(Struct, frozen=True):
    """An executor reports the state of its processes."""

    peer: bytes
    message: control_pb2.ExecutorHeartbeat


class ExceptionsReported(Struct, frozen=True):
    """A process reports exceptions of user code."""

    reports: tuple[control_pb2.ExceptionReport, ...]


class OutageReported(Struct, frozen=True):
    """A process waits for an external condition, such as free disk space; an empty `why` ends the wait."""

    process: str
    why: str


class StateRequested(Struct, frozen=True):
    """A request to activate or deactivate the topology."""

    request: int
    active: bool
    end_input: bool = False
    """Whether the topology becomes inactive permanently, so that the bolts must finish."""


class RestartRequested(Struct, frozen=True):
    """A request to restart a task, a component, a container or everything."""

    request: int
    container: int
    task_id: int
    component: str = ""
    moved: tuple[int, ...] = ()
    """Containers that the sender stops after the answer and starts elsewhere; if given, only they restart."""


class UpdateRequested(Struct, frozen=True):
    """A request to change to another packing plan."""

    request: int
    message: control_pb2.UpdateTopology


class ConfigRequested(Struct, frozen=True):
    """A request to change settings of the running topology."""

    request: int
    settings: tuple[str, ...]


class TaskAnswered(Struct, frozen=True):
    """A task has saved its state for a checkpoint, or has declined."""

    message: control_pb2.TaskCheckpoint


class RestoreFailed(Struct, frozen=True):
    """A task cannot restore the checkpoint of its attempt."""

    message: control_pb2.RestoreFailed


class DataLost(Struct, frozen=True):
    """A stream manager has dropped frames that it could not deliver."""

    message: control_pb2.DataLost


class Written(Struct, frozen=True):
    """The metadata of a checkpoint is stored."""

    location: str


class Failed(Struct, frozen=True):
    """Files could not be written or deleted; `reason` is a text for users."""

    reason: str


class MetadataWritten(Struct, frozen=True):
    """The write of a checkpoint's metadata has succeeded or failed."""

    metadata: checkpoint_pb2.Metadata
    outcome: Written | Failed


class CheckpointRequested(Struct, frozen=True):
    request: int
    savepoint: bool


class RewindRequested(Struct, frozen=True):
    """A request to rewind the topology to a checkpoint; 0 means the newest."""

    request: int
    checkpoint: int


class DeleteRequested(Struct, frozen=True):
    """A request to delete complete checkpoints."""

    request: int
    checkpoints: tuple[int, ...]


class CheckpointsDeleted(Struct, frozen=True):
    """The deletion of checkpoint files has ended; if it failed, some files may be left."""

    request: int
    failure: Failed | None = None


class SendFailed(Struct, frozen=True):
    """A message could not be delivered; the part of the machine that requested the send must repeat it."""

    peer: bytes
    body: Message


class Tick(Struct, frozen=True):
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


class Node(Enum):
    """The state manager's nodes that the topology master writes."""

    TOPOLOGY = "topology"
    PACKING_PLAN = "packing plan"
    PHYSICAL_PLAN = "physical plan"
    UPDATE = "update intent"
    CHECKPOINTS = "checkpoint log"
    TOTALS = "totals"
    EVENTS = "events"
    MINUTES = "minutes"
    COUNTS = "counts"
    LAST = "last answers"


class Persist(Struct, frozen=True):
    """Write a node of the state manager, or remove it if the value is None."""

    node: Node
    value: Message | None


class Reply(Struct, frozen=True):
    """Answer a request, with a body or with an error."""

    request: int
    body: Message | None = None
    error: HeronError | None = None


class Send(Struct, frozen=True):
    """Send a one-way message to each of the peers."""

    peers: tuple[bytes, ...]
    body: Message


class Note(Struct, frozen=True):
    """Write a line to the log."""

    text: str
    warning: bool = False


class WriteMetadata(Struct, frozen=True):
    """Write the metadata of a checkpoint after all tasks have answered; the outcome is a `MetadataWritten`."""

    metadata: checkpoint_pb2.Metadata


class Prune(Struct, frozen=True):
    """Delete these checkpoints, and every file that no kept checkpoint needs."""

    delete: tuple[int, ...]
    keep: tuple[int, ...]
    #: Kept checkpoints that the topology has abandoned, to be marked on disk.
    abandoned: tuple[int, ...] = ()
    #: The request that waits for the deletion; 0 for none.
    token: int = 0


#: `WriteMetadata` and `Prune` run in the background; the outcome of a `WriteMetadata` becomes an event.
Effect = Persist | Reply | Send | Note | WriteMetadata | Prune
