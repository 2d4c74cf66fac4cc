"""The gateway's side of the handover: claims, attempts, decisions and outcomes of batches on disk.

Order of a batch, each step durable before the next: claimed -> attempt started -> prepared (the
decision: from here on the batch is published, whatever dies) -> published -> outcome -> cleaned up. A
gateway that restarts continues from the step it finds. A batch written by a replaced process is refused
when it is claimed and, for a batch of a checkpoint, again when it is published: a restore
may have voided it meanwhile. Outcomes are kept for the newest batches of a task: for more than a
sink may have in progress.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from heronpy.common.errors import StateError
from heronpy.connectors.durable_files import sync_folder, write_record
from heronpy.connectors.spark.handover import (
    COMMITTED,
    FAILED,
    Folder,
    Manifest,
    Outcome,
    folders,
    parse_stem,
    sorted_stems,
)
from heronpy.connectors.spark.outbox import owner_lock
from heronpy.connectors.spark.tables import publish, unpublish
from heronpy.spark.lanes import Ticket

if TYPE_CHECKING:
    import pyarrow as pa

#: Outcomes kept per task; far above sensible values of SinkOptions.max_uncommitted.
OUTCOMES_KEPT = 256
#: The same under EFFECTIVELY_ONCE: enough for all retained checkpoints, because each may be restored.
CHECKPOINTED_OUTCOMES_KEPT = 4096


class Batches(Protocol):
    """All batches of one submission, as the gateway sees them; used by several threads."""

    def scan(self) -> Iterable[Ticket]:
        """Every batch without outcome, of all sinks."""

    def scan_sink(self, component: str) -> Iterable[Ticket]:
        """Every batch of a sink without outcome, none before one written earlier."""

    def begun(self) -> Iterable[Ticket]:
        """Every batch without outcome that a predecessor may have worked on, of all sinks."""

    def outcome(self, ticket: Ticket) -> Outcome | None:
        """How a batch ended; None if it has not."""

    def claim(self, ticket: Ticket) -> Manifest | None:
        """Begin with a batch, or continue with it; None when it is gone, done or fenced."""

    def rows(self, ticket: Ticket) -> AbstractContextManager[pa.Table]:
        """The rows of a batch, as long as the block lasts."""

    def save(self, ticket: Ticket, manifest: Manifest) -> None:
        """Record the progress of a claimed batch."""

    def prepare(self, ticket: Ticket, manifest: Manifest) -> bool:
        """Decide that a batch is published; False when something else was decided, so it is to be claimed again."""

    def commit(self, ticket: Ticket, manifest: Manifest) -> Outcome | None:
        """Publish a prepared batch and record that it is committed; None when a restore has voided it."""

    def fail(self, ticket: Ticket, manifest: Manifest | None, error: str) -> Outcome | None:
        """Give a batch up: nothing of it stays published. None when it was withdrawn meanwhile."""

    def take_refused(self) -> int:
        """How many batches were refused since the last call."""

    def component_of(self, safe_component: str) -> str:
        """The component whose folder has this name; the name itself while its sink has not started."""

    def sink_record(self, component: str) -> bytes:
        """The function and options that the sink wrote."""


class Inbox:
    """All batches below `<working_dir>/spark` that belong to one submission; used by several threads.

    A batch is worked on by one of them, and batches of a task one after the other.
    """

    def __init__(self, spark_dir: Path, run: str) -> None:
        self.spark_dir = spark_dir
        self.run = run
        self._refused = 0
        self._counting = threading.Lock()
        self._components: dict[str, str] = {}

    def folder(self, component: str) -> Folder:
        return Folder(self.spark_dir, component)

    # -- looking ------------------------------------------------------------------------------

    def scan(self) -> Iterator[Ticket]:
        """Every batch without outcome, of all sinks."""
        for folder in folders(self.spark_dir):
            yield from self.scan_folder(folder)

    def begun(self) -> Iterator[Ticket]:
        """Every batch that was claimed and has no outcome, of all sinks."""
        for folder in folders(self.spark_dir):
            yield from (Ticket(folder.component, stem) for stem in folder.taken())

    def scan_sink(self, component: str) -> Iterator[Ticket]:
        """Every batch of a sink without outcome, none before one written earlier."""
        return self.scan_folder(self.folder(component))

    def outcome(self, ticket: Ticket) -> Outcome | None:
        """How a batch ended; None if it has not."""
        return self.folder(ticket.component).outcome(ticket.stem)

    def scan_folder(self, folder: Folder) -> Iterator[Ticket]:
        """See `scan_sink`."""
        for stem in folder.taken():
            yield Ticket(folder.component, stem)
        # A listing may miss a file made during it and show a later one. Whatever was written before
        # anything in the first listing is certainly in the second one.
        newest: dict[int, int] = {}
        for stem in folder.waiting():
            task, number, _ = parse_stem(stem) or (0, 0, 0)
            newest[task] = max(newest.get(task, 0), number)
        for stem in folder.waiting():
            task, number, _ = parse_stem(stem) or (0, 0, 0)
            if number <= newest.get(task, 0):
                yield Ticket(folder.component, stem)

    # -- one batch ----------------------------------------------------------------------------

    def claim(self, ticket: Ticket) -> Manifest | None:
        """Claim a batch, or continue one claimed before; None when it is gone, done or fenced."""
        folder = self.folder(ticket.component)
        if folder.outcome(ticket.stem) is not None:
            self._clean(folder, ticket.stem)
            return None
        manifest = folder.read_claimed(ticket.stem)
        is_claimed = manifest is not None
        if manifest is None:
            manifest = folder.read_waiting(ticket.stem)
        if manifest is None:
            return None
        if manifest.checkpoint and manifest.run != self.run:
            # Left there: a topology restored from a savepoint of that submission takes it over.
            return None
        if self._is_fenced(folder, manifest, is_claimed):
            self._refuse(folder, ticket.stem, manifest)
            return None
        if not is_claimed:
            name = f"{ticket.stem}.json"
            try:
                # The last change of its file is the rename that handed it over.
                handed_over_at = os.stat(folder.inbox / name).st_ctime
                os.rename(folder.inbox / name, folder.claimed / name)
            except FileNotFoundError:
                return None
            sync_folder(folder.claimed)
            manifest.waited_s = max(0.0, time.time() - handed_over_at)
        return manifest

    def _is_fenced(self, folder: Folder, manifest: Manifest, is_claimed: bool) -> bool:
        owner = folder.owner(manifest.task)
        if manifest.run != self.run:
            return True
        if is_claimed and not manifest.checkpoint:
            return False
        if owner is None or owner.run != self.run:
            return True
        if manifest.checkpoint:
            return owner.voids(manifest.number, manifest.incarnation)
        return manifest.incarnation < owner.incarnation and not manifest.keep

    def _refuse(self, folder: Folder, stem: str, manifest: Manifest) -> None:
        """Drop a batch of a process that was replaced, and what may be partly published of it."""
        with self._counting:
            self._refused += 1
        if manifest.checkpoint:
            unpublish(manifest.tables)
        self._clean(folder, stem)

    def take_refused(self) -> int:
        """How many batches were refused since the last call."""
        with self._counting:
            refused, self._refused = self._refused, 0
        return refused

    def rows_file(self, ticket: Ticket) -> Path:
        return self.folder(ticket.component).rows_file(ticket.stem)

    @contextlib.contextmanager
    def rows(self, ticket: Ticket) -> Iterator[pa.Table]:
        """The rows of a batch, in memory as far as they are read."""
        import pyarrow as pa

        with pa.memory_map(str(self.rows_file(ticket))) as source:
            yield pa.ipc.open_file(source).read_all()

    def prepare(self, ticket: Ticket, manifest: Manifest) -> bool:
        """Record what a claimed batch publishes: nobody else decides about it."""
        self.save(ticket, manifest)
        return True

    def save(self, ticket: Ticket, manifest: Manifest) -> None:
        """Record the progress of a claimed batch."""
        write_record(self.folder(ticket.component).claimed / f"{ticket.stem}.json", manifest.to_bytes())

    def commit(self, ticket: Ticket, manifest: Manifest) -> Outcome | None:
        """Publish a prepared batch and record that it is committed; None when a restore has voided it."""
        if not manifest.checkpoint:
            return self._finish(ticket, published(manifest))
        folder = self.folder(ticket.component)
        # A restored task takes over under this lock: either it finds the outcome and retracts what was
        # published, or its owner record is seen here.
        with owner_lock(folder, manifest.task):
            if self._is_fenced(folder, manifest, is_claimed=True):
                self._refuse(folder, ticket.stem, manifest)
                return None
            done = replace(published(manifest), tables=manifest.tables)
            return self._finish(ticket, done, CHECKPOINTED_OUTCOMES_KEPT)

    def fail(self, ticket: Ticket, manifest: Manifest | None, error: str) -> Outcome:
        """Give a batch up: nothing of it stays published."""
        if manifest is None:
            return self._finish(ticket, Outcome(ticket.stem, FAILED, 0, 0, error, ended_at=time.time()))
        unpublish(manifest.tables)
        outcome = failed(manifest, error)
        if not manifest.checkpoint:
            return self._finish(ticket, outcome)
        self._keep_failed(ticket)
        return self._finish(ticket, outcome, CHECKPOINTED_OUTCOMES_KEPT)

    def _keep_failed(self, ticket: Ticket) -> None:
        """Keep rows that no spout will send again."""
        folder = self.folder(ticket.component)
        folder.failed.mkdir(mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.rename(folder.rows_file(ticket.stem), folder.failed / f"{ticket.stem}.arrow")
        with contextlib.suppress(FileNotFoundError):
            os.rename(folder.claimed / f"{ticket.stem}.json", folder.failed / f"{ticket.stem}.json")
        sync_folder(folder.failed)

    def _finish(self, ticket: Ticket, outcome: Outcome, kept: int = OUTCOMES_KEPT) -> Outcome:
        folder = self.folder(ticket.component)
        folder.write_outcome(ticket.stem, outcome)
        self._clean(folder, ticket.stem)
        self._prune(folder, ticket.stem, kept)
        return outcome

    def _clean(self, folder: Folder, stem: str) -> None:
        folder.rows_file(stem).unlink(missing_ok=True)
        for place in (folder.inbox, folder.claimed):
            (place / f"{stem}.json").unlink(missing_ok=True)

    def _prune(self, folder: Folder, stem: str, kept: int) -> None:
        parsed = parse_stem(stem)
        if parsed is None or parsed[1] % (kept // 4):
            return
        mine = [s for s in sorted_stems(folder.done) if s.startswith(f"{parsed[0]}-")]
        for old in mine[:-kept]:
            (folder.done / f"{old}.json").unlink(missing_ok=True)

    def component_of(self, safe_component: str) -> str:
        """The component whose folder has this name; the name itself while its sink has not started."""
        if safe_component not in self._components:
            try:
                record = json.loads(self.sink_record(safe_component))
                self._components[safe_component] = str(record["component"])
            except (StateError, ValueError, KeyError):
                return safe_component
        return self._components[safe_component]

    def sink_record(self, component: str) -> bytes:
        """The function and options that the sink wrote."""
        path = self.folder(component).root / f"sink-{self.run}.json"
        try:
            return path.read_bytes()
        except FileNotFoundError:
            raise StateError(f"{path} is missing; restart the sink tasks to write it again") from None


def published(manifest: Manifest, how: Callable[[list[list[str]]], None] = publish) -> Outcome:
    """Publish a prepared batch; its outcome, without tables."""
    began = time.monotonic()
    how(manifest.tables)
    return Outcome(
        manifest.id,
        COMMITTED,
        manifest.rows,
        manifest.started,
        waited_s=manifest.waited_s,
        run_s=manifest.run_s,
        publish_s=time.monotonic() - began,
        ended_at=time.time(),
    )


def failed(manifest: Manifest, error: str) -> Outcome:
    """The outcome of a batch that is given up."""
    return Outcome(
        manifest.id,
        FAILED,
        manifest.rows,
        manifest.started,
        error,
        waited_s=manifest.waited_s,
        run_s=manifest.run_s,
        ended_at=time.time(),
    )
