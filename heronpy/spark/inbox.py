"""The gateway's part of the hand-over: the attempts, decisions and outcomes of batches.

A batch passes through these steps, each durable before the next step begins: attempt started -> staged -> fate (the
decision: from here on the batch is published, even if processes die) -> published -> outcome -> cleaned up. A
successor on another host continues from the recorded step, while its predecessor may still run: both carry out the
fate. A gateway stops when it sees a later gateway. For each task, the newest outcomes are kept. Their number is larger
than the maximum number of batches that a sink may have in progress.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from heronpy.common.errors import FencedError, StateError
from heronpy.connectors.durable_files import safe_name
from heronpy.connectors.spark.dispatches import DispatchRun, hold_gateway_lock
from heronpy.connectors.spark.handover import COMMITTED, FAILED, Manifest, Outcome, stem_order
from heronpy.connectors.spark.records import Decision, Fate, RunRecords, SinkFolder
from heronpy.connectors.spark.tables import drop_staged, publish, publish_once, unpublish, unpublish_own
from heronpy.spark.lanes import Ticket
from heronpy.storage.objects.port import MissingObjectError
from heronpy.storage.objects.url import place_of

if TYPE_CHECKING:
    import pyarrow as pa


#: Number of outcomes kept per task, far above reasonable values of SinkOptions.max_uncommitted.
OUTCOMES_KEPT = 256
#: Like `OUTCOMES_KEPT` in mode EFFECTIVELY_ONCE: enough for all retained checkpoints, because each may be restored.
CHECKPOINTED_OUTCOMES_KEPT = 4096


class Inbox:
    """All batches of one submission. Used by several threads: one per batch; the batches of a task run in order."""

    def __init__(self, records: RunRecords, epoch: int, others: Mapping[str, Inbox] | None = None) -> None:
        """`others`: the inboxes of components whose batches are in other folders, by safe name."""
        self._records = records
        self._others = dict(others or {})
        self._epoch = epoch
        self._by = f"gateway {epoch}"
        self._refused = 0
        self._counting = threading.Lock()
        self._components: dict[str, str] = {}

    def of(self, component: str) -> Inbox:
        """Return the inbox that has a component's batches."""
        return self._others.get(component, self)

    def folder(self, component: str) -> SinkFolder:
        return self._records.folder(component)

    def check_permit(self) -> None:
        """Raise FencedError if a later gateway has taken over."""
        if not self._records.is_latest(self._epoch):
            raise FencedError(f"the Spark gateway of epoch {self._epoch} was replaced by a later gateway and stops")

    # -- scans ------------------------------------------------------------------------------

    def scan(self) -> Iterator[Ticket]:
        """Yield the batches of all sinks that have no outcome. Raises FencedError if another gateway has taken over."""
        self.check_permit()
        for component in self._records.components():
            yield from self.scan_sink(component)
        for other in self._others.values():
            yield from other.scan()

    def scan_sink(self, component: str) -> Iterator[Ticket]:
        """Yield the batches of a sink that have no outcome, oldest first."""
        folder = self.folder(component)
        # A listing may miss batches that are written during the listing, and contain later batches. The second listing
        # certainly has every batch that was written before any batch of the first listing.
        newest: dict[int, int] = {}
        for stem in folder.stems("batches"):
            task, number, _ = stem_order(stem)
            newest[task] = max(newest.get(task, 0), number)
        for stem in folder.stems("batches") if newest else ():
            task, number, _ = stem_order(stem)
            if number <= newest.get(task, 0):
                yield Ticket(component, stem)

    def begun(self) -> Iterator[Ticket]:
        """Yield the batches of all sinks that have a started attempt."""
        for component in self._records.components():
            yield from (Ticket(component, stem) for stem in self.folder(component).stems("attempts"))
        for other in self._others.values():
            yield from other.begun()

    def outcome(self, ticket: Ticket) -> Outcome | None:
        """Return the outcome of a batch; None if the batch has not ended."""
        return self.folder(ticket.component).outcome(ticket.stem)

    # -- one batch ----------------------------------------------------------------------------

    def claim(self, ticket: Ticket) -> Manifest | None:
        """Claim a batch, to begin or continue it. Returns None if the batch is missing, done or fenced."""
        self.check_permit()
        folder, stem = self.folder(ticket.component), ticket.stem
        if folder.outcome(stem) is not None:
            self._clean(folder, stem)
            return None
        manifest = folder.manifest("batches", stem)
        if manifest is None:
            folder.remove(stem, "attempts")
            return None
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
            since = manifest.handed_over_at
            manifest.waited_s = max(0.0, time.time() - since) if since else 0.0
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

    def rows(self, ticket: Ticket) -> pa.Table:
        """Return the rows of a batch, read into memory."""
        return self.folder(ticket.component).rows(ticket.stem)

    def save(self, ticket: Ticket, manifest: Manifest) -> None:
        """Record the progress of a claimed batch; two gateways may overwrite each other's counts."""
        self.folder(ticket.component).write_manifest("attempts", manifest)

    def prepare(self, ticket: Ticket, manifest: Manifest) -> bool:
        """Decide to publish a batch with the manifest's tables. Returns False if another fate was already decided."""
        mine = Decision(Fate.PUBLISHED, self._by, manifest.tables)
        return self.folder(ticket.component).decide(ticket.stem, mine) == mine

    def commit(self, ticket: Ticket, manifest: Manifest) -> Outcome | None:
        """Publish a batch as decided, and record its commit. Returns None if a restore has voided the batch."""
        folder, stem = self.folder(ticket.component), ticket.stem
        stands = folder.decision(stem)
        if stands is None or stands.fate is Fate.WITHDRAWN:
            with self._counting:
                self._refused += 1
            self._clean(folder, stem)
            return None
        began = time.monotonic()
        self._publish(manifest)
        done = _outcome(manifest, COMMITTED, publish_s=time.monotonic() - began)
        for staged, table in manifest.tables:
            # Remove staged output of other gateways for this batch, and of earlier attempts by this gateway.
            place = place_of(table)
            drop_staged(place.parent, place.name.removeprefix("batch="), keep=staged.rpartition("/")[2])
        done = replace(done, tables=manifest.tables) if manifest.checkpoint else done
        self._record(folder, stem, done, bool(manifest.checkpoint))
        return done

    def fail(self, ticket: Ticket, manifest: Manifest | None, error: str) -> Outcome | None:
        """Record that a batch has failed; if a different fate was already decided, carry out that fate."""
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
        # The fate belongs to this gateway, or cannot be carried out.
        return self._give_up(folder, stem, manifest, replace(stands, error=error))

    def _give_up(self, folder: SinkFolder, stem: str, manifest: Manifest, decision: Decision) -> Outcome:
        self._unpublish(manifest, decision.tables)
        outcome = _outcome(manifest, FAILED, decision.error)
        if manifest.checkpoint:
            self._keep_failed(folder, stem, manifest)
        self._record(folder, stem, outcome, bool(manifest.checkpoint))
        return outcome

    def _publish(self, manifest: Manifest) -> None:
        publish(manifest.tables)

    def _unpublish(self, manifest: Manifest, tables: list[list[str]]) -> None:
        unpublish(tables)

    def _keep_failed(self, folder: SinkFolder, stem: str, manifest: Manifest) -> None:
        """Keep the rows of a failed batch, because no spout replays them."""
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
        """Return the number of batches refused since the last call."""
        with self._counting:
            refused, self._refused = self._refused, 0
        return refused

    def component_of(self, safe_component: str) -> str:
        """Return the component whose folder has this name; the name itself until the component's sink has started."""
        if safe_component not in self._components:
            try:
                self._components[safe_component] = str(json.loads(self.sink_record(safe_component))["component"])
            except (StateError, ValueError, KeyError):
                return safe_component
        return self._components[safe_component]

    def sink_record(self, component: str) -> bytes:
        """Return the function and options that the sink wrote."""
        return self.folder(component).sink()


