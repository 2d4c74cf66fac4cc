"""Copies of stages in other folders (Ubiq's replicator). A unit is committed only when all copies are on disk.

    <folder>/_units/g<generation>/<unit>-<attempt>/     as in the table, until the unit is published

A unit is not processed again between its commit and its publication. If the stage is lost in between, a keeper
publishes a copy.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from heronpy.common.folders import make_folders
from heronpy.connectors.durable_files import sync_path

HOME = "_units"
#: Suffix of a copy in progress.
NEW = "_new-"


class Replicas:
    """The replicas of one table."""

    def __init__(self, folders: Sequence[str]) -> None:
        self.homes = [Path(folder) / HOME for folder in folders]

    def put(self, stage: Path) -> None:
        """Copy a finished stage into each folder. Raises OSError if a folder cannot store the copy."""
        for home in self.homes:
            folder = home / stage.parent.name
            make_folders(folder)
            made = copied(stage, folder)
            try:
                os.rename(made, folder / stage.name)
            except OSError:
                # A copy of the same attempt by a process whose commit was lost.
                shutil.rmtree(folder / stage.name)
                os.rename(made, folder / stage.name)
            sync_path(folder)

    def find(self, generation: str, name: str) -> Path | None:
        """Return a copy of a stage, or None."""
        return next((path for home in self.homes if (path := home / generation / name).is_dir()), None)

    def discard(self, generation: str, name: str) -> None:
        """Remove the copies of a stage."""
        for home in self.homes:
            shutil.rmtree(home / generation / name, ignore_errors=True)


def copied(stage: Path, folder: Path) -> Path:
    """Copy a stage into a folder under a name that readers skip, and sync the copy."""
    made = folder / f"{NEW}{stage.name}-{os.urandom(4).hex()}"
    made.mkdir(mode=0o700)
    try:
        for name in sorted(os.listdir(stage)):
            with open(stage / name, "rb") as source, open(made / name, "xb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
                target.flush()
                os.fsync(target.fileno())
                os.fchmod(target.fileno(), os.fstat(source.fileno()).st_mode & 0o777)
        made.chmod(stage.stat().st_mode & 0o777)
        sync_path(made)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return made


def stages_in(home: Path, generation: int) -> Iterable[tuple[int, Path]]:
    """Yield the stages and unfinished copies of a generation in the folder `home`, each with its unit's id."""
    try:
        entries = list((home / f"g{generation}").iterdir())
    except FileNotFoundError:
        return
    for path in entries:
        unit, _, attempt = path.name.removeprefix(NEW).partition("-")
        number = attempt.partition("-")[0] if path.name.startswith(NEW) else attempt
        if unit.isdecimal() and number.isdecimal():
            yield int(unit), path


def drop_older(home: Path, generation: int) -> None:
    """Remove the stages of all older generations. They are renamed first, so that no incomplete unit is published."""
    try:
        folders = [path for path in home.iterdir() if path.name.startswith("g") and path.name[1:].isdecimal()]
    except FileNotFoundError:
        return
    for folder in folders:
        if int(folder.name[1:]) < generation:
            away = folder.with_name(f"_old-{folder.name}-{os.urandom(4).hex()}")
            os.rename(folder, away)
            shutil.rmtree(away, ignore_errors=True)
