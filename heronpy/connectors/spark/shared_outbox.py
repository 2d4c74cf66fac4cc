"""The sink task's side of the handover between hosts; what outbox.py and checkpointed.py are on one host.

Owns the owner records of one task and what it adds to a `SharedFolder`. There is no lock: a new incarnation first
becomes the owner, by put-if-absent, then it lists what its predecessors wrote and withdraws it. What one of them writes
later was written after the owner record, so a gateway that sees it sees that record too, and refuses it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heronpy.common.errors import ConfigError, FencedError
from heronpy.connectors.spark.checkpointed import Restored
from heronpy.connectors.spark.handover import Folder, Manifest, Owner, new_manifest, stem_of, stem_order
from heronpy.connectors.spark.outbox import Takeover, replaced
from heronpy.connectors.spark.shared import Decision, Fate, SharedFolder, open_handover
from heronpy.connectors.spark.tables import unpublish
from heronpy.storage.objects.port import MissingObjectError

if TYPE_CHECKING:
    import pyarrow as pa

_TAKE_OVER_TRIES = 100


class SharedWriter:
    """One incarnation of one sink task: whose its batches are, and whether it may still write them."""

    incarnation: int

    def __init__(self, folder: SharedFolder, component: str, task: int, run: str) -> None:
        self.folder = folder
        self.component = component
        self.task = task
        self.run = run

    def _write_rows(self, table: pa.Table, number: int, after: int, line: str, keep: bool) -> Manifest:
        """Write the rows of a batch; see BatchWriter."""
        manifest = new_manifest(self.folder.component, self, number, after, table.num_rows, line, keep)
        manifest.size_bytes = self.folder.write_rows(manifest.stem, table)
        return manifest

    def _check_permit(self) -> None:
        """Raise FencedError when another process has taken the task over."""
        if self.folder.highest_incarnation(self.task) != self.incarnation:
            raise replaced(self.component, self.task)

    def _withdraw(self, stem: str) -> Decision:
        """Withdraw a batch unless its fate is decided; returns the decision that stands."""
        return self.folder.decide(stem, Decision(Fate.WITHDRAWN, f"sink {self.task}, incarnation {self.incarnation}"))


class SharedOutbox(SharedWriter):
    """Writes the batches of one incarnation of one sink task."""

    def __init__(self, folder: SharedFolder, component: str, task: int, run: str, keep_leftovers: bool) -> None:
        super().__init__(folder, component, task, run)
        self._keep = keep_leftovers
        self._previous = 0
        for _ in range(_TAKE_OVER_TRIES):
            before = folder.owner(task)
            self.incarnation = before.incarnation + 1 if before else 1
            used = max(before.first - 1 if before else 0, folder.highest_number(task))
            claimed = folder.claim_owner(task, Owner(run, self.incarnation, used + 1), by=os.urandom(8).hex())
            # Records of earlier owners are removed, so one may be free again below the latest.
            if claimed and folder.highest_incarnation(task) == self.incarnation:
                break
        else:
            raise FencedError(f"other processes keep taking over sink task {task} of {component}")
        self.takeover = self._withdraw_leftovers()
        # What a predecessor has written meanwhile.
        self._next = max(used, folder.highest_number(task)) + 1

    def _withdraw_leftovers(self) -> Takeover:
        withdrawn = kept = begun = 0
        waiting = self.folder.stems("batches", self.task)
        for stem in waiting:
            found = self.folder.handed_over(stem)
            if found is None or found[0].incarnation >= self.incarnation:
                continue
            if found[0].keep:
                kept += 1
            elif self._withdraw(stem).fate is Fate.WITHDRAWN:
                self.folder.remove(stem, "batches", "attempts", "rows")
                withdrawn += 1
            else:
                begun += 1
        for stem in self.folder.stems("rows", self.task):
            # Rows without a manifest: their writer died in between.
            if stem_order(stem)[2] < self.incarnation and stem not in waiting:
                self.folder.remove(stem, "rows")
        return Takeover(withdrawn, kept, begun)

    def write(self, table: pa.Table) -> Manifest:
        """Hand a table of rows over as the next batch; raises FencedError in a replaced incarnation."""
        self._check_permit()
        number = self._next
        manifest = self._write_rows(table, number, self._previous, str(self.incarnation), self._keep)
        self._check_permit()
        self.folder.hand_over(manifest)
        self._next, self._previous = number + 1, number
        return manifest


class SharedCheckpointedOutbox(SharedWriter):
    """Writes the batches of one attempt of one sink task under EFFECTIVELY_ONCE; see CheckpointedOutbox."""

    def __init__(self, folder: SharedFolder, component: str, task: int, run: str, attempt: int) -> None:
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
        self._number = len(named) if is_other_run else int(state.get("number", 0))
        owner = Owner(self.run, self.incarnation, self._number + 1)
        if not self.folder.claim_owner(self.task, owner):
            raise replaced(self.component, self.task)
        self._check_permit()
        missing: list[str] = []
        published = self._adopt(state, named, missing) if is_other_run else sum(self._show(stem) for stem in named)
        removed, retracted = self._drop_void(owner)
        return Restored(published, removed, retracted, missing)

    def _adopt(self, state: Mapping[str, Any], named: list[str], missing: list[str]) -> int:
        """Take over the batches without outcome from the submission whose checkpoint was restored.

        They keep their ids, so what its gateway may have published already is replaced, not duplicated.
        """
        old = _source_of(state)
        adopted = 0
        for number, stem in enumerate(named, 1):
            target = stem_of(self.task, number, 0)
            if self.folder.handed_over(target) is not None or self.folder.outcome(target) is not None:
                continue
            if old.is_done(stem):
                continue
            found = old.read(stem)
            if found is None:
                missing.append(stem)
                continue
            manifest, table = found
            self.folder.write_rows(target, table)
            ours = replace(manifest, run=self.run, component=self.component, task=self.task, incarnation=0,
                           number=number, started=0, raised=0, prepared=False, tables=[], run_s=0.0)  # fmt: skip
            self.folder.hand_over(ours)
            adopted += 1
        return adopted

    def _drop_void(self, owner: Owner) -> tuple[int, int]:
        """Remove what older attempts wrote after the restored checkpoint: batches not published, and published ones."""
        removed = retracted = 0

        def is_void(stem: str) -> bool:
            _, number, incarnation = stem_order(stem)
            return owner.voids(number, incarnation)

        # Handed over, or about to be: the fate keeps a process that still runs from having it published.
        for stem in filter(is_void, self._stems("rows", "prepared", "batches", "fates")):
            stands = self._withdraw(stem)
            if stands.fate is Fate.PUBLISHED:
                self.folder.overrule(stem, Decision(Fate.WITHDRAWN, f"restore {self.incarnation}", stands.tables))
            if stands.tables:
                # Published, or taken back by an earlier restore that did not end.
                unpublish(stands.tables)
            outcome = self.folder.outcome(stem)
            retracted += outcome is not None and outcome.committed
            removed += outcome is None and self._has_rows(stem)
            self.folder.remove(stem, "batches", "prepared", "attempts", "rows", "done")
        return removed, retracted

    def _stems(self, *kinds: str) -> list[str]:
        return sorted({stem for kind in kinds for stem in self.folder.stems(kind, self.task)}, key=stem_order)

    def _has_rows(self, stem: str) -> bool:
        return self.folder.objects.head(self.folder.key("rows", f"{stem}.arrow")) is not None

    # -- writing ------------------------------------------------------------------------------

    def stage(self, table: pa.Table) -> None:
        """Write the rows of the next batch; it becomes part of the next checkpoint."""
        number = self._number + 1
        manifest = self._write_rows(table, number, self._number, "checkpoints", keep=True)
        self._staged.append(manifest)
        self._number = number

    def prepare(self, checkpoint: int) -> None:
        """Make the batches since the last checkpoint part of this one; the gateway does not see them."""
        self._check_permit()
        while self._staged:
            manifest = replace(self._staged[0], checkpoint=checkpoint)
            self.folder.write_manifest("prepared", manifest)
            self._prepared.append(manifest)
            self._staged.pop(0)

    def publish(self, checkpoint: int) -> list[Manifest]:
        """Hand the batches up to this checkpoint, which is complete, to the gateway; idempotent."""
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
            return False  # It was handed over before.
        self._hand_over(manifest)
        return True

    def _hand_over(self, manifest: Manifest) -> None:
        self.folder.hand_over(manifest)
        self.folder.remove(manifest.stem, "prepared")

    def to_state(self, unsettled: Iterable[str]) -> dict[str, Any]:
        """What a restore needs; `unsettled` are handed-over batches whose outcome is not known."""
        stems = [*unsettled, *(manifest.stem for manifest in self._prepared)]
        place = {"place": self.folder.objects.name, "within": [self.folder.run_name, self.folder.component]}
        return {"number": self._number, "run": self.run, **place, "batches": stems}

    def without_outcome(self) -> list[str]:
        """Batches of this task that the gateway has not finished, from any writer."""
        return [stem for stem in self.folder.stems("batches", self.task) if self.folder.outcome(stem) is None]


class _SharedSource:
    """The batches of an earlier submission that were handed over between hosts."""

    def __init__(self, folder: SharedFolder) -> None:
        self._folder = folder

    def is_done(self, stem: str) -> bool:
        return self._folder.outcome(stem) is not None

    def read(self, stem: str) -> tuple[Manifest, pa.Table] | None:
        handed_over = self._folder.handed_over(stem)
        manifest = handed_over[0] if handed_over is not None else self._folder.manifest("prepared", stem)
        try:
            return (manifest, self._folder.rows(stem)) if manifest is not None else None
        except MissingObjectError:
            return None


class _LocalSource:
    """The same, of a submission whose sinks and gateway were on one host: this one."""

    def __init__(self, root: Path) -> None:
        self._folder = Folder(root.parent, root.name)

    def is_done(self, stem: str) -> bool:
        return self._folder.outcome(stem) is not None

    def read(self, stem: str) -> tuple[Manifest, pa.Table] | None:
        import pyarrow as pa

        folder = self._folder
        manifest = folder.read_prepared(stem) or folder.read_waiting(stem) or folder.read_claimed(stem)
        file = folder.rows_file(stem)
        if manifest is None or not file.exists():
            return None
        with pa.OSFile(str(file)) as source:
            return manifest, pa.ipc.open_file(source).read_all()


def _source_of(state: Mapping[str, Any]) -> _SharedSource | _LocalSource:
    """Where the batches of a restored checkpoint are; ConfigError when they cannot be reached from this host."""
    if "place" in state:
        run_name, component = state["within"]
        return _SharedSource(SharedFolder(open_handover(state["place"]), run_name, component))
    root = Path(state["folder"])
    if state["batches"] and not root.is_dir():
        raise ConfigError(
            f"the restored checkpoint has batches in {root}, which this host does not have; restore it once on the host"
            " that has it, let Spark finish, and take another savepoint"
        )
    return _LocalSource(root)
