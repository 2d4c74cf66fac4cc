"""FileSink: a bolt that writes tuples as lines or columns to files, which appear atomically.

The sink is responsible for each row from its arrival to the publication of its file. Invariants: a published file never
changes. Under EFFECTIVELY_ONCE a row is in exactly one published file once its checkpoint is complete. Under
ATLEAST_ONCE a tuple is acked after its file is on disk and published.
"""

from __future__ import annotations

import math
import os
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heronpy.api.api_constants import TOPOLOGY_MAX_SPOUT_PENDING
from heronpy.api.batch import Batch
from heronpy.api.bolt.bolt import or_batches
from heronpy.api.component.component_spec import HeronComponentSpec, Inputs
from heronpy.api.topology_context import TopologyContext
from heronpy.connectors.files.lines import UnfitError
from heronpy.connectors.files.options import FOLDER, SUFFIXES, FileOptions
from heronpy.connectors.files.part_files import PartFiles
from heronpy.connectors.files.writers import writer_of
from heronpy.connectors.two_phase_sink import TwoPhaseSink

if TYPE_CHECKING:
    from heronpy.connectors.unit_output import UnitOutput


class FileSink(TwoPhaseSink):
    """Writes each tuple as a line, or a row of columns, to files below a folder.

        sink = FileSink.spec("store", {counts: Grouping.SHUFFLE}, folder="/data/words", fields=["word", "count"])

    Published files are named `part-<component>-<index>-<number>-<run>.<attempt>.jsonl` and never change;
    names that begin with a dot are unfinished, and readers skip them. `fields` makes each line a JSON
    object; without `fields` a line is an array; `format="text"` joins the values by tabs. `format="parquet"` and
    `format="arrow"` (Arrow's file format, also known as Feather) write columns. Their Arrow schema is declared by the
    input streams or given as `schema=`. Record batches are written unchanged; other values are converted.

    **EFFECTIVELY_ONCE**: one file per checkpoint. The file is prepared (flushed, synced, renamed to a hidden
    name) when the checkpoint is taken, and published when the checkpoint is complete. After a failure, the files of
    the restored checkpoint are published and all others are removed. Every row is published exactly once.
    The number of tasks of this component cannot be changed while it runs.

    **ATLEAST_ONCE**: a file is published when it has `roll_bytes`, or its first row is `roll_interval_s` old, or
    at the next tick (0.5 s) when it contains all tuples that the spouts may have pending; then its
    tuples are acked. Rows of replayed tuples are repeated.

    **ATMOST_ONCE**: as with ATLEAST_ONCE, but without acks. The successor of a dead process publishes the lines
    that the process had written; an unfinished file of columns is unreadable and is removed.
    """

    metric = "file-sink"
    #: Key of the prepared files that may not be published yet.
    state_key = "files.prepared"

    @classmethod
    def spec(  # type: ignore[override]
        cls,
        name: str | None = None,
        inputs: Inputs | None = None,
        par: int = 1,
        config: dict[str, Any] | None = None,
        *,
        folder: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> HeronComponentSpec:
        """Declare a sink as a component of a topology.

        folder: the folder for the files; a relative path is resolved on the host where the topology is submitted.
        format: jsonl, text, parquet or arrow. fields: names of the values. schema: a pyarrow.Schema for parquet and
        arrow, if the streams declare no schema. roll_bytes, roll_interval_s: see the class.
        """
        if folder is not None:
            made = FileOptions(os.path.abspath(os.path.expanduser(folder)), **options).with_schema_of(_schemas(inputs))
            config = {**made.to_config(), **(config or {})}
        elif FOLDER in (config or {}):
            config = {**FileOptions.from_config(dict(config or {}), name or cls.__name__).to_config(), **(config or {})}
        return super().spec(name=name, inputs=inputs, par=par, config=config)

    @classmethod
    def unit_output(cls, component: str, config: Mapping[str, Any]) -> UnitOutput:
        """Return the output of this sink in a batch run."""
        from heronpy.connectors.files.units import FileUnits

        return FileUnits(component, FileOptions.from_config(dict(config), component))

    def open(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Open the folder; without checkpoints, also publish or remove a predecessor's files."""
        who = self.who
        options = FileOptions.from_config(config, who.component)
        self._roll_bytes, self._roll_interval_s = options.roll_bytes, options.roll_interval_s
        # Without checkpoints there is no attempt number, so a random number distinguishes processes.
        attempt = str(who.attempt) if who.is_checkpointed else f"x{uuid.uuid4().hex[:8]}"
        self._files = PartFiles(
            Path(options.folder), who.component, who.index, who.run, attempt, SUFFIXES[options.format], self.until_done
        )
        self._writer = writer_of(options, self._files)
        self._prepared: list[str] = []
        #: Tuples and batches to ack when their file is published.
        self._waiting: list[Any] = []
        #: Number of unacked tuples, and the number at which spouts cannot emit more.
        self._held, self._held_max = 0, _pending_share(config, context)
        self._opened_at = 0.0
        self._number = 0
        if who.is_checkpointed:
            return
        kept, removed = self._files.settle_leftovers(keep=not who.is_acked and options.schema is None)
        if kept or removed:
            self.log(f"files of an earlier process: {kept} published, {removed} removed")

    @or_batches
    def process(self, tup: Any) -> None:
        """Write a row. Checkpoints publish the files; without checkpoints, files are published by size and age."""
        self.check_whole()
        began = not self._writer.bytes
        try:
            self._writer.row(tup.values)
        except UnfitError as error:
            self.reject(tup, str(error))
        else:
            self._took(tup, began)

    def process_batch(self, batch: Batch) -> None:
        """Write the rows of a batch. Tuples that do not fit are rejected; other tuples are not affected."""
        self.check_whole()
        began = not self._writer.bytes
        unfit = self._writer.batch(batch)
        for place, reason in unfit.items():
            self.reject(batch[place], reason)
        if len(unfit) < len(batch):
            self._took(batch, began)

    def _took(self, written: Any, began: bool) -> None:
        """Account for a written tuple or batch; `began`: whether it is the first in its file."""
        if began:
            self._opened_at = time.monotonic()
        if not self.who.is_acked:
            self.ack(written)
        else:
            self._waiting.append(written)
            self._held += len(written) if isinstance(written, Batch) else 1
        if not self.who.is_checkpointed and self._writer.bytes >= self._roll_bytes:
            self._roll()

    def process_tick(self, tup: Any) -> None:
        """Publish a file that is old enough, or that contains all tuples that a spout may have pending."""
        self.check_whole()
        if self.who.is_checkpointed or not self._writer.bytes:
            return
        if self._held >= self._held_max or time.monotonic() - self._opened_at >= self._roll_interval_s:
            self._roll()

    def finish(self) -> None:
        """Publish the last file; under EFFECTIVELY_ONCE the last checkpoint does this."""
        if not self.who.is_checkpointed:
            self._roll()

    def close(self) -> None:
        """End the task. If rows are not replayed, publish them; otherwise leave them to a successor."""
        if self.is_open and not self.who.is_checkpointed and not self.who.is_acked:
            self._roll()

    # -- checkpoints --------------------------------------------------------------------------

    def prepare(self, checkpoint: int) -> list[str]:
        """Put the rows since the last checkpoint into a file that is complete, on disk and not visible."""
        self._writer.close()
        base = self._files.prepare(checkpoint)
        if base is not None:
            self._prepared.append(base)
            self.counts.incr("files-prepared")
        return list(self._prepared)

    def publish(self, checkpoint: int) -> None:
        """Publish the files up to this checkpoint."""
        ready = [base for base in self._prepared if _number_of(base) <= checkpoint]
        missing = self._files.publish(ready)
        self._warn_of(missing)
        self.counts.incr("files-published", len(ready) - len(missing))
        self.counts.incr("files-missing", len(missing))
        self._prepared = [base for base in self._prepared if base not in ready]

    def take_over(self, prepared: list[str] | None, checkpoint: int) -> None:
        """Publish the files of the restored checkpoint, and remove later files."""
        found = self._files.take_over(prepared or [], checkpoint)
        self._warn_of(found.missing)
        if found.published or found.removed:
            self.log(f"files of an earlier attempt: {len(found.published)} published, {len(found.removed)} removed")
        self.counts.incr("files-published", len(found.published))
        self.counts.incr("files-removed", len(found.removed))

    def _warn_of(self, missing: list[str]) -> None:
        if missing:
            self.log(f"prepared files are missing, because they were deleted, or moved after their publication: "
                     f"{', '.join(missing)}", "warn")  # fmt: skip

    # -- without checkpoints ------------------------------------------------------------------

    def _roll(self) -> None:
        self._writer.close()
        if self._files.roll(self._number + 1) is None:
            return
        self._number += 1
        self.counts.incr("files-published")
        waiting, self._waiting, self._held = self._waiting, [], 0
        for tup in waiting:
            self.ack(tup)


def _pending_share(config: dict[str, Any], context: TopologyContext) -> float:
    """Return one task's share of the tuples that the spouts may have pending; infinity if they have no limit.

    If all pending tuples are at the sink, at least one of its tasks has this share or more.
    """
    pending = float(config.get(TOPOLOGY_MAX_SPOUT_PENDING) or math.inf)
    component = context.get_component_id()
    seen, todo, spouts = {component}, [component], 0
    while todo:
        name = todo.pop()
        above = {stream.component_name for stream in context.get_sources(name) or ()}
        if not above:
            spouts += len(context.get_component_tasks(name) or ())
        todo += above - seen
        seen |= above
    return pending * spouts / len(context.get_component_tasks(component) or (0,))


def _schemas(inputs: Inputs | None) -> list[Any]:
    """Return the Arrow schema of each input stream; None if the schema is unknown or not declared."""
    return [
        stream.schema
        if isinstance(source, HeronComponentSpec) and (stream := source.output_streams().get("default")) is not None
        else None
        for source in inputs or ()
    ]


def _number_of(base: str) -> int:
    return int(base.rsplit("-", 2)[1])
