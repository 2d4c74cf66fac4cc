"""The sink task's side of the hand-over under EFFECTIVELY_ONCE: batches wait for their checkpoint.

This module writes the owner records of one task, its rows, and its manifests in `prepared`. A batch gets its manifest
when a checkpoint is taken, and is handed over to the gateway when that checkpoint is complete. Batch numbers are part
of the state, so batches written again after a restore have the same ids as the lost batches. A restored process first
becomes the owner: from then on the gateway refuses batches that older attempts wrote after the restored checkpoint.
Then the process retracts such batches if they were published, which happens only if a later checkpoint was damaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from heronpy.common.errors import ConfigError
from heronpy.connectors.spark.handover import Manifest, Owner, stem_of, stem_order
from heronpy.connectors.spark.outbox import BatchWriter, replaced
from heronpy.connectors.spark.records import Decision, Fate, SinkFolder, open_handover
from heronpy.connectors.spark.tables import unpublish
from heronpy.storage.objects.port import MissingObjectError
from heronpy.storage.objects.url import Url, place_of

if TYPE_CHECKING:
    import pyarrow as pa


class Restored(Struct, frozen=True):
    """Counts of the batches that a restored process found, by the action taken."""

    #: Batches of the checkpoint that were not published, or were taken over from another submission.
    published: int
    #: Unpublished batches of older attempts that do not belong to the checkpoint.
    removed: int
    #: Published batches of older attempts that do not belong to the checkpoint; only after a damaged checkpoint.
    retracted: int
    #: Batches of the checkpoint that are missing.
    missing: list[str]


class CheckpointedOutbox(BatchWriter):
    """Writes the batches of one attempt of one sink task under EFFECTIVELY_ONCE."""

    def __init__(self, folder: SinkFolder, component: str, task: int, run: str, attempt: int) -> None:
        super().__init__(folder, component, task, run)
        self.incarnation = attempt
        self._number = 0
        self._staged: list[Manifest] = []
        self._prepared: list[Manifest] = []

    # -- restore ------------------------------------------------------------------------------

    def restore(self, state: Mapping[str, Any]) -> Restored:
        """Take over the task, and continue from a state that `to_state` returned, or from an empty state."""
        named = list(state.get("batches", ()))
        is_other_run = bool(state) and state["run"] != self.run
        self._number = len(named) if is_other_run else int(state.get("number", 0))
        owner = Owner(self.run, self.incarnation, self._number + 1)
        if not self.folder.claim_owner(self.task, owner):
            raise replaced(self.component, self.task)
        self._check_permit()
        missing: list[str] = []
        if is_other_run:
            published = self._adopt(_folder_of(state), named, missing) if named else 0
        else:
            published = sum(self._show(stem) for stem in named)
        removed, retracted = self._drop_void(owner)
        return Restored(published, removed, retracted, missing)

    def _adopt(self, old: SinkFolder, named: list[str], missing: list[str]) -> int:
        """Take over the batches without an outcome from the submission whose checkpoint was restored.

        The batches keep their ids, so output that the earlier gateway may have published is replaced, not duplicated.
        """
        adopted = 0
        for number, stem in enumerate(named, 1):
            target = stem_of(self.task, number, 0)
            if self.folder.manifest("batches", target) is not None or self.folder.outcome(target) is not None:
                continue
            if old.outcome(stem) is not None:
                continue
            manifest = old.manifest("batches", stem) or old.manifest("prepared", stem)
            try:
                table = old.rows(stem) if manifest is not None else None
            except MissingObjectError:
                table = None
            if manifest is None or table is None:
                missing.append(stem)
                continue
            self.folder.write_rows(target, table)
            ours = replace(manifest, run=self.run, component=self.component, task=self.task, incarnation=0,
                           number=number, started=0, raised=0, prepared=False, tables=[], run_s=0.0)  # fmt: skip
            self.folder.hand_over(ours)
            adopted += 1
        return adopted

    def _drop_void(self, owner: Owner) -> tuple[int, int]:
        """Remove the batches that older attempts wrote after the restored checkpoint, published or not."""
        removed = retracted = 0

        def is_void(stem: str) -> bool:
            _, number, incarnation = stem_order(stem)
            return owner.voids(number, incarnation)

        # The batch is handed over, or will be: the fate prevents a process that is still running from publishing it.
        for stem in filter(is_void, self._stems("rows", "prepared", "batches", "fates", "failed")):
            stands = self._withdraw(stem)
            if stands.fate is Fate.PUBLISHED:
                self.folder.overrule(stem, Decision(Fate.WITHDRAWN, f"restore {self.incarnation}", stands.tables))
            if stands.tables:
                # The batch was published, or retracted by an earlier restore that did not finish.
                unpublish(stands.tables)
            outcome = self.folder.outcome(stem)
            retracted += outcome is not None and outcome.committed
            removed += outcome is None and self._has_rows(stem)
            self.folder.remove(stem, "batches", "prepared", "attempts", "rows", "done", "failed")
        return removed, retracted

    def _stems(self, *kinds: str) -> list[str]:
        return sorted({stem for kind in kinds for stem in self.folder.stems(kind, self.task)}, key=stem_order)

    def _has_rows(self, stem: str) -> bool:
        return self.folder.objects.head(self.folder.key("rows", f"{stem}.arrow")) is not None

    # -- writing ------------------------------------------------------------------------------

    def stage(self, table: pa.Table) -> None:
        """Write the rows of the next batch, which becomes part of the next checkpoint."""
        number = self._number + 1
        manifest = self._write_rows(table, number, "checkpoints", keep=True)
        self._staged.append(manifest)
        self._number = number

    def prepare(self, checkpoint: int) -> None:
        """Add the batches since the last checkpoint to this checkpoint. The gateway does not see them yet."""
        self._check_permit()
        while self._staged:
            manifest = replace(self._staged[0], checkpoint=checkpoint)
            self.folder.write_manifest("prepared", manifest)
            self._prepared.append(manifest)
            self._staged.pop(0)

    def publish(self, checkpoint: int) -> list[Manifest]:
        """Hand the batches up to this complete checkpoint to the gateway; idempotent."""
        ready = [manifest for manifest in self._prepared if manifest.checkpoint <= checkpoint]
        if ready:
            self._check_permit()
        for manifest in ready:
            self._hand_over(manifest)
            self._prepared.remove(manifest)
        return ready

    def _show(self, stem: str) -> bool:
        manifest = self.folder.manifest("prepared", stem)
        if manifest is None:
            return False  # The batch was handed over before.
        self._hand_over(manifest)
        return True

    def _hand_over(self, manifest: Manifest) -> None:
        self.folder.hand_over(manifest)
        self.folder.remove(manifest.stem, "prepared")

    def to_state(self, unsettled: Iterable[str]) -> dict[str, Any]:
        """Return the state for a restore; `unsettled` are handed-over batches without a known outcome."""
        stems = [*unsettled, *(manifest.stem for manifest in self._prepared)]
        place = {"place": self.folder.objects.name, "within": [self.folder.run_name, self.folder.component]}
        return {"number": self._number, "run": self.run, **place, "batches": stems}

    def without_outcome(self) -> list[str]:
        """Return the batches of this task, from any writer, that the gateway has not finished."""
        return [stem for stem in self.folder.stems("batches", self.task) if self.folder.outcome(stem) is None]


def _folder_of(state: Mapping[str, Any]) -> SinkFolder:
    """Return the location of a restored checkpoint's batches. Raises ConfigError if this host cannot access it."""
    if "place" not in state:
        raise ConfigError(
            f"the restored checkpoint refers to batches in {state['folder']}, in the format of an earlier release;"
            " restore it once with that release, let Spark finish, and take another savepoint"
        )
    place = place_of(state["place"])
    if not isinstance(place, Url) and not place.is_dir():
        raise ConfigError(
            f"the restored checkpoint refers to batches in {place}, which this host does not have; restore it once on"
            " the host that has them, let Spark finish, and take another savepoint"
        )
    return SinkFolder(open_handover(state["place"]), *state["within"])
