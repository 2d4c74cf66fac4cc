"""The gateway's side of the hand-over: attempts, decisions and outcomes of batches.

Order of a batch, each step durable before the next: attempt started -> staged -> fate (the decision: from here on
the batch is published, whatever dies) -> published -> outcome -> cleaned up. A gateway that follows on another host
continues from the step it finds, while its predecessor may still run: both do what the fate says. A gateway stops when
it sees that a later one is there. Outcomes are kept for the newest batches of a task: for more than a sink may have in
progress.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from heronpy.common.errors import FencedError, StateError
from heronpy.connectors.spark.handover import COMMITTED, FAILED, Manifest, Outcome, stem_order
from heronpy.connectors.spark.records import Decision, Fate, RunRecords, SinkFolder
from heronpy.connectors.spark.tables import drop_staged, publish, unpublish
from heronpy.spark.lanes import Ticket
from heronpy.storage.objects.port import MissingObjectError
from heronpy.storage.objects.url import place_of

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
    """All batches of one submission; used by several threads. See `Batches`.

    A batch is worked on by one of them, and batches of a task one after the other.
    """

    def __init__(self, records: RunRecords, epoch: int) -> None:
        self._records = records
        self._epoch = epoch
        self._by = f"gateway {epoch}"
        self._refused = 0
        self._counting = threading.Lock()
        self._components: dict[str, str] = {}

    def folder(self, component: str) -> SinkFolder:
        return self._records.folder(component)

    def check_permit(self) -> None:
        """FencedError when a later gateway has taken over."""
        if not self._records.is_latest(self._epoch):
            raise FencedError(f"the Spark gateway of epoch {self._epoch} was replaced by a later one; it stops")

    # -- looking ------------------------------------------------------------------------------

    def scan(self) -> Iterator[Ticket]:
        """Every batch without outcome, of all sinks; FencedError when another gateway has taken over."""
        self.check_permit()
        for component in self._records.components():
            yield from self.scan_sink(component)

    def scan_sink(self, component: str) -> Iterator[Ticket]:
        """Every batch of a sink without outcome, none before one written earlier."""
        folder = self.folder(component)
        # A listing may miss what is written during it and show what is written later. What was written before anything
        # in the first listing is certainly in the second one.
        newest: dict[int, int] = {}
        for stem in folder.stems("batches"):
            task, number, _ = stem_order(stem)
            newest[task] = max(newest.get(task, 0), number)
        for stem in folder.stems("batches") if newest else ():
            task, number, _ = stem_order(stem)
            if number <= newest.get(task, 0):
                yield Ticket(component, stem)

    def begun(self) -> Iterator[Ticket]:
        """Every batch of which an attempt was started, of all sinks."""
        for component in self._records.components():
            yield from (Ticket(component, stem) for stem in self.folder(component).stems("attempts"))

    def outcome(self, ticket: Ticket) -> Outcome | None:
        """How a batch ended; None if it has not."""
        return self.folder(ticket.component).outcome(ticket.stem)

    # -- one batch ----------------------------------------------------------------------------

    def claim(self, ticket: Ticket) -> Manifest | None:
        """Begin with a batch, or continue with it; None when it is gone, done or fenced."""
        self.check_permit()
        folder, stem = self.folder(ticket.component), ticket.stem
        if folder.outcome(stem) is not None:
            self._clean(folder, stem)
            return None
        found = folder.handed_over(stem)
        if found is None:
            folder.remove(stem, "attempts")
            return None
        manifest, handed_over_at = found
        decision = folder.decision(stem)
        if decision is None and self._is_fenced(folder, manifest):
            decision = folder.decide(stem, Decision(Fate.WITHDRAWN, self._by))
            with self._counting:
                self._refused += 1
        if decision is not None and decision.fate is Fate.WITHDRAWN:
            self._clean(folder, stem)
            return None
        worked = folder.manifest("attempts", stem)
        if worked is not None:
            manifest = replace(worked, tables=[], prepared=False)
        else:
            manifest.waited_s = max(0.0, time.time() - handed_over_at) if handed_over_at else 0.0
        if decision is not None and decision.fate is Fate.FAILED:
            self._give_up(folder, stem, manifest, decision)
            return None
        if decision is not None:
            manifest.tables, manifest.prepared = decision.tables, True
        return manifest

    def _is_fenced(self, folder: SinkFolder, manifest: Manifest) -> bool:
        owner = folder.owner(manifest.task)
        if owner is None:
            return True
        if manifest.checkpoint:
            return owner.voids(manifest.number, manifest.incarnation)
        return manifest.incarnation < owner.incarnation and not manifest.keep

    @contextlib.contextmanager
    def rows(self, ticket: Ticket) -> Iterator[pa.Table]:
        """The rows of a batch, in memory."""
        yield self.folder(ticket.component).rows(ticket.stem)

    def save(self, ticket: Ticket, manifest: Manifest) -> None:
        """Record the progress of a batch; two gateways may overwrite each other's counts."""
        self.folder(ticket.component).write_manifest("attempts", manifest)

    def prepare(self, ticket: Ticket, manifest: Manifest) -> bool:
        """Decide that a batch is published, with these tables; False when its fate was decided before."""
        mine = Decision(Fate.PUBLISHED, self._by, manifest.tables)
        return self.folder(ticket.component).decide(ticket.stem, mine) == mine

    def commit(self, ticket: Ticket, manifest: Manifest) -> Outcome | None:
        """Publish a batch whose fate that is, and record that it is committed; None when a restore has voided it."""
        folder, stem = self.folder(ticket.component), ticket.stem
        stands = folder.decision(stem)
        if stands is None or stands.fate is Fate.WITHDRAWN:
            with self._counting:
                self._refused += 1
            self._clean(folder, stem)
            return None
        done = self._published(manifest)
        for staged, table in manifest.tables:
            # What other gateways have staged of it, or earlier attempts of this one.
            drop_staged(place_of(table).parent, manifest.id, keep=staged.rpartition("/")[2])
        done = replace(done, tables=manifest.tables) if manifest.checkpoint else done
        self._record(folder, stem, done, bool(manifest.checkpoint))
        return done

    def fail(self, ticket: Ticket, manifest: Manifest | None, error: str) -> Outcome | None:
        """Give a batch up, unless its fate is another one: then that happens."""
        self.check_permit()
        folder, stem = self.folder(ticket.component), ticket.stem
        stands = folder.decide(stem, Decision(Fate.FAILED, self._by, error=error))
        if stands.fate is Fate.WITHDRAWN:
            self._clean(folder, stem)
            return None
        if manifest is None:
            outcome = Outcome(stem, FAILED, 0, 0, error, ended_at=time.time())
            self._record(folder, stem, outcome, is_checkpointed=False)
            return outcome
        if stands.fate is Fate.PUBLISHED and not manifest.prepared:
            return self.commit(ticket, replace(manifest, tables=stands.tables, prepared=True))
        # Its own fate, or one that cannot be carried out.
        return self._give_up(folder, stem, manifest, replace(stands, error=error))

    def _give_up(self, folder: SinkFolder, stem: str, manifest: Manifest, decision: Decision) -> Outcome:
        self._unpublish(manifest, decision.tables)
        outcome = failed(manifest, decision.error)
        if manifest.checkpoint:
            self._keep_failed(folder, stem, manifest)
        self._record(folder, stem, outcome, bool(manifest.checkpoint))
        return outcome

    def _published(self, manifest: Manifest) -> Outcome:
        return published(manifest)

    def _unpublish(self, manifest: Manifest, tables: list[list[str]]) -> None:
        unpublish(tables)

    def _keep_failed(self, folder: SinkFolder, stem: str, manifest: Manifest) -> None:
        """Keep rows that no spout will send again."""
        objects = folder.objects
        with contextlib.suppress(MissingObjectError):
            objects.put(folder.key("failed", f"{stem}.arrow"), objects.get(folder.key("rows", f"{stem}.arrow")))
        folder.write_manifest("failed", manifest)

    def _record(self, folder: SinkFolder, stem: str, outcome: Outcome, is_checkpointed: bool) -> None:
        folder.write_outcome(stem, outcome)
        self._clean(folder, stem)
        self._prune(folder, stem, CHECKPOINTED_OUTCOMES_KEPT if is_checkpointed else OUTCOMES_KEPT)

    def _clean(self, folder: SinkFolder, stem: str) -> None:
        folder.remove(stem, "batches", "attempts", "rows")

    def _prune(self, folder: SinkFolder, stem: str, kept: int) -> None:
        task, number, _ = stem_order(stem)
        if number % (kept // 4):
            return
        for kind in ("done", "fates"):
            for old in folder.stems(kind, task)[:-kept]:
                folder.remove(old, kind)

    def take_refused(self) -> int:
        """How many batches were refused since the last call."""
        with self._counting:
            refused, self._refused = self._refused, 0
        return refused

    def component_of(self, safe_component: str) -> str:
        """The component whose folder has this name; the name itself while its sink has not started."""
        if safe_component not in self._components:
            try:
                self._components[safe_component] = str(json.loads(self.sink_record(safe_component))["component"])
            except (StateError, ValueError, KeyError):
                return safe_component
        return self._components[safe_component]

    def sink_record(self, component: str) -> bytes:
        """The function and options that the sink wrote."""
        return self.folder(component).sink()


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
