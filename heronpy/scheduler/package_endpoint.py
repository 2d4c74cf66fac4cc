"""Provides a topology's package as one archive, for hosts that do not have it.

The archive is a tar file of the package's entry in the cache. It has no compression, owners or times, so equal packages
give equal archives. It is created once, in a separate thread, and stays in the working folder for the next scheduler.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from heronpy.common.errors import HeronError, InvalidRpcError, PackageError, RetryableRpcError
from heronpy.common.folders import open_private
from heronpy.storage.package_pieces import PackagePieces
from heronpy.storage.packages import BYTES_MAX, FILES_MAX

log = logging.getLogger("heronpy.scheduler")

PIECE_BYTES = 256 << 10
#: How long failed requests to the package store are repeated. REMOVE_S applies at the end of a topology, when a user
#: is waiting.
STORE_S = 30.0
REMOVE_S = 5.0
#: Maximum number of pieces that are read from the disk at the same time.
READERS_MAX = 4
#: Maximum number of requests for pieces that wait; further requests are temporarily refused.
ASKING_MAX = 200


@dataclass(frozen=True, slots=True)
class Archive:
    """The description of the archive, which hosts get before they fetch the archive."""

    size: int = 0
    sha256: bytes = b""
    #: The folder or URL of the package store; empty if hosts fetch the archive from the scheduler.
    place: str = ""


class PackageEndpoint:
    """The archive of one topology; call `start` on the loop. Without a package, `digest` is empty.

    `place` is a folder or URL from which hosts fetch the archive; if it is empty, hosts fetch it from the scheduler.
    """

    def __init__(self, package_dir: str | None, working_dir: str, topology_id: str = "", place: str = "") -> None:
        self._topology_id, self._place = topology_id, place
        self._entry = Path(package_dir) if package_dir else None
        self._folder = Path(working_dir)
        self.digest = self._entry.name if self._entry is not None else ""
        self._made: asyncio.Task[Archive] | None = None
        self._readers = asyncio.Semaphore(READERS_MAX)
        self._asking = 0

    @property
    def _file(self) -> Path:
        return self._folder / f"package-{self.digest[:16]}.tar"

    def start(self) -> None:
        """Begin to create the archive."""
        if self._entry is not None:
            self._made = asyncio.create_task(asyncio.to_thread(self._make, self._entry))

    def _make(self, entry: Path) -> Archive:  # called in a thread
        made = _make(entry, self._file)
        if not self._place:
            return made
        try:
            PackagePieces(self._place, self._topology_id, STORE_S).put(self._file, made.sha256)
        except (HeronError, OSError) as error:
            log.warning("hosts fetch the package from this scheduler, because it cannot be stored elsewhere: %s", error)
            return made
        return replace(made, place=self._place)

    async def archive(self) -> Archive:
        """Wait for the archive. Raises RetryableRpcError if it could not be created; the next call tries again."""
        if self._made is None:
            return Archive()
        if self._made.done() and self._made.exception() is not None:
            self.start()
        try:
            return await asyncio.shield(self._made)
        except (PackageError, OSError) as error:
            raise RetryableRpcError(str(error)) from None

    async def read(self, package: str, offset: int) -> bytes:
        """Read at most `PIECE_BYTES` of the archive, beginning at the offset; empty at the end."""
        if not self.digest or package != self.digest:
            raise InvalidRpcError(f"package {package[:80]!r} does not belong to this topology")
        if self._asking >= ASKING_MAX:
            raise RetryableRpcError("too many hosts are fetching the package; try again")
        self._asking += 1
        try:
            await self.archive()
            async with self._readers:
                return await asyncio.to_thread(_read, self._file, offset)
        finally:
            self._asking -= 1

    def remove(self) -> None:
        """Delete the archive when it is no longer needed. May wait for the package store."""
        if not self.digest:
            return
        self._file.unlink(missing_ok=True)
        if self._place:
            try:
                PackagePieces(self._place, self._topology_id, REMOVE_S).remove()
            except HeronError as error:
                log.warning("cannot remove the topology's package from %s: %s", self._place, error)


def _read(file: Path, offset: int) -> bytes:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise PackageError(f"the package archive {file} cannot be read: {error.strerror}") from None
    try:
        # An offset beyond the largest file offset is treated as the end.
        return os.pread(descriptor, PIECE_BYTES, offset) if offset < 1 << 62 else b""
    finally:
        os.close(descriptor)


def pack_entry(entry: Path, into: Path, files_max: int = FILES_MAX, bytes_max: int = BYTES_MAX) -> int:
    """Write an entry of the package cache as a tar file, unless the file exists; returns its size.

    The file appears complete or not at all. It has only files, folders and links, with names relative to the entry.
    """
    try:
        if into.is_file() and not into.is_symlink():
            return into.stat().st_size
        draft = into.with_name(f".{into.name}.{os.getpid()}")
        draft.unlink(missing_ok=True)
        try:
            with open(open_private(draft, os.O_WRONLY | os.O_EXCL), "wb") as file:
                with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
                    for count, path in enumerate(_below(entry)):
                        if count >= files_max or file.tell() > bytes_max:
                            raise PackageError(f"package {entry} has grown; submit the topology again")
                        archive.add(path, str(path.relative_to(entry)), recursive=False, filter=_plain)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, into)
        finally:
            draft.unlink(missing_ok=True)
        return into.stat().st_size
    except OSError as error:
        raise PackageError(f"package {entry} cannot be packed for other hosts: {error.strerror or error}") from None


def _make(entry: Path, file: Path) -> Archive:
    size = pack_entry(entry, file)
    try:
        with open(file, "rb") as archive:
            return Archive(size, hashlib.file_digest(archive, "sha256").digest())
    except OSError as error:
        raise PackageError(f"the package archive {file} cannot be read: {error.strerror}") from None


def _below(folder: Path) -> Iterator[Path]:
    """All files, folders and links below a folder, sorted by name, with each folder before its content."""
    for path in sorted(folder.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _below(path)


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if not (info.isreg() or info.isdir() or info.issym() or info.islnk()):
        return None
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mtime = 0
    info.mode = 0o700 if info.isdir() or info.mode & 0o100 else 0o600
    return info
