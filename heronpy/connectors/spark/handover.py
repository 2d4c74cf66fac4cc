"""The hand-over between sink tasks and the Spark gateway: micro-batches, outcomes, writers and names.

`records.py` defines the layout of the records.
"""

from __future__ import annotations

import hashlib
import os
import re

import msgspec
from msgspec import Struct

from heronpy.common.errors import StateError

#: Name of the gateway's socket below `sockets_dir`.
SOCKET_NAME = "spark-gateway"
COMMITTED = "committed"
FAILED = "failed"


def gateway_endpoint(sockets_dir: str) -> str:
    """Return the address at which the sinks of a topology reach its gateway."""
    return f"ipc://{os.path.join(sockets_dir, SOCKET_NAME)}"


class Manifest(Struct):
    """The description of one micro-batch: everything except the rows."""

    id: str
    run: str
    component: str
    task: int
    incarnation: int
    number: int
    rows: int
    #: Whether the gateway may commit the batch after its writer was replaced: True if tuples are never replayed.
    keep: bool
    #: The batch's checkpoint under EFFECTIVELY_ONCE, otherwise 0. With checkpoints, the incarnation is the
    #: attempt, and numbers continue from the restored checkpoint, so a later attempt reuses them.
    checkpoint: int = 0
    #: Size of the rows on disk in bytes.
    size_bytes: int = 0
    #: The gateway sets the other fields: attempts started, attempts that raised an exception, and output to publish.
    started: int = 0
    raised: int = 0
    prepared: bool = False
    #: Seconds from the hand-over to the claim; seconds in the sink's function, over all attempts.
    waited_s: float = 0.0
    run_s: float = 0.0
    #: Pairs [staged folder, published folder]; decided together with `prepared`.
    tables: list[list[str]] = []
    #: For a dispatch of work units (dispatches.py), otherwise empty: the folders of Parquet files with its rows, the
    #: file that lists the bytes of the rows, and a mark that distinguishes the attempts of the gateway.
    inputs: list[str] = []
    lineage: str = ""
    mark: str = ""
    #: The dispatch of a batch run (run_end.py), whose function reads the rows itself.
    of_run: bool = False
    #: Time of the hand-over in seconds since 1970; 0 before the hand-over.
    handed_over_at: float = 0.0

    @property
    def stem(self) -> str:
        return stem_of(self.task, self.number, self.incarnation)

    def to_bytes(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        try:
            return msgspec.json.decode(data, type=cls)
        except (ValueError, RecursionError) as error:
            raise StateError(f"manifest of a micro-batch is damaged: {error}") from None


class Outcome(Struct, frozen=True):
    """How a batch ended: published, failed or withdrawn, with figures."""

    id: str
    state: str
    rows: int
    attempts: int
    error: str = ""
    #: Published output of a batch with a checkpoint. It is retracted if the checkpoint is damaged.
    tables: list[list[str]] = []
    #: Seconds from the hand-over to the claim by the gateway, seconds in the sink's function over all attempts whose
    #: driver survived, and seconds to publish the output. 0 in records of unreadable batches.
    waited_s: float = 0.0
    run_s: float = 0.0
    publish_s: float = 0.0
    #: Time of the end in seconds since 1970.
    ended_at: float = 0.0

    @property
    def committed(self) -> bool:
        return self.state == COMMITTED


class Owner(Struct, frozen=True):
    """The incarnation that may write batches of a task, and its first batch number."""

    run: str
    incarnation: int
    first: int

    def voids(self, task_number: int, incarnation: int) -> bool:
        """Whether an older attempt wrote the batch after the checkpoint from which this attempt was restored."""
        return incarnation < self.incarnation and task_number >= self.first


def batch_id(safe_component: str, task: int, number: int, run: str, line: str) -> str:
    """Return the id of a batch. `line`: the incarnation, or a constant if a repeated batch is to keep its id."""
    token = hashlib.sha256(f"{run}:{line}".encode()).hexdigest()[:8]
    return f"{safe_component}-{task}-{number:08d}-{token}"


def stem_of(task: int, number: int, incarnation: int) -> str:
    return f"{task}-{number:010d}-{incarnation}"


def parse_stem(name: str) -> tuple[int, int, int] | None:
    """Return (task, number, incarnation) from the file name of a batch; None for other files."""
    match = re.fullmatch(r"(\d+)-(\d+)-(\d+)(\.\w+)?", name)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def stem_order(stem: str) -> tuple[int, int, int]:
    """Return a key that sorts the stems of batches, oldest first."""
    return parse_stem(stem) or (0, 0, 0)
