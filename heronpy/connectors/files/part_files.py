"""The files of one task of a file sink (open, prepared, published), and the rules for changing them.

    .open-<component>-<index>-<writer>.<suffix>                    being written
    .pending-<component>-<index>-<number>-<writer>.<suffix>        prepared: complete and on disk, not visible
    part-<component>-<index>-<number>-<writer>.<suffix>            published

`<number>` is the checkpoint's number; without checkpoints, the task counts its files. `<writer>` is `<run>.<attempt>`:
the submission of the topology, and the attempt, a number that each restore increases. Invariants: a name is used once,
by one process, so no file is overwritten. One rename takes a file from one state to the next. A process removes only
files of older attempts, so a replaced process cannot harm its successor.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from heronpy.common.errors import FencedError
from heronpy.common.folders import make_output
from heronpy.connectors.durable_files import UntilDone, safe_name, sync_path

_OPEN, _PENDING, _PART = ".open", ".pending", "part"
_WRITER = r"(?P<run>[0-9a-f]{8})\.(?P<attempt>\d+|x[0-9a-f]+)\.\w+"
_OPEN_NAME = re.compile(r"(?P<state>\.open)-(?P<component>.+)-(?P<index>\d+)-" + _WRITER)
_NUMBERED_NAME = re.compile(r"(?P<state>\.pending|part)-(?P<component>.+)-(?P<index>\d+)-(?P<number>\d+)-" + _WRITER)
_BUFFER_BYTES = 256 * 1024


class Takeover(NamedTuple):
    """The outcome of a restored task's clean-up of its predecessors' files: published, removed and missing files."""

    published: list[str]
    removed: list[str]
    #: Prepared files of the checkpoint that exist neither as pending nor as published files.
    missing: list[str]


class _OpenFile(io.FileIO):
    """A new file whose writes wait while the disk is full; a failed write leaves no part of its data."""

    def __init__(self, path: Path, until_done: UntilDone) -> None:
        self._until_done = until_done
        until_done(lambda: super(_OpenFile, self).__init__(path, "wb"))

    def write(self, data: Any, /) -> int:
        def write() -> int:
            try:
                return super(_OpenFile, self).write(data) or 0
            except OSError as error:
                error.filename = self.name
                raise

        return self._until_done(write)


class PartFiles:
    """Writes the files of one process of one task. `attempt` consists of digits, or of x followed by hex digits."""

    def __init__(
        self,
        folder: Path,
        component: str,
        index: int,
        run: str,
        attempt: str,
        suffix: str,
        until_done: UntilDone = lambda action: action(),
    ) -> None:
        self.folder = folder
        self._stem = f"{safe_name(component)}-{index}"
        self._component, self._index = safe_name(component), index
        self._run, self._attempt = run, attempt
        self._tail = f"{run}.{attempt}.{suffix}"
        self._file: BinaryIO | None = None
        self._until_done = until_done
        self.bytes = 0
        until_done(lambda: make_output(folder))

    # -- writing ------------------------------------------------------------------------------

    def append(self, line: bytes) -> None:
        """Add a line to the open file; open a file if necessary."""
        self.stream().write(line)
        self.bytes += len(line)

    def stream(self) -> BinaryIO:
        """Return the open file; open a file if necessary. The caller updates `bytes` and does not close the file."""
        if self._file is None:
            self._file = io.BufferedWriter(_OpenFile(self._open_path, self._until_done), _BUFFER_BYTES)
            # Locked until the file is closed, so that a successor sees that the writer is alive.
            fcntl.flock(self._file, fcntl.LOCK_EX)
        return self._file

    def prepare(self, number: int) -> str | None:
        """Make the written rows durable under this number; return the file's base name, or None without rows."""
        base = f"{self._stem}-{number}-{self._tail}"
        return base if self._close_as(f"{_PENDING}-{base}") else None

    def roll(self, number: int) -> str | None:
        """Make the written rows durable and visible immediately."""
        base = f"{self._stem}-{number}-{self._tail}"
        return base if self._close_as(f"{_PART}-{base}") else None

    def _close_as(self, name: str) -> bool:
        file = self._file
        if file is None:
            return False
        try:
            file.flush()
            os.fsync(file.fileno())
            self._until_done(lambda: os.rename(self._open_path, self.folder / name))
        except FileNotFoundError:
            raise FencedError(
                f"file {self._open_path} was removed by a newer process that has replaced this one; this process stops"
            ) from None
        sync_path(self.folder)
        self.discard()
        return True

    def discard(self) -> None:
        """Close the open file without publishing it; a successor removes the file."""
        if self._file is not None:
            self._file.close()
        self._file, self.bytes = None, 0

    @property
    def _open_path(self) -> Path:
        return self.folder / f"{_OPEN}-{self._stem}-{self._tail}"

    # -- publishing ---------------------------------------------------------------------------

    def publish(self, bases: Iterable[str]) -> list[str]:
        """Make prepared files visible; idempotent. Return the base names of files that are neither pending nor
        published."""
        missing = []
        renamed = False
        for base in bases:
            try:
                os.rename(self.folder / f"{_PENDING}-{base}", self.folder / f"{_PART}-{base}")
                renamed = True
            except FileNotFoundError:
                if not (self.folder / f"{_PART}-{base}").exists():
                    missing.append(base)
        if renamed:
            sync_path(self.folder)
        return missing

    def take_over(self, committed: Iterable[str], checkpoint: int) -> Takeover:
        """After a restore: publish the checkpoint's files, and remove all other files of older attempts.

        The removed files include files published for later checkpoints, which exist if a damaged checkpoint caused the
        restore of an older checkpoint; their rows are replayed.
        """
        wanted = set(committed)
        here = {name for name in os.listdir(self.folder) if name.startswith(f"{_PENDING}-")}
        published = sorted(base for base in wanted if f"{_PENDING}-{base}" in here)
        missing = self.publish(sorted(wanted))
        removed: list[str] = []
        # A predecessor that is still running may rename a file during the scan, so repeat the scan until it finds no
        # file.
        while doomed := [name for name in os.listdir(self.folder) if self._is_void(name, wanted, checkpoint)]:
            for name in doomed:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.folder / name)
                    removed.append(name)
        if removed:
            sync_path(self.folder)
        return Takeover(published, sorted(removed), missing)

    def _is_void(self, name: str, wanted: set[str], checkpoint: int) -> bool:
        match = self._mine(name)
        if match is None or not match["attempt"].isdigit() or int(match["attempt"]) >= int(self._attempt):
            return False
        if match["state"] == _PART:
            return int(match["number"]) > checkpoint
        return name.partition("-")[2] not in wanted

    def _mine(self, name: str) -> re.Match[str] | None:
        """Return the match of a file's name if this task wrote the file in this run, otherwise None."""
        match = (_OPEN_NAME if name.startswith(_OPEN) else _NUMBERED_NAME).fullmatch(name)
        if match is None or match["run"] != self._run:
            return None
        return match if match["component"] == self._component and int(match["index"]) == self._index else None

    # -- without checkpoints ------------------------------------------------------------------

    def settle_leftovers(self, keep: bool) -> tuple[int, int]:
        """Publish (with `keep`) or remove open files whose writer is dead; return the number of each."""
        kept = removed = 0
        for name in sorted(os.listdir(self.folder)):
            match = self._mine(name)
            if match is None or match["state"] != _OPEN:
                continue
            path = self.folder / name
            with contextlib.suppress(FileNotFoundError, BlockingIOError), open(path, "r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if keep and _cut_half_line(file):
                    os.fsync(file.fileno())
                    base = name.partition("-")[2].removeprefix(f"{self._stem}-")
                    # Number 0, because the writer's own numbers began with 1.
                    os.rename(path, self.folder / f"{_PART}-{self._stem}-0-{base}")
                    kept += 1
                else:
                    os.unlink(path)
                    removed += 1
        if kept or removed:
            sync_path(self.folder)
        return kept, removed


def _cut_half_line(file: BinaryIO) -> int:
    """Cut off an incomplete last line; return the number of remaining bytes."""
    size = file.seek(0, os.SEEK_END)
    while size:
        start = max(0, size - _BUFFER_BYTES)
        file.seek(start)
        newline = file.read(size - start).rfind(b"\n")
        if newline >= 0:
            size = start + newline + 1
            break
        size = start
    file.truncate(size)
    return size
