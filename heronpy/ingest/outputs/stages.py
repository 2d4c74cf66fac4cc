"""The folders of attempts: staged, committed in the ledger, published by one rename, or removed.

    <table>/_units/g<generation>/<unit>-<attempt>/      a stage; readers of tables skip names that begin with _
    <table>/unit=<generation>-<unit>/                   published
    <table>/_units/bad/                                 one record per bad range
    <table>/_units/pipeline.json                        the pipeline and the ledger of the table

Stage and table are on one file system, so a unit appears as a whole. A rename finds either its source or its target, so
any process may repeat it at any time. A rebuild first creates the folder of its generation, and then removes the stages
of older generations. A process that has missed the rebuild, such as a process that still uses a removed ledger,
publishes nothing: the folder fences its later attempts, and a pending rename has lost its source. This needs no lock,
so it also works across hosts.

A table belongs to the first ledger that claims it: the record is created only if it is absent. Other ledgers stage and
publish nothing there; a rebuild gives the table to its new ledger.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from stat import S_ISDIR, S_ISLNK, S_ISREG

import msgspec
from msgspec import Struct

from heronpy.common.errors import LedgerError
from heronpy.common.folders import make_folders, make_output, open_private, read_own
from heronpy.connectors.durable_files import make_record, sync_path, write_record
from heronpy.ingest.ledger.partitions import Partitions
from heronpy.ingest.ledger.types import Config
from heronpy.ingest.outputs.lineage import FILE, PREFIX, Lineage, folder_name, record_of
from heronpy.ingest.outputs.replicas import HOME, Replicas, copied, drop_older, stages_in

_BAD = "bad"


_ABOUT = "pipeline.json"
_ABOUT_MAX = 1 << 20
#: Seconds for which the mark of an ended run is kept.
_ENDED_S = 86_400.0


class About(Struct, frozen=True):
    """The pipeline of a table, and its ledgers."""

    pipeline: str
    config: Config
    replicas: tuple[str, ...] = ()
    #: See `Pipeline.ledger`; "" if unknown, as in tables of an earlier release.
    ledger: str = ""
    #: The URLs of the pipeline's ledgers.
    partitions: Partitions | None = None


class StageGoneError(LedgerError):
    """A unit has neither a stage nor a published folder."""


class OtherLedgerError(LedgerError):
    """The table belongs to a ledger other than the one for which a unit is staged or published."""

    def __init__(self, table: Path, about: About) -> None:
        pipeline, urls = about.pipeline, about.partitions.urls if about.partitions is not None else ()
        named = f" ({', '.join(urls)})" if urls else ""
        super().__init__(
            f"{table} belongs to another ledger{named}, in which pipeline {pipeline!r} was started before; give it the"
            " same ledger (`ledger=`, or heron.ingest.ledger), or a separate table. If that ledger is lost, kill all"
            f" topologies that write this table, and run: heron units rebuild {pipeline} --from {table}"
        )


class OlderGenerationError(LedgerError):
    """The table has a newer generation than the one for which a unit is staged or published."""


class Stages:
    """The stages of one table, and their copies in other folders."""

    def __init__(self, table: str, replicas: Sequence[str] = ()) -> None:
        self._table = Path(table)
        self.home = self._table / HOME
        self._replicas = Replicas(replicas)

    @property
    def homes(self) -> list[Path]:
        """The folders of stages and of their copies."""
        return [self.home, *self._replicas.homes]

    def make(self, generation: int, unit: int, attempt: int) -> Path:
        """Create an empty folder for an attempt, and remove leftovers of an earlier process."""
        stage = self.stage_of(generation, unit, attempt)
        self.prepare()
        self.refuse_older(generation)
        make_folders(stage.parent)
        if stage.exists():
            shutil.rmtree(stage)
        stage.mkdir(mode=0o700)
        return stage

    def stage_of(self, generation: int, unit: int, attempt: int) -> Path:
        return self.home / f"g{generation}" / f"{unit}-{attempt}"

    def finish(self, stage: Path, lineage: Lineage) -> None:
        """Write the lineage and sync all files of the stage, which may then be published.

        Raises ValueError if an output has left anything but plain files, because only plain files are synced and
        copied.
        """
        for name in os.listdir(stage):
            if name.startswith("_") or not S_ISREG(os.lstat(stage / name).st_mode):
                raise ValueError(
                    f"the output has left {name!r} in the folder of its rows; a writer may leave only plain files whose"
                    " names do not begin with '_'"
                )
        with open(open_private(stage / FILE, os.O_WRONLY | os.O_EXCL), "w", encoding="utf-8") as out:
            out.write(lineage.to_json())
        for name in os.listdir(stage):
            sync_path(stage / name)
        sync_path(stage)
        # The permissions of readers depend on the umask of the table's creator.
        stage.chmod(0o777 & self._table.stat().st_mode)
        sync_path(stage.parent)
        self._replicas.put(stage)

    def discard(self, stage: Path) -> None:
        """Remove the stage of an abandoned attempt, and its copies."""
        shutil.rmtree(stage, ignore_errors=True)
        self._replicas.discard(stage.parent.name, stage.name)

    def publish(self, generation: int, unit: int, winner: int) -> bool:
        """Make a committed unit visible; idempotent. Returns whether the stage was missing and a copy was used.

        Raises StageGoneError if the stage and all copies are missing, and OlderGenerationError if a newer generation
        has begun.
        """
        self.refuse_older(generation)
        stage, target = self.stage_of(generation, unit, winner), self._table / folder_name(generation, unit)
        restored = False
        try:
            os.rename(stage, target)
        except OSError as error:
            if target.is_dir() and not stage.exists():
                # The unit was already published, unless another file has this name.
                self._refuse_other(target, winner, _way_out(stage, target, f"{target} is in the way of unit {unit}"))
            else:
                restored = isinstance(error, FileNotFoundError) and self._publish_copy(stage, target)
                if not restored:
                    self._refuse_other(target, winner)
                    raise StageGoneError(
                        f"unit {unit} cannot be published ({error.strerror}): {_way_out(stage, target)}"
                    ) from None
        sync_path(self._table)
        self._replicas.discard(stage.parent.name, stage.name)
        return restored

    def trouble(self, generation: int, unit: int, winner: int) -> str:
        """Return the fix if a committed unit cannot be published, judged by its stage and the table; otherwise "".

        Changes nothing. A unit that is being published may look like a unit with a missing stage.
        """
        stage, target = self.stage_of(generation, unit, winner), self._table / folder_name(generation, unit)
        if not stage.parent.is_dir():
            return ""  # the table is on another host
        if stage.exists():
            # An empty folder can be replaced.
            blocked = os.path.lexists(target) and (not target.is_dir() or any(target.iterdir()))
            return _way_out(stage, target) if blocked else ""
        if target.is_dir() or self._replicas.find(stage.parent.name, stage.name) is not None:
            return ""
        return _way_out(stage, target)

    def _publish_copy(self, stage: Path, target: Path) -> bool:
        source = self._replicas.find(stage.parent.name, stage.name)
        if source is None:
            return False
        self.prepare()
        make_folders(stage.parent)
        try:
            made = copied(source, stage.parent)
        except FileNotFoundError:
            return False  # removed by a rebuild or a faster keeper
        except OSError as error:
            raise StageGoneError(
                f"{source} cannot be copied to {stage.parent} ({error}); the copy will be retried"
            ) from None
        if not source.exists():
            shutil.rmtree(made, ignore_errors=True)
            return target.is_dir()
        try:
            os.rename(made, target)
        except OSError:
            shutil.rmtree(made, ignore_errors=True)
            return target.is_dir()  # another keeper was faster
        return True

    def staged_units(self, generation: int) -> dict[int, list[Path]]:
        """Return a map from each unit of a generation to its stages and their copies."""
        found: dict[int, list[Path]] = {}
        for home in self.homes:
            for unit, path in stages_in(home, generation):
                found.setdefault(unit, []).append(path)
        return found

    def drop_older(self, generation: int) -> None:
        """Remove the stages of all older generations; copies first, because a copy could restore its stage."""
        for home in reversed(self.homes):
            drop_older(home, generation)

    def prepare(self) -> None:
        """Create the table and its folder of stages. Raises LedgerError for a link, or a folder of another user."""
        make_output(self._table)
        _make_own(self.home)

    def own_folder(self, name: str) -> Path:
        """Create a folder next to the stages. Raises LedgerError for a link, or a folder of another user."""
        self.prepare()
        folder = self.home / name
        _make_own(folder)
        return folder

    def refuse_older(self, generation: int) -> None:
        """Raise OlderGenerationError if a newer generation has begun in this table."""
        newest = max(self._begun(self.home), default=0)
        if newest > generation:
            raise OlderGenerationError(
                f"{self._table} is at generation {newest} of its ledger, but this task works for generation"
                f" {generation}, so its attempt does not count"
            )

    def _refuse_other(self, target: Path, winner: int, no_unit: str = "") -> None:
        """Raise StageGoneError if the attempt published in `target` is not the winner. If `target` is not a unit, raise
        StageGoneError with the message `no_unit`, or return if `no_unit` is empty."""
        try:
            found = record_of(target).attempt
        except LedgerError:
            if no_unit:
                raise StageGoneError(no_unit) from None
            return
        if found != winner:
            raise StageGoneError(
                f"{target} is from attempt {found}, but attempt {winner} counts in the ledger, which is older than the"
                " table, for example restored from a backup; kill the topology, and run: heron units rebuild"
            )

    @staticmethod
    def _begun(home: Path) -> list[int]:
        try:
            return [int(name[1:]) for name in os.listdir(home) if name.startswith("g") and name[1:].isdecimal()]
        except FileNotFoundError:
            return []

    def highest(self) -> int:
        """Return the highest generation with a stage or a published unit."""
        staged = [number for home in self.homes for number in self._begun(home)]
        return max((0, *staged, *(generation for generation, _ in self.published_units())))

    def published_units(self) -> list[tuple[int, int]]:
        """Return the generation and id of each published unit."""
        try:
            names = os.listdir(self._table)
        except FileNotFoundError:
            return []
        parts = [name.removeprefix(PREFIX).partition("-") for name in names if name.startswith(PREFIX)]
        return [(int(one), int(unit)) for one, _, unit in parts if one.isdecimal() and unit.isdecimal()]

    # ---- small records ----------------------------------------------------------------------
    def write_bad(self, name: str, text: str) -> None:
        """Write the record of a bad range, replacing a record of the same name."""
        folder = self.own_folder(_BAD)
        write_record(folder / f"{name}.json", text.encode())

    def has_bad(self, name: str) -> bool:
        return (self.home / _BAD / f"{name}.json").exists()

    def bad_records(self) -> Iterable[Path]:
        """Return the records of bad ranges, by name."""
        return sorted((self.home / _BAD).glob("*.json"))

    def begin(self, generation: int) -> None:
        """Begin a generation, so that nothing more is staged or published for older generations.

        No other ledger gets this generation, even if this ledger is lost before anything is staged. Otherwise a process
        that was suspended would mistake units of the next ledger for its own.
        """
        folder = self.home / f"g{generation}"
        make_folders(folder)
        sync_path(folder.parent)

    def claim(self, about: About, rebuilt: bool = False) -> None:
        """Claim the table for a pipeline and ledger. Raises LedgerError if another pipeline or ledger owns the table.

        `rebuilt`: the ledger was made from this table, and owns it from now on.
        """
        make_output(self._table)
        for home in self.homes:
            _make_own(home)
        self.refuse(about.pipeline, "" if rebuilt else about.ledger)
        record = msgspec.json.encode(about)
        for home in self.homes:
            if self._about(home) is None and make_record(home / _ABOUT, record):
                continue
            # This ledger has already claimed the home, unless another ledger was faster.
            self.refuse(about.pipeline, "" if rebuilt else about.ledger)
            if self._about(home) != about:
                write_record(home / _ABOUT, record)

    def refuse_other_ledger(self, ledger: str) -> None:
        """Raise OtherLedgerError if the table belongs to another ledger."""
        found = self._about(self.home)
        if found is not None and "" not in (ledger, found.ledger) and found.ledger != ledger:
            raise OtherLedgerError(self._table, found)

    def refuse(self, pipeline: str, ledger: str = "") -> None:
        """Raise LedgerError if the table cannot belong to this pipeline and ledger; create nothing."""
        for home in self.homes:
            _check_own(home)
            found = self._about(home)
            if found is not None and found.pipeline != pipeline:
                what, own = ("is the table", "table") if home == self.home else ("has replicas", "folder")
                raise LedgerError(
                    f"{home.parent} {what} of pipeline {found.pipeline!r}; give {pipeline!r} a separate {own}"
                )
            if found is not None and "" not in (ledger, found.ledger) and found.ledger != ledger:
                raise OtherLedgerError(home.parent, found)

    def pipeline(self) -> About | None:
        """Return the pipeline and ledger that own the table; None if the table is unclaimed."""
        return self._about(self.home)

    @staticmethod
    def _about(home: Path) -> About | None:
        try:
            return msgspec.json.decode(read_own(home / _ABOUT, _ABOUT_MAX), type=About)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise LedgerError(f"{home / _ABOUT} cannot be read ({error}); remove the file") from None

    def mark_end(self, run: str) -> None:
        """Record that a bounded run has published all its units."""
        make_folders(self.home)
        os.close(open_private(self.home / f"ended-{run}", os.O_WRONLY))

    def has_ended(self, run: str) -> bool:
        """Whether a process of this run has called `mark_end`."""
        return (self.home / f"ended-{run}").exists()

    def unmark_end(self, run: str) -> None:
        with suppress(FileNotFoundError):
            (self.home / f"ended-{run}").unlink()

    def forget_ends(self, run: str) -> None:
        """Remove old end marks of other runs; recent marks are kept, because another site may have made them."""
        for path in self.home.glob("ended-*"):
            with suppress(FileNotFoundError):
                if path.name != f"ended-{run}" and time.time() - path.lstat().st_mtime > _ENDED_S:
                    path.unlink()


def _make_own(folder: Path) -> None:
    with suppress(FileExistsError):  # the folder exists, or the name is a broken link
        make_folders(folder)
    _check_own(folder)


def _way_out(stage: Path, target: Path, taken: str = "") -> str:
    """Return the fix for a unit that cannot be published. `taken`: a clause, if another file has the unit's name."""
    if taken or (os.path.lexists(target) and (stage.exists() or not target.is_dir())):
        taken = taken or f"{target} is in the way"
        if os.path.lexists(target / FILE):
            return f"{taken}, with rows of a unit: leave it there, kill the topology, and run: heron units rebuild"
        restore = "" if stage.exists() else f", and restore {stage}"
        return f"{taken}; move it away{restore}"
    return f"restore {stage}, or run 'heron units rebuild'"


def _check_own(folder: Path) -> None:
    try:
        status = os.lstat(folder)
    except FileNotFoundError:
        return
    if S_ISLNK(status.st_mode):
        raise LedgerError(f"{folder} is a link, so files could be written elsewhere; remove the link")
    if not S_ISDIR(status.st_mode):
        raise LedgerError(f"{folder} is not a folder; remove the file")
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise LedgerError(f"{folder} belongs to another user, or others may write there; give another folder")
