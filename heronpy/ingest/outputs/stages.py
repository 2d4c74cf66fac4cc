"""The folders of attempts: staged, committed in the ledger, published by one rename, or removed.

    <table>/_units/g<generation>/<unit>-<attempt>/      a stage; readers of tables skip names that begin with _
    <table>/unit=<generation>-<unit>/                   published
    <table>/_units/bad/                                 one record per bad range
    <table>/_units/pipeline.json                        of which pipeline the table is

Stage and table are on one file system, so a unit appears whole. A rename finds its source or its target: who
repeats it, and when, does not matter. After a rebuild the stages of older generations are gone, so the publication by
a process that does not know of it fails.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from heronpy.common.errors import LedgerError
from heronpy.common.folders import make_folders, make_output, open_private, read_own
from heronpy.connectors.durable_files import sync_folder, write_record
from heronpy.ingest.ledger.types import Config
from heronpy.ingest.outputs.lineage import FILE, Lineage, folder_name

HOME = "_units"
_BAD = "bad"


_ABOUT = "pipeline.json"
_ABOUT_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class About:
    """Of which pipeline a table is, and its numbers."""

    pipeline: str
    config: Config


class StageGoneError(LedgerError):
    """A stage is neither staged nor published."""


class Stages:
    """The stages of one table."""

    def __init__(self, table: str) -> None:
        self._table = Path(table)
        self.home = self._table / HOME

    def make(self, generation: int, unit: int, attempt: int) -> Path:
        """An empty folder for an attempt; what an earlier process has left there is removed."""
        stage = self._stage(generation, unit, attempt)
        make_output(self._table)
        make_folders(stage.parent)
        self._check_home()
        if stage.exists():
            shutil.rmtree(stage)
        stage.mkdir(mode=0o700)
        return stage

    def stage_of(self, generation: int, unit: int, attempt: int) -> Path:
        """The folder of an attempt."""
        return self._stage(generation, unit, attempt)

    def finish(self, stage: Path, lineage: Lineage) -> None:
        """All files of the stage, with its lineage, are on disk and may be published."""
        with open(open_private(stage / FILE, os.O_WRONLY | os.O_EXCL), "w", encoding="utf-8") as out:
            out.write(lineage.to_json())
        for name in os.listdir(stage):
            _sync(stage / name)
        sync_folder(stage)
        # What readers of the table may do is up to the umask of who made the table.
        stage.chmod(0o777 & self._table.stat().st_mode)
        sync_folder(stage.parent)

    def discard(self, stage: Path) -> None:
        """Remove the stage of an attempt that does not count."""
        shutil.rmtree(stage, ignore_errors=True)

    def publish(self, generation: int, unit: int, winner: int) -> None:
        """Make a committed unit visible; idempotent. StageGoneError when somebody has removed it."""
        stage, target = self._stage(generation, unit, winner), self._table / folder_name(generation, unit)
        try:
            os.rename(stage, target)
        except OSError as error:
            if target.is_dir() and not stage.exists():
                return
            raise StageGoneError(
                f"unit {unit} cannot be published ({error.strerror}): restore {stage}, or run 'heron units rebuild'"
            ) from None
        sync_folder(self._table)

    def staged_units(self, generation: int) -> dict[int, list[Path]]:
        """The stages of a generation by unit."""
        found: dict[int, list[Path]] = {}
        try:
            entries = list((self.home / f"g{generation}").iterdir())
        except FileNotFoundError:
            return {}
        for path in entries:
            unit, dash, attempt = path.name.partition("-")
            if dash and unit.isdecimal() and attempt.isdecimal():
                found.setdefault(int(unit), []).append(path)
        return found

    def drop_older(self, generation: int) -> None:
        """Remove the stages of all older generations: first their names, so that no publication is half done."""
        try:
            folders = [path for path in self.home.iterdir() if path.name.startswith("g") and path.name[1:].isdecimal()]
        except FileNotFoundError:
            return
        for folder in folders:
            if int(folder.name[1:]) < generation:
                away = folder.with_name(f"_old-{folder.name}-{os.urandom(4).hex()}")
                os.rename(folder, away)
                shutil.rmtree(away, ignore_errors=True)

    def highest(self) -> int:
        """The highest generation of which a stage or a published unit is there."""
        numbers = [0]
        for folder, prefix in ((self.home, "g"), (self._table, "unit=")):
            try:
                names = os.listdir(folder)
            except FileNotFoundError:
                continue
            for name in names:
                text = name.removeprefix(prefix).partition("-")[0]
                if name.startswith(prefix) and text.isdecimal():
                    numbers.append(int(text))
        return max(numbers)

    # ---- small records ----------------------------------------------------------------------
    def write_bad(self, name: str, text: str) -> None:
        """Keep a record of a bad range; an equal name replaces it."""
        folder = self.home / _BAD
        make_folders(folder)
        write_record(folder / f"{name}.json", text.encode())

    def bad_records(self) -> Iterable[Path]:
        """The records of bad ranges, by name."""
        return sorted((self.home / _BAD).glob("*.json"))

    def claim(self, about: About) -> None:
        """Say of which pipeline the table is; LedgerError when it is another one's."""
        make_output(self._table)
        make_folders(self.home)
        self._check_home()
        found = self.pipeline()
        if found is not None and found.pipeline != about.pipeline:
            raise LedgerError(
                f"{self._table} is the table of pipeline {found.pipeline!r}; give {about.pipeline!r} a table of its own"
            )
        if found != about:
            write_record(self.home / _ABOUT, msgspec.json.encode(about))

    def pipeline(self) -> About | None:
        """Of which pipeline the table is; None when none has claimed it."""
        try:
            return msgspec.json.decode(read_own(self.home / _ABOUT, _ABOUT_MAX), type=About)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            raise LedgerError(f"{self.home / _ABOUT} cannot be read ({error}); remove it") from None

    def mark_end(self, run: str) -> None:
        """What there was at the start of a bounded run is published."""
        make_folders(self.home)
        os.close(open_private(self.home / f"ended-{run}", os.O_WRONLY))

    def has_ended(self, run: str) -> bool:
        """Whether a process of this run has called `mark_end`."""
        return (self.home / f"ended-{run}").exists()

    def forget_ends(self, run: str) -> None:
        """Remove the marks of earlier runs."""
        for path in self.home.glob("ended-*"):
            if path.name != f"ended-{run}":
                path.unlink(missing_ok=True)

    def _stage(self, generation: int, unit: int, attempt: int) -> Path:
        return self.home / f"g{generation}" / f"{unit}-{attempt}"

    def _check_home(self) -> None:
        status = os.lstat(self.home)
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise LedgerError(f"{self.home} belongs to somebody else, or others may write there; give another table")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
