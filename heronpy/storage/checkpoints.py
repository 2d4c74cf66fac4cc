"""The checkpoints of one topology instance, in a folder or an object store; only the owner reads them.

    chk-<id>/metadata                names every file of the checkpoint; written last, with put-if-absent
    chk-<id>/<name>                  files of this checkpoint alone
    chk-<id>/abandoned               empty; the topology was restored from an older checkpoint
    shared/<sha256>-<checkpoint>     immutable pieces that later checkpoints share; the name includes the writer
    taskowned/                       never changed by this module

There are no locks, and no decision depends on a clock.

Invariants: a file is complete or absent; a checkpoint exists if its metadata exists, and metadata is written after a
listing has shown every file that it names; a path outside the topology's folder is refused. Each checkpoint writes its
pieces under its own name, so no removal can affect a writer. A checkpoint reuses only pieces that the last complete
checkpoint names, and the last complete checkpoint is kept. Only the topology master removes files of a running
topology.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from heronpy.common.errors import HeronError
from heronpy.proto.checkpoint_pb2 import FileRef, Metadata
from heronpy.storage.checkpoint_files import (
    DamagedFileError,
    StoreError,
    chunks_of,
    encode_metadata,
    files_of,
    parse_metadata,
    read_metadata,
    verified,
)
from heronpy.storage.checkpoint_layout import (
    ABANDONED,
    METADATA,
    folder_name,
    is_file_name,
    is_path,
    number_of,
    path_in,
)
from heronpy.storage.objects.folder import FolderObjects, unfinished
from heronpy.storage.objects.port import MissingObjectError, Objects, ObjectsError, Trouble
from heronpy.storage.objects.url import Place, Url
from heronpy.storage.pins import Pins

if TYPE_CHECKING:
    from heronpy.storage.spool import Spool
    from heronpy.storage.store_limits import StoreLimits

__all__ = ["CheckpointStore", "DamagedFileError", "StoreError", "files_of"]

log = logging.getLogger("heronpy.ckpt")

#: Number of objects of one task that are uploaded at the same time.
UPLOADS: Final = 4
#: Interval in seconds at which a restore that cannot reach the store tries again.
LOOK_S: Final = 2.0
#: The limits of a store count written data in parts of this size.
_PART_BYTES: Final = 1 << 20
_WRITTEN_BY: Final = re.compile(r"(?:shared/[^/]+|chk)-([0-9]{1,19})(?:/[^/]+)?")


class CheckpointStore:
    """The checkpoints in `folder`. Safe for threads, and for several processes.

    `objects` stores the files; for a folder on this host, leave out `objects`, and files are synced to disk. With a
    `spool`, files of a task wait there until `upload`. A read waits up to `patience_s` seconds for an object store that
    is unreachable or refuses requests, in addition to the client's timeout.
    """

    def __init__(
        self,
        folder: Place | str,
        fsync: bool = True,
        limits: StoreLimits | None = None,
        *,
        objects: Objects | None = None,
        spool: Spool | None = None,
        patience_s: float = 0.0,
    ) -> None:
        self.folder: Place = folder if isinstance(folder, Url) else Path(folder).absolute()
        self.bytes_written = 0
        """Number of bytes of all files written by this object, including those in the spool."""
        if objects is None:
            assert isinstance(self.folder, Path), "a store that is not a folder needs objects"
            objects = FolderObjects(self.folder, fsync)
        self._objects = objects
        self._limits = limits
        self._spool = spool
        self._patience_s = patience_s
        self._marks: dict[int, bool] = {}
        self._complete: set[int] = set()
        self._lost: set[str] = set()
        self._looking = threading.Lock()
        self._pins = Pins()
        self._lock = threading.Lock()

    @property
    def is_remote(self) -> bool:
        """Whether writing needs the network; then neither the thread of a task nor a forked child may write."""
        return isinstance(self.folder, Url)

    # ---- writing ----------------------------------------------------------------------------

    def put_shared(
        self,
        checkpoint: int,
        data: bytes | bytearray | memoryview,
        complete: Mapping[bytes, FileRef] | None = None,
    ) -> FileRef:
        """Store an immutable piece under the hash of its content and the checkpoint that writes it.

        `complete` has the pieces of the last complete checkpoint by hash; a piece with the same content is reused.
        """
        digest = hashlib.sha256(data)
        ref = (complete or {}).get(digest.digest())
        if ref is None or not self.has(ref):
            ref = FileRef(path=f"shared/{digest.hexdigest()}-{checkpoint}", bytes=len(data), sha256=digest.digest())
            self._put(checkpoint, ref.path, data)
        return ref

    def put_exclusive(self, checkpoint: int, name: str, data: bytes | bytearray | memoryview) -> FileRef:
        """Store a file that belongs to a single checkpoint."""
        if not is_file_name(name):
            raise ValueError(f"{name!r} cannot be the name of a checkpoint's file")
        ref = FileRef(path=path_in(checkpoint, name), bytes=len(data), sha256=hashlib.sha256(data).digest())
        self._put(checkpoint, ref.path, data)
        return ref

    def _put(self, checkpoint: int, path: str, data: bytes | bytearray | memoryview) -> None:
        if self._spool is not None:
            self._spool.add(checkpoint, path, data, self.upload)
        else:
            self._send(path, data, len(data))
        self.bytes_written += len(data)

    def _send(self, path: str, data: bytes | bytearray | memoryview | Path, size: int) -> None:
        with self._trouble(path, "written"):
            if self._limits is None:
                self._objects.put(path, data)
                return
            with self._limits.writing():
                for begin in range(0, size, _PART_BYTES):
                    self._limits.pay(min(_PART_BYTES, size - begin))
                self._objects.put(path, data)

    def upload(self, checkpoint: int) -> None:
        """Upload the complete files of the spool, several at a time. Raises StoreError if an upload fails."""
        waiting = self._spool.waiting(checkpoint) if self._spool is not None else []
        if len(waiting) > 1:
            with ThreadPoolExecutor(min(UPLOADS, len(waiting)), "checkpoint-upload") as pool:
                try:
                    for done in [pool.submit(self._upload_file, path, file) for path, file in waiting]:
                        done.result()
                except StoreError:
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise
        elif waiting:
            self._upload_file(*waiting[0])

    def _upload_file(self, path: str, file: Path) -> None:
        try:
            self._send(path, file, file.stat().st_size)
            file.unlink()
        except OSError as error:  # the checkpoint was abandoned, and the spool was emptied
            raise StoreError(f"{file} cannot be uploaded ({error.strerror or error})") from error

    def drop(self, checkpoint: int) -> None:
        """Drop the spooled files of a checkpoint, so that they are not uploaded."""
        if self._spool is not None:
            self._spool.drop(checkpoint)

    def copy(self, checkpoint: int, ref: FileRef, source: CheckpointStore) -> None:
        """Copy the file with this reference from another store, and verify it."""
        path = self._path(ref)
        self.pin(checkpoint, [ref])
        file = source.local_path(ref)
        if file is None:
            self._send(path, source.read(ref), ref.bytes)
        else:
            for _ in source.chunks(ref):
                pass
            self._send(path, file, ref.bytes)
        self.bytes_written += ref.bytes

    def pin(self, checkpoint: int, refs: Iterable[FileRef]) -> None:
        """Protect the shared files of a copy from removal by this object, until the copy's metadata is written."""
        self._pins.add(checkpoint, (ref.path for ref in refs if ref.path.startswith("shared/")))

    def write_metadata(self, metadata: Metadata) -> str:
        """Write a checkpoint's metadata, which completes the checkpoint; return its location. Its files must exist."""
        number = metadata.checkpoint
        refs = files_of(metadata)
        found = self._sizes(refs, number)
        for ref in refs:
            if (size := found.get(self._path(ref))) != ref.bytes:
                raise StoreError(f"checkpoint file {self._wrong(ref, size)}")
        path = path_in(number)
        content = b"".join(encode_metadata(metadata))
        with self._trouble(path, "written"):
            try:
                written = self._objects.put_if_absent(path, content)
            except ObjectsError:
                self._take_back(path, content)
                raise
            if not written:
                self._replace_damaged(number, content)
        self.bytes_written += len(content)
        with self._lock:
            self._complete.add(number)
        self._marks[number] = path_in(number, ABANDONED) in found
        self._pins.release(number)
        # Files of lost attempts are no longer needed; a sweep removes any remaining files.
        named = {ref.path for ref in refs} | {path, path_in(number, ABANDONED)}
        folder = folder_name(number)
        with contextlib.suppress(ObjectsError, OSError):
            mine = [key for key in found if key.startswith(f"{folder}/")] + self._unfinished(folder)
            self._objects.delete(key for key in mine if key not in named)
        return str(self.folder / folder)

    def _take_back(self, path: str, content: bytes) -> None:
        """Delete metadata that may not be synced to disk, because a failed checkpoint must not be found later."""
        if not self.is_remote:
            with contextlib.suppress(HeronError):
                if self._objects.get(path) == content:
                    self._objects.delete([path])

    def _replace_damaged(self, number: int, content: bytes) -> None:
        """Replace existing metadata if it is damaged. Raises StoreError if it is intact."""
        try:
            self.load_metadata(number)
        except DamagedFileError:
            self._objects.put(path_in(number), content)
            return
        raise StoreError(f"checkpoint {number} in {self.folder} was written by another process; it is kept")

    def mark_abandoned(self, checkpoint: int, abandoned: bool) -> None:
        """Record in the store whether the topology has abandoned a complete checkpoint for an older checkpoint."""
        path = path_in(checkpoint, ABANDONED)
        with self._trouble(path, "written"):
            if checkpoint not in self._marks:
                self._marks[checkpoint] = self._objects.head(path) is not None
            if self._marks[checkpoint] != abandoned:
                if abandoned:
                    self._objects.put(path, b"")
                else:
                    self._objects.delete([path])
        self._marks[checkpoint] = abandoned

    def is_abandoned(self, checkpoint: int) -> bool:
        """Whether the topology has abandoned the checkpoint for an older checkpoint."""
        return self._objects.head(path_in(checkpoint, ABANDONED)) is not None

    # ---- queries ------------------------------------------------------------------------

    def _path(self, ref: FileRef) -> str:
        if not is_path(ref.path):
            raise DamagedFileError(
                str(self.folder / METADATA), f"names the file {ref.path!r}, which is not a file of a checkpoint"
            )
        return str(ref.path)

    def path_of(self, ref: FileRef) -> Place:
        """Return the path or URL of a file. Raises DamagedFileError for a path outside the topology's folder."""
        return self.folder / self._path(ref)

    def local_path(self, ref: FileRef) -> Path | None:
        """Return the path of the file if it is on this host; otherwise None."""
        path = self.path_of(ref)
        return path if isinstance(path, Path) else None

    def has(self, ref: FileRef) -> bool:
        """Whether a file exists; its content is not checked.

        In an object store, a file counts as existing unless `look_for` in this process has found it missing.
        """
        if self.is_remote:
            return ref.path not in self._lost
        try:
            return self._objects.head(self._path(ref)) == ref.bytes
        except ObjectsError:
            return False

    def look_for(self, refs: Iterable[FileRef]) -> None:
        """Find out in a thread which of these objects are missing, after a checkpoint that reuses them has failed."""
        wanted = [ref for ref in refs if ref.path]
        if wanted and self._looking.acquire(blocking=False):
            threading.Thread(target=self._look_for, args=(wanted,), name="checkpoint-look", daemon=True).start()

    def _look_for(self, refs: list[FileRef]) -> None:
        try:
            self._lost.update(ref.path for ref in self.missing(refs))
        except HeronError as error:
            log.debug("cannot look for the files of a checkpoint: %s", error)
        finally:
            self._looking.release()

    def missing(self, refs: Iterable[FileRef]) -> list[FileRef]:
        """Return the files that are missing or have a different size."""
        refs = list(refs)
        found = self._sizes(refs)
        return [ref for ref in refs if found.get(self._path(ref)) != ref.bytes]

    def problems(self, metadata: Metadata) -> list[str]:
        """Return one sentence per file that is missing or has a different size."""
        refs = files_of(metadata)
        try:
            found = self._sizes(refs)
            sizes = [(ref, found.get(self._path(ref))) for ref in refs]
        except DamagedFileError as error:
            return [str(error)]
        return [self._wrong(ref, size) for ref, size in sizes if size != ref.bytes]

    def _wrong(self, ref: FileRef, size: int | None) -> str:
        what = "is missing" if size is None else f"has {size} bytes instead of {ref.bytes}"
        return f"{self.folder / ref.path} {what}"

    def _sizes(self, refs: Iterable[FileRef], checkpoint: int | None = None) -> dict[str, int]:
        """Return the sizes of all objects in these files' folders; a listing costs less than one request per file."""
        folders = {self._path(ref).split("/", 1)[0] for ref in refs}
        if checkpoint is not None:
            folders.add(folder_name(checkpoint))
        found: dict[str, int] = {}
        for folder in sorted(folders):
            found |= self._listed(folder)
        return found

    def _listed(self, folder: str) -> dict[str, int]:
        with self._trouble(folder, "listed"):
            return self._objects.list(folder).objects

    def _unfinished(self, folder: str) -> list[str]:
        """Return incomplete files of running or killed writers. An object store does not list such files."""
        return unfinished(self.folder, folder) if isinstance(self.folder, Path) else []

    def read(self, ref: FileRef) -> bytes:
        """Return the content of a file. Raises DamagedFileError if the content is not as written."""
        return b"".join(self.chunks(ref))

    def chunks(self, ref: FileRef) -> Iterator[bytes]:
        """Yield a file's content in pieces. The last step raises DamagedFileError if the content is not as written."""
        path = self.path_of(ref)
        return chunks_of(path, ref) if isinstance(path, Path) else verified(str(path), ref, [self._get(ref.path)])

    def _get(self, key: str) -> bytes:
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                return self._objects.get(key)
            except MissingObjectError:
                raise DamagedFileError(str(self.folder / key), "is missing") from None
            except ObjectsError as error:
                # An outage or expired credentials do not mean that the checkpoint is damaged.
                if time.monotonic() > deadline:
                    raise
                log.warning("%s; trying again", error)
                time.sleep(LOOK_S)

    def load_metadata(self, checkpoint: int) -> Metadata:
        """Return the metadata of a complete checkpoint."""
        path = self.folder / path_in(checkpoint)
        if isinstance(path, Path):
            return read_metadata(path, checkpoint)
        return parse_metadata(self._get(path_in(checkpoint)), str(path), checkpoint)

    def size_of_metadata(self, checkpoint: int) -> int:
        """Return the size of the metadata in bytes; 0 if there is no metadata."""
        return self._objects.head(path_in(checkpoint)) or 0

    def exists(self) -> bool:
        """Whether anything was written to this store."""
        if isinstance(self.folder, Path):
            return self.folder.is_dir()
        listed = self._objects.list(deep=False)
        return bool(listed.objects or listed.folders)

    def is_complete(self, checkpoint: int) -> bool:
        """Whether the checkpoint has metadata."""
        return self._objects.head(path_in(checkpoint)) is not None

    def checkpoints(self) -> list[int]:
        """Return the ids of the complete checkpoints, ascending."""
        with self._lock:
            # Checking an object takes a request; checking a file costs nothing.
            known = set(self._complete) if self.is_remote else set()
        numbers = self._numbers()
        there = {number for number in numbers if number in known or self.is_complete(number)}
        with self._lock:
            # Keep a checkpoint that was completed during the loop.
            self._complete = there | self._complete - known
        return sorted(there)

    def _numbers(self) -> list[int]:
        with self._trouble("", "listed"):
            names = self._objects.list(deep=False).folders
        return sorted(number for name in names if (number := number_of(name)) is not None)

    # ---- removing -----------------------------------------------------------------------------

    def delete(self, checkpoint: int) -> None:
        """Remove a checkpoint's objects, metadata first; shared objects are kept."""
        folder = folder_name(checkpoint)
        self._complete.discard(checkpoint)
        self._marks.pop(checkpoint, None)
        with self._trouble(folder, "removed"):
            self._objects.delete([path_in(checkpoint)])
            self._objects.delete([*self._objects.list(folder).objects, *self._unfinished(folder)])

    def discard(self, dropped: Iterable[Metadata], kept: Iterable[Metadata]) -> list[str]:
        """Remove checkpoints, and shared objects that no kept checkpoint names; return the removed shared paths."""
        dropped, kept = list(dropped), list(kept)
        for item in dropped:
            self.delete(item.checkpoint)
        candidates = {ref.path for item in dropped for ref in files_of(item) if ref.path.startswith("shared/")}
        newest = max((item.checkpoint for item in [*dropped, *kept]), default=0)
        return self._remove_shared(candidates, kept, newest + 1)

    def sweep(self, keep: Iterable[Metadata], before: int | None = None) -> list[str]:
        """Remove everything that no kept checkpoint names; return the removed paths.

        Files that checkpoints with an id of `before` or above have written or name are kept, because these checkpoints
        may be in progress. The default of `before` is the id after the newest kept checkpoint.
        """
        keep = list(keep)
        if before is None:
            before = max((item.checkpoint for item in keep), default=0) + 1
        needed = {ref.path for item in keep for ref in files_of(item)}
        needed |= {path_in(item.checkpoint, name) for item in keep for name in (METADATA, ABANDONED)}
        removed: list[str] = []
        trouble: StoreError | None = None
        for number in (number for number in self._numbers() if number < before):
            try:
                removed += self._clear_folder(number, needed)
            except StoreError as error:
                trouble = error  # a file that cannot be removed does not prevent the removal of the others
        with self._trouble("", "removed"):
            if drafts := [path for path in self._unfinished("") if not _written_from(path, before)]:
                self._objects.delete(drafts)
        removed += self._remove_shared(set(self._listed("shared")), keep, before)
        if trouble is not None:
            raise trouble
        return removed

    def _clear_folder(self, number: int, needed: set[str]) -> list[str]:
        """Remove unneeded files from a checkpoint's folder, metadata first."""
        folder = folder_name(number)
        with self._trouble(folder, "removed"):
            doomed = sorted(key for key in self._objects.list(folder).objects if key not in needed)
            if path_in(number) in doomed:
                self._complete.discard(number)
                self._objects.delete([path_in(number)])
            self._objects.delete(doomed)
        return doomed

    def _remove_shared(self, paths: set[str], kept: Iterable[Metadata], before: int) -> list[str]:
        """Remove the shared objects that neither kept checkpoints nor checkpoints with ids >= `before` need."""
        needed = {ref.path for item in kept for ref in files_of(item)}
        for number in self.checkpoints():
            if number >= before:  # it is complete and not yet recorded
                try:
                    needed |= {ref.path for ref in files_of(self.load_metadata(number))}
                except DamagedFileError:
                    return []  # the checkpoint may need any of them
        paths = {path for path in paths - needed if not _written_from(path, before)}
        with self._pins.removing(paths) as doomed, self._trouble("shared", "removed"):
            self._objects.delete(doomed)
        return doomed

    @contextlib.contextmanager
    def _trouble(self, path: str, done: str) -> Iterator[None]:
        try:
            yield
        except ObjectsError as error:
            if self.is_remote:
                where = self.folder / path if path else self.folder
                raise StoreError(f"checkpoint file {where} cannot be {done}: {error}") from error
            room = done == "written" and error.trouble in (Trouble.FULL, Trouble.DENIED)
            raise self._failure(path, done, error.detail, room) from error
        except OSError as error:  # the limits of the store have other files there
            raise self._failure(path, done, error.strerror or str(error), done == "written") from error

    def _failure(self, path: str, done: str, why: str, wants_room: bool) -> StoreError:
        hint = "free space there, or set heron.checkpoint.root to another folder"
        if not wants_room:
            hint = "check the store's file system"
        return StoreError(f"checkpoint file {self.folder / path} cannot be {done} ({why}); {hint}")


def _written_from(path: str, before: int) -> bool:
    """Whether a checkpoint with an id of `before` or above has written this shared or unfinished file."""
    match = _WRITTEN_BY.fullmatch(path)
    return match is not None and int(match[1]) >= before
