"""FileSink: a bolt that writes tuples as lines to files, which appear whole.

Owns the rows between their arrival and the publication of their file. Invariants: a published file never
changes; under EFFECTIVELY_ONCE a row is in exactly one published file once its checkpoint is complete
(U15); under ATLEAST_ONCE a tuple is acked after its file is on disk and published.
"""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path
from typing import Any

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.component.component_spec import HeronComponentSpec
from heronpy.api.metrics import MultiCountMetric
from heronpy.api.state.two_phase import TwoPhaseStatefulComponent
from heronpy.common.errors import FencedError, StateError
from heronpy.connectors.files.lines import SUFFIXES, UnfitError, line_writer
from heronpy.connectors.files.options import FileOptions
from heronpy.connectors.files.part_files import PartFiles
from heronpy.connectors.task_identity import identity_of

#: Prepared files whose publication is not known, in the state of the task.
_PREPARED = "files.prepared"


class FileSink(Bolt, TwoPhaseStatefulComponent):
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
    then its tuples are acked. Rows of replayed tuples come again.
    **ATMOST_ONCE**: the same, without acks; rows that a dead process had written are published by its
    successor.
    """

    @classmethod
    def spec(  # type: ignore[override]
        cls,
        name: str | None = None,
        inputs: Any = None,
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

    def init_state(self, state: Any) -> None:
        """Keeps the state; it names the prepared files."""
        self._state = state

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Finds the folder, and what a predecessor left there."""
        self._who = identity_of(config, context)
        options = FileOptions.from_config(config, self._who.component)
        self._line_of = line_writer(options.format, options.fields)
        self._roll_bytes, self._roll_interval_s = options.roll_bytes, options.roll_interval_s
        # Without checkpoints nobody counts attempts; chance tells processes apart.
        attempt = str(self._who.attempt) if self._who.is_checkpointed else f"x{uuid.uuid4().hex[:8]}"
        self._files = PartFiles(
            Path(options.folder), self._who.component, self._who.index, self._who.run, attempt, SUFFIXES[options.format]
        )
        self._prepared: list[str] = []
        self._waiting: list[Any] = []
        self._opened_at = 0.0
        self._number = 0
        self._rejected = 0
        self._is_whole = True
        self._counts = MultiCountMetric()
        context.register_metric("file-sink", self._counts, 10)
        self._ready = True
        if self._who.is_checkpointed:
            self._take_over()
            return
        kept, removed = self._files.settle_leftovers(keep=not self._who.is_acked)
        if kept or removed:
            self.log(f"files of an earlier process: {kept} published, {removed} removed")

    def process(self, tup: Any) -> None:
        """Writes a line; files are published by checkpoints, or by size and age."""
        self._check_whole()
        try:
            line = self._line_of(tup.values)
        except UnfitError as error:
            self._reject(tup, str(error))
            return
        if not self._files.bytes:
            self._opened_at = time.monotonic()
        self._files.append(line)
        if not self._who.is_acked:
            self.ack(tup)
        else:
            self._waiting.append(tup)
        if not self._who.is_checkpointed and self._files.bytes >= self._roll_bytes:
            self._roll()

    def process_tick(self, tup: Any) -> None:
        """Publishes a file that is old enough."""
        self._check_whole()
        if self._who.is_checkpointed or not self._files.bytes:
            return
        if time.monotonic() - self._opened_at >= self._roll_interval_s:
            self._roll()

    def finish(self) -> None:
        """Publishes what is left; under EFFECTIVELY_ONCE the last checkpoint does."""
        if not self._who.is_checkpointed:
            self._roll()

    def close(self) -> None:
        """The task ends: rows that nobody replays are published, the others are left to a successor."""
        if getattr(self, "_ready", False) and not self._who.is_checkpointed and not self._who.is_acked:
            self._roll()

    # -- checkpoints --------------------------------------------------------------------------

    def pre_save(self, checkpoint_id: str) -> None:
        """Prepares the rows since the last checkpoint: on disk and whole, not visible."""
        self._check_whole()
        if not self._who.is_checkpointed:
            return
        self._is_whole = False
        try:
            base = self._files.prepare(int(checkpoint_id))
        except FencedError:
            self._counts.incr("writes-refused")
            raise
        if base is not None:
            self._prepared.append(base)
            self._counts.incr("files-prepared")
        self._state[_PREPARED] = list(self._prepared)
        self._is_whole = True

    def _check_whole(self) -> None:
        """A checkpoint that could not be prepared may be declined; its rows must not be passed over then."""
        if not self._is_whole:
            raise StateError(
                f"FileSink {self._who.component} could not prepare a checkpoint; it starts again from the last one"
            )

    def post_save(self, checkpoint_id: str) -> None:
        """Publishes what was prepared up to this checkpoint, which is complete."""
        ready = [base for base in self._prepared if _number_of(base) <= int(checkpoint_id)]
        self._publish(ready)
        self._prepared = [base for base in self._prepared if base not in ready]

    def pre_restore(self, checkpoint_id: str) -> None:
        """Finishes what the restored checkpoint holds and removes what came after it."""
        self._restored = int(checkpoint_id)
        self._take_over()

    def _take_over(self) -> None:
        """Settle the files of predecessors, once the checkpoint and the folder are known, in either order."""
        restored = getattr(self, "_restored", None)
        if restored is None or not getattr(self, "_ready", False):
            return
        found = self._files.take_over(self._state.get(_PREPARED) or [], restored)
        self._warn_of(found.missing)
        if found.published or found.removed:
            self.log(f"files of an earlier attempt: {len(found.published)} published, {len(found.removed)} removed")
        self._counts.incr("files-published", len(found.published))
        self._counts.incr("files-removed", len(found.removed))

    def _publish(self, bases: list[str]) -> None:
        missing = self._files.publish(bases)
        self._warn_of(missing)
        self._counts.incr("files-published", len(bases) - len(missing))
        self._counts.incr("files-missing", len(missing))

    def _warn_of(self, missing: list[str]) -> None:
        if missing:
            self.log(f"prepared files are gone, published by an earlier attempt and taken away or removed by "
                     f"somebody: {', '.join(missing)}", "warn")  # fmt: skip

    # -- without checkpoints ------------------------------------------------------------------

    def _roll(self) -> None:
        if self._files.roll(self._number + 1) is None:
            return
        self._number += 1
        self._counts.incr("files-published")
        waiting, self._waiting = self._waiting, []
        for tup in waiting:
            self.ack(tup)

    def _reject(self, tup: Any, reason: str) -> None:
        self._rejected += 1
        self._counts.incr("rows-rejected")
        # Each is counted; the log gets the first ones and then every thousandth.
        if self._rejected <= 10 or self._rejected % 1000 == 0:
            self.log(f"tuple of {self._who.component} rejected ({self._rejected} so far): {reason}", "error")
        self.fail(tup)


def _number_of(base: str) -> int:
    return int(base.rsplit("-", 2)[1])
