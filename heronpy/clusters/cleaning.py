"""Removes files of ended topologies, such as logs, from the working folders of this host.

Files outside HERON_HOME are not touched, and links are not followed. The folder of a topology is kept if the
topology is in the state manager, or if one of its processes is alive. Files that a later restore may need are kept.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from heronpy.clusters.session import Session
from heronpy.clusters.takedown import leftovers
from heronpy.common.errors import DeadlineError
from heronpy.common.folders import check_root, heron_home
from heronpy.storage.stores import SPOOL

#: Folders with batches and checkpoints that are not handed over yet. A restored topology needs them.
KEPT = ("spark", SPOOL)


@dataclass(frozen=True, slots=True)
class Left:
    """The working folder of a topology that has ended."""

    topology: str
    role: str
    folder: Path
    written_at: float
    """Wall time of the last write to the folder."""
    removable: tuple[Path, ...]
    bytes: int
    """Size of the removable files."""


def left_over(session: Session, topology: str | None, older_than_s: float, now: float) -> list[Left]:
    """Folders of ended topologies that were last written at least `older_than_s` seconds ago."""
    check_root(heron_home(), "HERON_HOME")
    cluster, role = session.target.cluster, session.target.role
    found = []
    for parent in _folders(heron_home() / "topologies" / cluster):
        for folder in _folders(parent):
            if role not in (None, parent.name) or topology not in (None, folder.name):
                continue
            removable = tuple(sorted(path for path in folder.iterdir() if path.name not in KEPT))
            written_at, size = _measured(folder, removable)
            old = now - written_at >= older_than_s
            if removable and old and _has_ended(session, folder):
                found.append(Left(folder.name, parent.name, folder, written_at, removable, size))
    return found


def remove(session: Session, left: Left) -> bool:
    """Remove the removable files; return False if the topology is running again, or if a command holds its lock."""
    try:
        with session.operation(left.topology, 0.0):
            if not _has_ended(session, left.folder):
                return False
            for path in left.removable:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
            with suppress(OSError):  # the folder still has files that are kept
                left.folder.rmdir()
    except DeadlineError:
        return False
    return True


def _folders(folder: Path) -> Iterator[Path]:
    """The subfolders of a folder, except links; empty if the folder is a link."""
    if folder.is_symlink() or not folder.is_dir():
        return
    with os.scandir(folder) as entries:
        yield from sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))


def _has_ended(session: Session, folder: Path) -> bool:
    record = session.record(folder.name)
    return (record is None or record.role != folder.parent.name) and not leftovers(str(folder / "launch.json"))


def _measured(folder: Path, removable: tuple[Path, ...]) -> tuple[float, int]:
    """Time of the last write in a folder, and the size of its `removable` files in bytes."""
    newest, size = folder.lstat().st_mtime, 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            status = path.lstat()
            newest = max(newest, status.st_mtime)
            if any(path.is_relative_to(one) for one in removable):
                size += status.st_blocks * 512
    return newest, size