def _outcome(manifest: Manifest, state: str, error: str = "", publish_s: float = 0.0) -> Outcome:
    """Return the outcome of a batch, without tables."""
    counts = manifest.rows, manifest.started
    times = manifest.waited_s, manifest.run_s, publish_s, time.time()
    return Outcome(manifest.id, state, *counts, error, [], *times)


class DispatchInbox(Inbox):
    """All dispatches of one pipeline. A dispatch is the gateway's second kind of batch.

    A dispatch has no owner task, its rows are in another folder, and its published output is never replaced. Its
    records are in the pipeline's home (`heronpy.connectors.spark.dispatches`), so that a gateway of a later submission
    continues where the previous gateway ended, and only one of two concurrent gateways decides the fate of a dispatch.
    """

    def __init__(self, units: Path, run: str, epoch: int) -> None:
        """`units`: the folder `_units` of the pipeline's home; `run` and `epoch`: the gateway's run and epoch."""
        super().__init__(DispatchRun(units), epoch)
        self._run = run
        self._mark = f"{run}.{epoch}."
        self._by = f"gateway {run}.{epoch}"
        self._lock = hold_gateway_lock(units)

    def close(self) -> None:
        """Release the pipeline's lock; called once."""
        os.close(self._lock)

    def claim(self, ticket: Ticket) -> Manifest | None:
        """Claim a dispatch; see `Inbox`. Attempts by earlier submissions do not count."""
        manifest = super().claim(ticket)
        if manifest is None:
            return None
        if manifest.run != self._run:
            manifest.run, manifest.started, manifest.raised, manifest.run_s = self._run, 0, 0, 0.0
        manifest.mark = self._mark
        return manifest

    def _is_fenced(self, folder: SinkFolder, manifest: Manifest) -> bool:
        return False  # every keeper hands over the same content

    def _publish(self, manifest: Manifest) -> None:
        if manifest.of_run:  # the id of a run is in the name
            publish(manifest.tables)
        else:
            publish_once(manifest.tables, manifest.incarnation)

    def _unpublish(self, manifest: Manifest, tables: list[list[str]]) -> None:
        if manifest.of_run:
            unpublish(tables)
        else:
            unpublish_own(tables, manifest.incarnation)


def inboxes_of(homes: dict[str, str], run: str, epoch: int) -> dict[str, DispatchInbox]:
    """Return the inboxes of a topology's pipelines, by the safe name of the component that hands over the dispatches.

    `homes`: map from component to the folder with its dispatches.
    """
    return {safe_name(name): DispatchInbox(Path(units), run, epoch) for name, units in homes.items()}
