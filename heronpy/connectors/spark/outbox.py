"""The sink task's side of the handover: incarnations, numbers, fencing, writing batches.

Owns the owner record of one task and the files it adds to the inbox. A new incarnation takes over in
this order: it writes the owner record (from then on the gateway claims nothing older, and an older
incarnation that is still alive gets a FencedError at its next batch), then it withdraws what its
predecessors wrote and the gateway has not claimed. Numbers only grow, across all incarnations.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from heronpy.common.errors import FencedError
from heronpy.common.folders import open_private
from heronpy.connectors.durable_files import sync_folder, write_record
from heronpy.connectors.spark.handover import Folder, Manifest, Owner, new_manifest, parse_stem

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(slots=True, frozen=True)
class Takeover:
    """What a new incarnation found: batches withdrawn, left to commit, and already claimed."""

    withdrawn: int
    kept: int
    claimed: int


class BatchWriter:
    """One incarnation of one sink task: whose its batches are, and whether it may still write them."""

    incarnation: int

    def __init__(self, folder: Folder, component: str, task: int, run: str) -> None:
        self.folder = folder
        self.component = component
        self.task = task
        self.run = run
        folder.create()

    def _write_rows(self, table: pa.Table, number: int, after: int, line: str, keep: bool) -> Manifest:
        """Put the rows of a batch on disk. Its id is the same for whatever writes the number again in this line."""
        manifest = new_manifest(self.folder.component, self, number, after, table.num_rows, line, keep)
        with self._gone_when_replaced():
            manifest.size_bytes = write_rows(self.folder, manifest.stem, table)
        return manifest

    def _write_manifest(self, place: Path, manifest: Manifest) -> None:
        with self._gone_when_replaced():
            write_record(place / f"{manifest.stem}.json", manifest.to_bytes())

    def _check_permit(self) -> None:
        """Raise FencedError when another process has taken the task over."""
        owner = self.folder.owner(self.task)
        if owner is None or owner.run != self.run or owner.incarnation != self.incarnation:
            raise replaced(self.component, self.task)

    @contextlib.contextmanager
    def _gone_when_replaced(self) -> Iterator[None]:
        """A file that vanishes while being written means that a successor removed it: raise FencedError instead."""
        try:
            yield
        except FileNotFoundError:
            self._check_permit()
            raise


class Outbox(BatchWriter):
    """Writes the batches of one incarnation of one sink task."""

    def __init__(self, folder: Folder, component: str, task: int, run: str, keep_leftovers: bool) -> None:
        super().__init__(folder, component, task, run)
        self._keep = keep_leftovers
        self.incarnation, self.takeover = self._take_over()
        self._previous = 0

    def _take_over(self) -> tuple[int, Takeover]:
        with owner_lock(self.folder, self.task):
            before = self.folder.owner(self.task)
            incarnation = before.incarnation + 1 if before else 1
            used = before.first - 1 if before else 0
            self.folder.write_owner(self.task, Owner(self.run, incarnation, used + 1))
            used = max(used, self.folder.highest_number(self.task))
            self._next = used + 1
            self.folder.write_owner(self.task, Owner(self.run, incarnation, self._next))
            return incarnation, self._withdraw_leftovers()

    def _withdraw_leftovers(self) -> Takeover:
        withdrawn = kept = 0
        for stem in self.folder.waiting():
            if self._is_mine(stem):
                manifest = self.folder.read_waiting(stem)
                if manifest and manifest.keep and manifest.run == self.run:
                    kept += 1
                elif self.folder.withdraw(stem):
                    withdrawn += 1
        # In this order: a batch moves from waiting to claimed, so it is in at least one list.
        waiting = set(self.folder.waiting())
        claimed = {stem for stem in self.folder.taken() if self._is_mine(stem)}
        for name in os.listdir(self.folder.inbox):
            # Rows without a manifest: their writer died in between. The same holds for temporary files.
            stem = name.lstrip(".").split(".")[0]
            if self._is_mine(stem) and stem not in waiting and stem not in claimed:
                (self.folder.inbox / name).unlink(missing_ok=True)
        return Takeover(withdrawn, kept, len(claimed))

    def _is_mine(self, stem: str) -> bool:
        parsed = parse_stem(stem)
        return parsed is not None and parsed[0] == self.task

    def write(self, table: pa.Table) -> Manifest:
        """Hand a table of rows over as the next batch; raises FencedError in a replaced incarnation."""
        self._check_permit()
        number = self._next
        manifest = self._write_rows(table, number, self._previous, str(self.incarnation), self._keep)
        self._check_permit()
        self._write_manifest(self.folder.inbox, manifest)
        self._next, self._previous = number + 1, number
        return manifest


@contextlib.contextmanager
def owner_lock(folder: Folder, task: int) -> Iterator[None]:
    """Lock held during a takeover, so that two processes never take the task over at once."""
    lock = os.open(folder.owners / f".{task}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def write_rows(folder: Folder, stem: str, table: pa.Table) -> int:
    """Write the rows of a batch to disk; returns their size. They count once the manifest is in the inbox."""
    import pyarrow as pa

    target = folder.rows_file(stem)
    temporary = target.with_name(f".{target.name}.tmp")
    with open(open_private(temporary, os.O_WRONLY | os.O_TRUNC), "wb") as out:
        with pa.ipc.new_file(out, table.schema) as writer:
            writer.write_table(table)
        out.flush()
        os.fsync(out.fileno())
        size = out.tell()
    os.rename(temporary, target)
    sync_folder(folder.inbox)
    return size


def replaced(component: str, task: int) -> FencedError:
    """The error of a process whose task was taken over."""
    return FencedError(f"sink task {task} of {component} was replaced by a newer process; it stops")
