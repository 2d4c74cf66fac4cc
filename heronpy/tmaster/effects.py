"""What to do: the plain data that the topology master's machine hands to its shell.

The shell performs effects strictly in order, and a `Persist` is on disk before the next effect
begins; so no process ever acts on a plan that a successor of this master would not find.
"""

from __future__ import annotations

from enum import Enum

from google.protobuf.message import Message
from msgspec import Struct

from heronpy.common.errors import HeronError
from heronpy.proto import checkpoint_pb2


class Node(Enum):
    """The nodes of the state manager that the topology master writes."""

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
    """Write a node of the state manager, or remove it when there is no value."""

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
    """Every task has answered: write this metadata, then call `written`."""

    metadata: checkpoint_pb2.Metadata


class Prune(Struct, frozen=True):
    """Delete these checkpoints, and every file that no kept one needs."""

    delete: tuple[int, ...]
    keep: tuple[int, ...]
    #: Kept checkpoints that the topology has abandoned: they are marked on disk, the others are not.
    abandoned: tuple[int, ...] = ()
    #: The request that waits for its end; 0: none.
    token: int = 0


#: The last two run in the background; the outcome of a `WriteMetadata` comes back as an event.
Effect = Persist | Reply | Send | Note | WriteMetadata | Prune
