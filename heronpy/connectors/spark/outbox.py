"""The sink task's part of the hand-over: incarnations, numbers, fencing and writing of batches.

This module writes the owner records of one task and the task's records in a `SinkFolder`. There is no lock: a new
incarnation first becomes the owner, by put-if-absent. Then it lists and withdraws its predecessors' batches. A batch
that a predecessor writes later comes after the owner record, so a gateway that sees the batch also sees that record and
refuses the batch. Batch numbers only grow, across all incarnations.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from heronpy.common.errors import FencedError
from heronpy.connectors.durable_files import UntilDone
from heronpy.connectors.spark.handover import Manifest, Owner, batch_id, stem_order
from heronpy.connectors.spark.records import Decision, Fate, SinkFolder
from heronpy.storage.objects.port import Listing, Objects

if TYPE_CHECKING:
    import pyarrow as pa

_TAKE_OVER_TRIES = 100


class PatientObjects:
    """The records of a sink, as a `port.Objects`; requests wait while the disk is full or the store is unreachable.

    `until_done` repeats each request, because requests are idempotent.
    """

    def __init__(self, objects: Objects, until_done: UntilDone) -> None:
        self._objects = objects
        self._until_done = until_done

    @property
    def name(self) -> str:
        return self._objects.name

    def put(self, key: str, data: bytes | bytearray | memoryview | Path) -> None:
        self._until_done(lambda: self._objects.put(key, data))

    def put_if_absent(self, key: str, data: bytes) -> bool:
        return self._until_done(lambda: self._objects.put_if_absent(key, data))

    def get(self, key: str) -> bytes:
        return self._until_done(lambda: self._objects.get(key))

    def head(self, key: str) -> int | None:
        return self._until_done(lambda: self._objects.head(key))

    def list(self, prefix: str = "", deep: bool = True) -> Listing:
        return self._until_done(lambda: self._objects.list(prefix, deep))

    def delete(self, keys: Iterable[str]) -> None:
        named = tuple(keys)
        self._until_done(lambda: self._objects.delete(named))


class Takeover(Struct, frozen=True):
    """Counts of the predecessors' batches: withdrawn, left for the gateway to commit, or already begun by the
    gateway."""

    withdrawn: int
    kept: int
    begun: int


class BatchWriter:
    """Writes the batches of one incarnation of one sink task, while that incarnation is the owner."""

    incarnation: int

    def __init__(self, folder: SinkFolder, component: str, task: int, run: str) -> None:
        self.folder = folder
        self.component = component
        self.task = task
        self.run = run

    def _write_rows(self, table: pa.Table, number: int, line: str, keep: bool) -> Manifest:
        """Write the rows of a batch; see `batch_id` for `line`."""
        name = batch_id(self.folder.component, self.task, number, self.run, line)
        whose = self.run, self.component, self.task, self.incarnation
        manifest = Manifest(name, *whose, number, table.num_rows, keep)
        manifest.size_bytes = self.folder.write_rows(manifest.stem, table)
        return manifest

    def _check_permit(self) -> None:
        if self.folder.highest_incarnation(self.task) != self.incarnation:
            raise replaced(self.component, self.task)

    def _withdraw(self, stem: str) -> Decision:
        """Withdraw a batch unless its fate is decided; return the final decision."""
        return self.folder.decide(stem, Decision(Fate.WITHDRAWN, f"sink {self.task}, incarnation {self.incarnation}"))


class Outbox(BatchWriter):
    """Without checkpoints: takes over a sink task, and hands over each batch when its rows are written."""

    def __init__(self, folder: SinkFolder, component: str, task: int, run: str, keep_leftovers: bool) -> None:
        super().__init__(folder, component, task, run)
        self._keep = keep_leftovers
        for _ in range(_TAKE_OVER_TRIES):
            before = folder.owner(task)
            self.incarnation = before.incarnation + 1 if before else 1
            used = max(before.first - 1 if before else 0, folder.highest_number(task))
            claimed = folder.claim_owner(task, Owner(run, self.incarnation, used + 1), by=os.urandom(8).hex())
            # Records of earlier owners are removed, so a number that was used may look unused.
            if claimed and folder.highest_incarnation(task) == self.incarnation:
                break
        else:
            raise FencedError(f"other processes keep taking over sink task {task} of {component}")
        self.takeover = self._withdraw_leftovers()
        # Batches that a predecessor has written since the first listing.
        self._next = max(used, folder.highest_number(task)) + 1

    def _withdraw_leftovers(self) -> Takeover:
        withdrawn = kept = begun = 0
        waiting = self.folder.stems("batches", self.task)
        for stem in waiting:
            found = self.folder.manifest("batches", stem)
            if found is None or found.incarnation >= self.incarnation:
                continue
            if found.keep:
                kept += 1
            elif self._withdraw(stem).fate is Fate.WITHDRAWN:
                self.folder.remove(stem, "batches", "attempts", "rows")
                withdrawn += 1
            else:
                begun += 1
        for stem in self.folder.stems("rows", self.task):
            # Rows without a manifest: the writer died before writing it.
            if stem_order(stem)[2] < self.incarnation and stem not in waiting:
                self.folder.remove(stem, "rows")
        return Takeover(withdrawn, kept, begun)

    def write(self, table: pa.Table) -> Manifest:
        """Hand over a table of rows as the next batch. Raises FencedError in a replaced incarnation."""
        self._check_permit()
        number = self._next
        manifest = self._write_rows(table, number, str(self.incarnation), self._keep)
        self._check_permit()
        self.folder.hand_over(manifest)
        self._next = number + 1
        return manifest


def replaced(component: str, task: int) -> FencedError:
    """Return the error for a process whose task was taken over."""
    return FencedError(f"sink task {task} of {component} was replaced by a newer process; this process stops")
