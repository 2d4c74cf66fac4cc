"""FileSink: a bolt that writes tuples as lines to files, which appear atomically.

Owns the rows between their arrival and the publication of their file. Invariants: a published file never
changes; under EFFECTIVELY_ONCE a row is in exactly one published file once its checkpoint is complete;
under ATLEAST_ONCE a tuple is acked after its file is on disk and published.
"""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path
from typing import Any

from heronpy.api.component.component_spec import HeronComponentSpec, Inputs
from heronpy.api.topology_context import TopologyContext
from heronpy.connectors.files.lines import SUFFIXES, UnfitError, line_writer
from heronpy.connectors.files.options import FileOptions
from heronpy.connectors.files.part_files import PartFiles
from heronpy.connectors.two_phase_sink import TwoPhaseSink


class FileSink(TwoPhaseSink):
    """Writes each tuple as a line to files below a folder.

        sink = FileSink.spec("store", {counts: Grouping.SHUFFLE}, folder="/data/words", fields=["word", "count"])

    Published files are named `part-<component>-<index>-<number>-<run>.<attempt>.jsonl` and never change;
    names that begin with a dot are unfinished, and readers skip them. `fields` makes each line a JSON
    object; without it a line is an array; `format="text"` joins the values by tabs.

    **EFFECTIVELY_ONCE**: a file per checkpoint. It is prepared (flushed, synced, renamed to a hidden name)
    when the checkpoint is taken, and published when the checkpoint is complete; after a failure, what the
    restored checkpoint holds is published and the rest is removed. Every row is published exactly once.
    The number of tasks of this component cannot be changed while it runs.
    **ATLEAST_ONCE**: a file is published when it has `roll_bytes` or its first row is `roll_interval_s` old;
    then its tuples are acked. Rows of replayed tuples are repeated.
    **ATMOST_ONCE**: the same, without acks; rows that a dead process had written are published by its
    successor.
    """

    metric = "file-sink"
    #: Prepared files not known to be published.
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
        """Specify a sink.

        folder: where the files go; made absolute here, where the topology is submitted.
        format: jsonl or text. fields: names of the values. roll_bytes, roll_interval_s: see the class.
        """
        if folder is not None:
            made = FileOptions(os.path.abspath(os.path.expanduser(folder)), **options)
            config = {**made.to_config(), **(config or {})}
        return super().spec(name=name, inputs=inputs, par=par, config=config)

    def open(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Finds the folder; without checkpoints, also publishes or removes what a predecessor left there."""
        who = self.who
        options = FileOptions.from_config(config, who.component)
        self._line_of = line_writer(options.format, options.fields)
        self._roll_bytes, self._roll_interval_s = options.roll_bytes, options.roll_interval_s
        # Without checkpoints there is no attempt number; a random one distinguishes processes.
        attempt = str(who.attempt) if who.is_checkpointed else f"x{uuid.uuid4().hex[:8]}"
        self._files = PartFiles(
            Path(options.folder), who.component, who.index, who.run, attempt, SUFFIXES[options.format]
        )
        self._prepared: list[str] = []
        self._waiting: list[Any] = []
        self._opened_at = 0.0
        self._number = 0
        if who.is_checkpointed:
            return
        kept, removed = self._files.settle_leftovers(keep=not who.is_acked)
        if kept or removed:
            self.log(f"files of an earlier process: {kept} published, {removed} removed")

    def process(self, tup: Any) -> None:
        """Writes a line; files are published by checkpoints, or by size and age."""
        self.check_whole()
        try:
            line = self._line_of(tup.values)
        except UnfitError as error:
            self.reject(tup, str(error))
            return
        if not self._files.bytes:
            self._opened_at = time.monotonic()
        self._files.append(line)
        if not self.who.is_acked:
            self.ack(tup)
        else:
            self._waiting.append(tup)
        if not self.who.is_checkpointed and self._files.bytes >= self._roll_bytes:
            self._roll()

    def process_tick(self, tup: Any) -> None:
        """Publishes a file that is old enough."""
        self.check_whole()
        if self.who.is_checkpointed or not self._files.bytes:
            return
        if time.monotonic() - self._opened_at >= self._roll_interval_s:
            self._roll()

    def finish(self) -> None:
        """Publishes what is left; under EFFECTIVELY_ONCE the last checkpoint does."""
        if not self.who.is_checkpointed:
            self._roll()

    def close(self) -> None:
        """The task ends: rows that are not replayed are published, the others are left to a successor."""
        if self.is_open and not self.who.is_checkpointed and not self.who.is_acked:
            self._roll()

    # -- checkpoints --------------------------------------------------------------------------

    def prepare(self, checkpoint: int) -> list[str]:
        """The rows since the last checkpoint become a file: complete and on disk, not visible."""
        base = self._files.prepare(checkpoint)
        if base is not None:
            self._prepared.append(base)
            self.counts.incr("files-prepared")
        return list(self._prepared)

    def publish(self, checkpoint: int) -> None:
        """Publishes the files up to this checkpoint."""
        ready = [base for base in self._prepared if _number_of(base) <= checkpoint]
        missing = self._files.publish(ready)
        self._warn_of(missing)
        self.counts.incr("files-published", len(ready) - len(missing))
        self.counts.incr("files-missing", len(missing))
        self._prepared = [base for base in self._prepared if base not in ready]

    def take_over(self, prepared: list[str] | None, checkpoint: int) -> None:
        """Publishes the files of the restored checkpoint and removes what came after it."""
        found = self._files.take_over(prepared or [], checkpoint)
        self._warn_of(found.missing)
        if found.published or found.removed:
            self.log(f"files of an earlier attempt: {len(found.published)} published, {len(found.removed)} removed")
        self.counts.incr("files-published", len(found.published))
        self.counts.incr("files-removed", len(found.removed))

    def _warn_of(self, missing: list[str]) -> None:
        if missing:
            self.log(f"prepared files are gone: published by an earlier attempt and then moved away, or "
                     f"deleted: {', '.join(missing)}", "warn")  # fmt: skip

    # -- without checkpoints ------------------------------------------------------------------

    def _roll(self) -> None:
        if self._files.roll(self._number + 1) is None:
            return
        self._number += 1
        self.counts.incr("files-published")
        waiting, self._waiting = self._waiting, []
        for tup in waiting:
            self.ack(tup)


def _number_of(base: str) -> int:
    return int(base.rsplit("-", 2)[1])
