"""The gateway's second kind of batch: dispatches of work units, beside the batches of sinks.

A dispatch has no owner task, its rows are elsewhere, and what it publishes is never replaced. Its records are in the
home of its pipeline (`heronpy.connectors.spark.dispatches`), so that a gateway of a later submission goes on where the
one before it ended, and of two that work at once one decides the fate of a dispatch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from heronpy.connectors.durable_files import safe_name
from heronpy.connectors.spark.dispatches import DispatchRun, hold_gateway_lock
from heronpy.connectors.spark.handover import Manifest, Outcome
from heronpy.connectors.spark.records import SinkFolder
from heronpy.connectors.spark.tables import publish_once, unpublish_own
from heronpy.spark.inbox import Batches, Inbox, published
from heronpy.spark.lanes import Ticket

if TYPE_CHECKING:
    import pyarrow as pa


class DispatchInbox(Inbox):
    """All dispatches of one pipeline."""

    def __init__(self, units: Path, run: str, epoch: int) -> None:
        """`units`: the folder `_units` of its home; `run` and `epoch` are the gateway's."""
        super().__init__(DispatchRun(units), epoch)
        self._run = run
        self._mark = f"{run}.{epoch}."
        self._by = f"gateway {run}.{epoch}"
        self._lock = hold_gateway_lock(units)

    def close(self) -> None:
        """No more work for this pipeline; to be called once."""
        os.close(self._lock)

    def claim(self, ticket: Ticket) -> Manifest | None:
        """See `inbox.Batches`; the attempts of earlier submissions are not held against it."""
        manifest = super().claim(ticket)
        if manifest is None:
            return None
        if manifest.run != self._run:
            manifest.run, manifest.started, manifest.raised, manifest.run_s = self._run, 0, 0, 0.0
        manifest.mark = self._mark
        return manifest

    def _is_fenced(self, folder: SinkFolder, manifest: Manifest) -> bool:
        """Never: whoever hands it over says the same."""
        return False

    def _published(self, manifest: Manifest) -> Outcome:
        return published(manifest, lambda tables: publish_once(tables, manifest.incarnation))

    def _unpublish(self, manifest: Manifest, tables: list[list[str]]) -> None:
        unpublish_own(tables, manifest.incarnation)


class WithDispatches:
    """The batches of the sinks and the dispatches of the pipelines of a topology; see `inbox.Batches`."""

    def __init__(self, sinks: Batches, homes: dict[str, str], run: str, epoch: int) -> None:
        """`homes`: the folder of the dispatches of each component."""
        self._sinks = sinks
        self._of = {safe_name(name): DispatchInbox(Path(units), run, epoch) for name, units in homes.items()}

    def close(self) -> None:
        """To be called once."""
        for one in self._of.values():
            one.close()

    def _for(self, component: str) -> Batches:
        return self._of.get(component, self._sinks)

    def scan(self) -> Iterator[Ticket]:
        """Every batch without outcome, of all sinks and pipelines."""
        for one in (self._sinks, *self._of.values()):
            yield from one.scan()

    def scan_sink(self, component: str) -> Iterator[Ticket]:
        """See `inbox.Batches`."""
        yield from self._for(component).scan_sink(component)

    def begun(self) -> Iterator[Ticket]:
        """See `inbox.Batches`."""
        for one in (self._sinks, *self._of.values()):
            yield from one.begun()

    def outcome(self, ticket: Ticket) -> Outcome | None:
        """See `inbox.Batches`."""
        return self._for(ticket.component).outcome(ticket)

    def claim(self, ticket: Ticket) -> Manifest | None:
        """See `inbox.Batches`."""
        return self._for(ticket.component).claim(ticket)

    def rows(self, ticket: Ticket) -> AbstractContextManager[pa.Table]:
        """Of a sink's batch."""
        return self._for(ticket.component).rows(ticket)

    def save(self, ticket: Ticket, manifest: Manifest) -> None:
        """See `inbox.Batches`."""
        self._for(ticket.component).save(ticket, manifest)

    def prepare(self, ticket: Ticket, manifest: Manifest) -> bool:
        """See `inbox.Batches`."""
        return self._for(ticket.component).prepare(ticket, manifest)

    def commit(self, ticket: Ticket, manifest: Manifest) -> Outcome | None:
        """See `inbox.Batches`."""
        return self._for(ticket.component).commit(ticket, manifest)

    def fail(self, ticket: Ticket, manifest: Manifest | None, error: str) -> Outcome | None:
        """See `inbox.Batches`."""
        return self._for(ticket.component).fail(ticket, manifest, error)

    def take_refused(self) -> int:
        """How many batches were refused since the last call."""
        return self._sinks.take_refused()

    def component_of(self, safe_component: str) -> str:
        """See `inbox.Batches`."""
        return self._for(safe_component).component_of(safe_component)

    def sink_record(self, component: str) -> bytes:
        """See `inbox.Batches`."""
        return self._for(component).sink_record(component)
