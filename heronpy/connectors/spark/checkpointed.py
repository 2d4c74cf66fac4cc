"""The sink task's side of the handover under EFFECTIVELY_ONCE: batches that wait for their checkpoint.

Owns the owner record of one task, its rows in the inbox and its manifests in `prepared`. A batch gets its
manifest when a checkpoint is taken, which moves to the inbox, by one rename, when that checkpoint is complete;
only then can the gateway take it (D12). Numbers are part of the state, so batches written again
after a restore have the same ids as the lost ones. A restored process first writes the owner record: from
then on the gateway refuses whatever older attempts wrote after the restored checkpoint, and retracts what
it had already published of it (possible only if a later checkpoint turned out to be damaged).
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heronpy.common.errors import ConfigError
from heronpy.connectors.durable_files import sync_folder, write_record
from heronpy.connectors.spark.handover import Folder, Manifest, Owner, parse_stem, sorted_stems, stem_of
from heronpy.connectors.spark.outbox import BatchWriter, owner_lock, replaced
from heronpy.connectors.spark.tables import unpublish

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(slots=True, frozen=True)
class Restored:
    """What a restored process found and did."""

    #: Batches of the checkpoint that were not published yet, or were taken over from another submission.
    published: int
    #: Batches of older attempts that are not part of the checkpoint.
    removed: int
    #: The same, already published by Spark: possible only if a checkpoint turned out to be damaged.
    retracted: int
    #: Batches of the checkpoint that no longer exist.
    missing: list[str]


class CheckpointedOutbox(BatchWriter):
    """Writes the batches of one attempt of one sink task."""

    def __init__(self, folder: Folder, component: str, task: int, run: str, attempt: int) -> None:
        super().__init__(folder, component, task, run)
        self.incarnation = attempt
        self._number = 0
        self._staged: list[Manifest] = []
        self._prepared: list[Manifest] = []

    # -- restore ------------------------------------------------------------------------------

    def restore(self, state: Mapping[str, Any]) -> Restored:
        """Take the task over and continue from a state of `to_state`, or from an empty one."""
        named = list(state.get("batches", ()))
        is_other_run = bool(state) and state["run"] != self.run
        with owner_lock(self.folder, self.task):
            before = self.folder.owner(self.task)
            base = self._base(before)
            if is_other_run:
                self._number = base + len(named)
            else:
                self._number = int(state.get("number", base))
            owner = Owner(self.run, self.incarnation, self._number + 1, base)
            self.folder.write_owner(self.task, owner)
        missing: list[str] = []
        if is_other_run:
            published = self._adopt(_root_of(state), named, base, missing)
        else:
            published = sum(self._show(stem) for stem in named)
        return Restored(published, self._drop_void(owner), self._retract_void(owner), missing)

    def _base(self, before: Owner | None) -> int:
        """The highest number that earlier submissions used; decided once per submission."""
        if before is not None and before.run == self.run:
            if before.incarnation > self.incarnation:
                raise replaced(self.component, self.task)
            return before.base
        return max(before.first - 1 if before else 0, self.folder.highest_number(self.task))

    def _adopt(self, root: Path, named: list[str], base: int, missing: list[str]) -> int:
        """Take over the batches without outcome from the submission whose checkpoint was restored.

        They keep their ids, so what its gateway may have published already is replaced, not duplicated.
        """
        old = Folder(root.parent, root.name)
        adopted = 0
        for place, stem in enumerate(named, 1):
            target = stem_of(self.task, base + place, 0)
            if self._is_known(target) or old.outcome(stem) is not None:
                continue
            manifest = old.read_prepared(stem) or old.read_waiting(stem) or old.read_claimed(stem)
            if manifest is None or not old.rows_file(stem).exists():
                missing.append(stem)
                continue
            _link_or_copy(old.rows_file(stem), self.folder.rows_file(target))
            ours = replace(manifest, run=self.run, component=self.component, task=self.task, incarnation=0,
                           number=base + place, started=0, raised=0, prepared=False, tables=[], run_s=0.0)  # fmt: skip
            write_record(self.folder.inbox / f"{target}.json", ours.to_bytes())
            adopted += 1
        return adopted

    def _is_known(self, stem: str) -> bool:
        places = (self.folder.inbox, self.folder.claimed, self.folder.done)
        return any((place / f"{stem}.json").exists() for place in places)

    def _drop_void(self, owner: Owner) -> int:
        """Remove what older attempts wrote after the restored checkpoint."""
        removed = 0
        # In this order: a batch of a process that still runs moves from the first to the second.
        for place in (self.folder.prepared, self.folder.inbox):
            for name in os.listdir(place):
                parsed = parse_stem(name.lstrip(".").split(".")[0])
                if parsed is None or parsed[0] != self.task or not owner.voids(parsed[1], parsed[2]):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(place / name)
                    removed += name.endswith(".arrow")
        return removed

    def _retract_void(self, owner: Owner) -> int:
        """Retract what the gateway published after the restored checkpoint: its rows are replayed."""
        retracted = 0
        for stem in sorted_stems(self.folder.done):
            task, number, incarnation = parse_stem(stem) or (0, 0, 0)
            outcome = self.folder.outcome(stem) if task == self.task and owner.voids(number, incarnation) else None
            if outcome is not None:
                unpublish(outcome.tables)
                (self.folder.done / f"{stem}.json").unlink(missing_ok=True)
                retracted += outcome.committed
        return retracted

    # -- writing ------------------------------------------------------------------------------

    def stage(self, table: pa.Table) -> None:
        """Put the rows of the next batch on disk; it becomes part of the next checkpoint."""
        number = self._number + 1
        # The same ids after a restore, whatever the attempt.
        manifest = self._write_rows(table, number, self._number, "checkpoints", keep=True)
        self._staged.append(manifest)
        self._number = number

    def prepare(self, checkpoint: int) -> None:
        """Make the batches since the last checkpoint part of this one; the gateway does not see them."""
        self._check_permit()
        while self._staged:
            manifest = replace(self._staged[0], checkpoint=checkpoint)
            self._write_manifest(self.folder.prepared, manifest)
            self._prepared.append(manifest)
            self._staged.pop(0)

    def publish(self, checkpoint: int) -> list[Manifest]:
        """Hand the batches up to this checkpoint, which is complete, to the gateway; idempotent."""
        ready = [manifest for manifest in self._prepared if manifest.checkpoint <= checkpoint]
        if ready:
            self._check_permit()
        for manifest in ready:
            self._show(manifest.stem)
            self._prepared.remove(manifest)
        return ready

    def _show(self, stem: str) -> bool:
        name = f"{stem}.json"
        try:
            os.rename(self.folder.prepared / name, self.folder.inbox / name)
        except FileNotFoundError:
            return False  # It was handed over before.
        sync_folder(self.folder.inbox)
        sync_folder(self.folder.prepared)
        return True

    def to_state(self, unsettled: Iterable[str]) -> dict[str, Any]:
        """What a restore needs; `unsettled` are handed-over batches whose outcome is not known."""
        stems = [*unsettled, *(manifest.stem for manifest in self._prepared)]
        return {"number": self._number, "run": self.run, "folder": str(self.folder.root), "batches": stems}

    def without_outcome(self) -> list[str]:
        """Batches of this task that the gateway has not finished, from any writer."""
        stems = {*sorted_stems(self.folder.inbox), *sorted_stems(self.folder.claimed)}
        return sorted(stem for stem in stems if (parse_stem(stem) or (0,))[0] == self.task)


def _root_of(state: Mapping[str, Any]) -> Path:
    """The folder of the batches of a restored checkpoint; ConfigError when they were handed over between hosts."""
    if "folder" not in state:
        raise ConfigError(
            f"the restored checkpoint has batches in {state['place']}; set heron.spark.handover to it, or to another"
            " place for batches between hosts"
        )
    return Path(state["folder"])


def _link_or_copy(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        # Another file system. The manifest is written afterwards, so a partial copy is never read.
        shutil.copyfile(source, target)
        fd = os.open(target, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    sync_folder(target.parent)
