"""The folder where a checkpoint's files wait on this host until they are uploaded.

    <folder>/<process>/<checkpoint>/<path of the file, with @ for />

A task, or a forked copy of the task, adds files; a thread of the task uploads and removes them. The copy never uses the
network, because clients do not survive a fork. The total size is bounded: a task at the limit uploads before it adds a
file, and its forked copy waits for the thread. A process that opens the spool removes the files of its killed
predecessor.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from heronpy.common.folders import make_folders
from heronpy.common.units import format_bytes
from heronpy.storage.checkpoint_files import StoreError
from heronpy.storage.objects.folder import write_all

#: Interval in seconds at which a forked copy that is ahead of the uploads checks for room.
LOOK_S: Final = 0.02
_UNFINISHED: Final = ".unfinished-"


class Spool:
    """The waiting files of one process; `folder` belongs to one task, which has one process at a time."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._pid = os.getpid()
        self._folder = folder / f"{self._pid}-{os.urandom(4).hex()}"
        with contextlib.suppress(OSError):
            for entry in os.scandir(folder):
                shutil.rmtree(entry.path, ignore_errors=True)

    def add(
        self, checkpoint: int, path: str, data: bytes | bytearray | memoryview, upload: Callable[[int], None]
    ) -> None:
        """Store a file until it is uploaded; `upload` is called to free space. Raises StoreError on failure."""
        if len(data) > self._max_bytes:
            raise StoreError(
                f"a file of {format_bytes(len(data))} is too large for the spool, which holds"
                f" {format_bytes(self._max_bytes)}; raise heron.checkpoint.spool_bytes_max, or use keyed state"
            )
        while self._held() + len(data) > self._max_bytes:
            if os.getpid() == self._pid:
                upload(checkpoint)
                # The remaining files belong to another checkpoint, which its thread abandons.
                if self._held() + len(data) <= self._max_bytes:
                    break
            time.sleep(LOOK_S)
        folder = self._folder / str(checkpoint)
        draft, name = folder / f"{_UNFINISHED}{os.getpid()}", path.replace("/", "@")
        try:
            make_folders(folder)
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                write_all(descriptor, data)
            finally:
                os.close(descriptor)
            os.rename(draft, folder / name)
        except OSError as error:
            raise StoreError(
                f"state cannot be kept in {folder} until it is uploaded ({error.strerror or error}); free space there"
            ) from error

    def waiting(self, checkpoint: int) -> list[tuple[str, Path]]:
        """Return the complete files that wait for this checkpoint, each with its path in the store."""
        folder = self._folder / str(checkpoint)
        try:
            names = sorted(os.listdir(folder))
        except FileNotFoundError:
            return []
        return [(name.replace("@", "/"), folder / name) for name in names if not name.startswith(_UNFINISHED)]

    def drop(self, checkpoint: int) -> None:
        """Remove the waiting files of this checkpoint."""
        shutil.rmtree(self._folder / str(checkpoint), ignore_errors=True)

    def _held(self) -> int:
        held = 0
        for folder, _, names in os.walk(self._folder):
            for name in names:
                with contextlib.suppress(OSError):  # already uploaded
                    held += os.lstat(os.path.join(folder, name)).st_size
        return held
