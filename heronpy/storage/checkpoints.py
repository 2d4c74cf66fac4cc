"""The files of checkpoints: one folder per topology instance, readable by its owner only.

    chk-<id>/metadata     names every file of the checkpoint, by paths relative to the topology's folder
    chk-<id>/<name>       files of this checkpoint alone
    chk-<id>/abandoned    empty; its topology was sent back to an older checkpoint
    shared/<sha256>       immutable pieces that several checkpoints share
    taskowned/            never touched here

Invariants: a file appears under its final name by one rename, after it is on disk, so it is complete or
absent; a checkpoint exists when its metadata does, and metadata is written last; a path outside the
topology's folder is refused. No clock decides anything here: work in progress lies in the folder of its
checkpoint, whose number tells whether it may continue, and a shared file that it relies on is pinned
there (an empty file `pin-<sha256>`) *before* it checks whether the file exists. A removal of a shared file
first moves it aside, then looks for pins, and puts it back if there is one.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, NoReturn

from heronpy.common.folders import make_folders
from heronpy.proto.checkpoint_pb2 import FileRef, Metadata
from heronpy.storage.checkpoint_files import (
    DamagedFileError,
    FileSource,
    StoreError,
    chunks_of,
    encode_metadata,
    files_of,
    read_metadata,
    write_all,
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
from heronpy.storage.store_limits import StoreLimits

__all__ = [
    "CheckpointStore",
    "DamagedFileError",
    "StoreError",
    "files_of",
]


class CheckpointStore:
    """The checkpoints of one topology instance, in `folder`; safe to use from several processes."""

    #: Whether writing takes a network.
    is_remote: ClassVar[bool] = False

    def __init__(self, folder: str | os.PathLike[str], fsync: bool = True, limits: StoreLimits | None = None) -> None:
        self.folder = Path(folder).absolute()
        self.bytes_written = 0
        """Of all files, by this object."""
        self._fsync = fsync
        self._limits = limits or StoreLimits(self.folder.parent)

    # ---- writing ----------------------------------------------------------------------------

    def put_shared(self, checkpoint: int, data: bytes | bytearray | memoryview) -> FileRef:
        """Store an immutable piece under the hash of its content, unless it is there already."""
        digest = hashlib.sha256(data)
        ref = FileRef(path=f"shared/{digest.hexdigest()}", bytes=len(data), sha256=digest.digest())
        path = self.folder / ref.path
        with self._trouble(path):
            self._make_folder(path.parent)
            self._pin(checkpoint, digest.hexdigest())
            if not self._holds(ref):
                self._write_limited(checkpoint, path, (data,))
        return ref

    def _holds(self, ref: FileRef) -> bool:
        """Whether the content matches, not only the name: a damaged file is replaced when written again."""
        try:
            for _ in chunks_of(self.path_of(ref), ref):
                pass
        except DamagedFileError:
            return False
        return True

    def copy(self, checkpoint: int, ref: FileRef, source: FileSource) -> None:
        """Copy the file with the same reference from another store, and verify it."""
        path = self.path_of(ref)
        with self._trouble(path):
            self._make_folder(path.parent)
            if path.parent.name == "shared":
                self._pin(checkpoint, path.name)
            if not self._holds(ref):
                self._write_limited(checkpoint, path, source.chunks(ref))

    def pin(self, checkpoint: int, refs: Iterable[FileRef]) -> None:
        """Keep shared files that a checkpoint reuses from an older one until its metadata names them."""
        with self._trouble(self._chk(checkpoint)):
            for ref in refs:
                self._pin(checkpoint, self.path_of(ref).name)

    def put_exclusive(self, checkpoint: int, name: str, data: bytes | bytearray | memoryview) -> FileRef:
        """Store a file of a single checkpoint."""
        if not is_file_name(name):
            raise ValueError(f"{name!r} cannot be the name of a checkpoint's file")
        ref = FileRef(path=path_in(checkpoint, name), bytes=len(data), sha256=hashlib.sha256(data).digest())
        path = self.folder / ref.path
        with self._trouble(path):
            self._write_limited(checkpoint, path, (data,))
        return ref

    def write_metadata(self, metadata: Metadata) -> str:
        """Make a checkpoint complete; returns its location. Every file that it names must exist."""
        for ref in files_of(metadata):
            path = self.path_of(ref)
            with self._trouble(path):
                size = self._size_of(path)
            if size != ref.bytes:
                raise StoreError(f"checkpoint file {path} has {size} bytes instead of {ref.bytes}")
        folder = self._chk(metadata.checkpoint)
        path = folder / METADATA
        with self._trouble(path):
            # The folders too: their creator may have died before they were on disk.
            for parent in (self.folder / "shared", self.folder, self.folder.parent):
                if parent.is_dir():
                    self._sync_folder(parent)
            try:
                self._write(metadata.checkpoint, path, encode_metadata(metadata))
            except BaseException:
                # The name may exist already, with only the folder not synced: a failed checkpoint must not be found.
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
                raise
        # From here on the metadata protects its files; pins and files of lost attempts are no longer needed.
        named = {Path(ref.path).name for ref in files_of(metadata)} | {METADATA}
        with contextlib.suppress(OSError):  # a sweep finds what stays
            for name in set(os.listdir(folder)) - named:
                (folder / name).unlink()
        return str(folder)

    def mark_abandoned(self, checkpoint: int, abandoned: bool) -> None:
        """Record on disk whether the topology has abandoned a complete checkpoint for an older one."""
        path = self._chk(checkpoint) / ABANDONED
        if abandoned == path.exists():
            return
        with self._trouble(path):
            if abandoned:
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
            else:
                path.unlink(missing_ok=True)
            self._sync_folder(path.parent)

    def is_abandoned(self, checkpoint: int) -> bool:
        """Whether the topology has abandoned the checkpoint for an older one."""
        return (self._chk(checkpoint) / ABANDONED).exists()

    def has(self, ref: FileRef) -> bool:
        """Whether a file exists; its content is not checked."""
        try:
            return self._size_of(self.path_of(ref)) == ref.bytes
        except OSError:
            return False

    def missing(self, refs: Iterable[FileRef]) -> list[FileRef]:
        """Those that are not there in their size."""
        return [ref for ref in refs if not self.has(ref)]

    def problems(self, metadata: Metadata) -> list[str]:
        """One sentence per file that is missing or has another size."""
        wrong = []
        for ref in files_of(metadata):
            try:
                path = self.path_of(ref)
                size = path.stat().st_size
            except DamagedFileError as error:
                wrong.append(str(error))
            except OSError as error:
                wrong.append(f"{path} cannot be read ({error.strerror})")
            else:
                if size != ref.bytes:
                    wrong.append(f"{path} has {size} bytes instead of {ref.bytes}")
        return wrong

    def _size_of(self, path: Path) -> int:
        try:
            return path.stat().st_size
        except FileNotFoundError:
            # A removal has moved it aside and looks for pins: it will find ours and put the file back.
            with contextlib.suppress(FileNotFoundError, FileExistsError):
                os.link(self.folder / ".trash" / path.name, path)
            return path.stat().st_size

    def _chk(self, checkpoint: int) -> Path:
        return self.folder / folder_name(checkpoint)

    def _make_folder(self, path: Path) -> None:
        if path.is_dir():
            return
        if path != self.folder:
            self._make_folder(self.folder)
        make_folders(path)
        self._sync_folder(path.parent)

    def _pin(self, checkpoint: int, digest: str) -> None:
        folder = self._chk(checkpoint)
        self._make_folder(folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        os.close(os.open(folder / f"pin-{digest}", flags, 0o600))

    def _write_limited(self, checkpoint: int, path: Path, parts: Iterable[bytes | bytearray | memoryview]) -> None:
        """Write a file of state once the store's limits allow it; metadata is small and does not wait."""

        def paid() -> Iterator[bytes | bytearray | memoryview]:
            for part in parts:
                self._limits.pay(len(part))
                yield part

        with self._limits.writing():
            self._write(checkpoint, path, paid())

    def _write(self, checkpoint: int, path: Path, parts: Iterable[bytes | bytearray | memoryview]) -> None:
        folder = self._chk(checkpoint)
        self._make_folder(folder)
        # Random, not the process id: processes of several hosts or containers may share the store.
        temporary = folder / f".tmp-{os.urandom(8).hex()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(temporary, flags, 0o600)
        try:
            try:
                for part in parts:
                    write_all(descriptor, part)
                    self.bytes_written += len(part)
                if self._fsync:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.rename(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        self._sync_folder(path.parent)

    def _sync_folder(self, path: Path) -> None:
        if not self._fsync:
            return
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def _trouble(self, path: Path, done: str = "written") -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._fail(path, error, done)

    @staticmethod
    def _fail(path: Path, error: OSError, done: str = "written") -> NoReturn:
        reason = error.strerror or str(error)
        hint = "look at the store's file system"
        if done == "written" and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM):
            hint = "free space there, or set heron.checkpoint.root to another folder"
        raise StoreError(f"checkpoint file {path} cannot be {done} ({reason}); {hint}") from error

    # ---- reading ----------------------------------------------------------------------------

    def path_of(self, ref: FileRef) -> Path:
        """The path of a file; one that leaves the topology's folder is refused."""
        if not is_path(ref.path):
            raise DamagedFileError(
                self.folder / METADATA, f"names the file {ref.path!r}, which is not a file of a checkpoint"
            )
        return self.folder / ref.path

    def local_path(self, ref: FileRef) -> Path | None:
        """The file itself."""
        return self.path_of(ref)

    def chunks(self, ref: FileRef) -> Iterator[bytes]:
        """The verified content of a file, piece by piece."""
        return chunks_of(self.path_of(ref), ref)

    def read(self, ref: FileRef) -> bytes:
        """The content of a file; DamagedFileError if it differs from what was written."""
        return b"".join(chunks_of(self.path_of(ref), ref))

    def load_metadata(self, checkpoint: int) -> Metadata:
        """The metadata of a complete checkpoint."""
        return read_metadata(self._chk(checkpoint) / METADATA, checkpoint)

    def size_of_metadata(self, checkpoint: int) -> int:
        """Bytes of the metadata itself; 0 if there is none."""
        path = self._chk(checkpoint) / METADATA
        return path.stat().st_size if path.is_file() else 0

    def exists(self) -> bool:
        """Whether anything was written here."""
        return self.folder.is_dir()

    def is_complete(self, checkpoint: int) -> bool:
        """Whether the checkpoint has metadata."""
        return (self._chk(checkpoint) / METADATA).is_file()

    def checkpoints(self) -> list[int]:
        """Ids of the complete checkpoints, ascending."""
        return [number for number in self._folders() if self.is_complete(number)]

    def _folders(self) -> list[int]:
        names = os.listdir(self.folder) if self.folder.is_dir() else []
        return sorted(number for name in names if (number := number_of(name)) is not None)

    # ---- removing ---------------------------------------------------------------------------

    def delete(self, checkpoint: int) -> None:
        """Remove a checkpoint's folder, its metadata first; shared files stay."""
        folder = self._chk(checkpoint)
        with self._trouble(folder, "removed"):
            with contextlib.suppress(FileNotFoundError):
                (folder / METADATA).unlink()
                self._sync_folder(folder)
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(folder)

    def discard(self, dropped: Iterable[Metadata], kept: Iterable[Metadata]) -> list[str]:
        """Remove checkpoints and the shared files that only they name; returns the removed paths."""
        dropped, kept = list(dropped), list(kept)
        candidates = {ref.path for item in dropped for ref in files_of(item)}
        needed = {ref.path for item in kept for ref in files_of(item)}
        for item in dropped:
            self.delete(item.checkpoint)
        # `kept` may lack a checkpoint that has just completed, and those in progress.
        newest = max((item.checkpoint for item in [*dropped, *kept]), default=0)
        shared = [path for path in candidates - needed if path.startswith("shared/")]
        return self._remove_shared(shared, newest + 1)

    def sweep(self, keep: Iterable[Metadata], before: int | None = None) -> list[str]:
        """Remove everything that no kept checkpoint names; returns the removed paths.

        Folders with an id of `before` or above (by default: above the newest kept one) may belong to
        checkpoints in progress: they stay, with the shared files that they pin or name.
        """
        keep = list(keep)
        if before is None:
            before = max((item.checkpoint for item in keep), default=0) + 1
        needed = {ref.path for item in keep for ref in files_of(item)}
        needed |= {path_in(item.checkpoint, name) for item in keep for name in (METADATA, ABANDONED)}
        removed: list[str] = []
        trouble: StoreError | None = None
        for number in (number for number in self._folders() if number < before):
            try:
                removed += self._clear_folder(self._chk(number), needed)
            except StoreError as error:
                trouble = error  # one file that cannot be removed does not keep the others
        self._empty_trash()
        shared = self.folder / "shared"
        names = sorted(os.listdir(shared)) if shared.is_dir() else []
        paths = [f"shared/{name}" for name in names if f"shared/{name}" not in needed]
        removed += self._remove_shared(paths, before)
        if trouble is not None:
            raise trouble
        return removed

    def _clear_folder(self, folder: Path, needed: set[str]) -> list[str]:
        """Remove what is not needed from the folder of a checkpoint, its metadata first."""
        removed = []
        with self._trouble(folder, "removed"):
            doomed = [name for name in os.listdir(folder) if f"{folder.name}/{name}" not in needed]
            for name in sorted(doomed, key=lambda name: name != METADATA):
                (folder / name).unlink(missing_ok=True)
                removed.append(f"{folder.name}/{name}")
            if not os.listdir(folder):
                folder.rmdir()
        return removed

    def _remove_shared(self, paths: Iterable[str], before: int) -> list[str]:
        """Remove shared files that nothing in progress (ids from `before` on) needs."""
        paths = set(paths)
        # A first check, so that a file that is certainly needed is never missing, not even for a moment.
        paths -= self._wanted(before, paths)
        aside: dict[str, Path] = {}
        trash = self.folder / ".trash"
        with self._trouble(trash, "removed"):
            for path in paths:
                self._make_folder(trash)
                with contextlib.suppress(FileNotFoundError):
                    target = trash / Path(path).name
                    os.rename(self.folder / path, target)
                    aside[path] = target
            # Only now: a writer that pinned a file before the move needs it; one that pins it later
            # sees that it is gone and writes it again.
            wanted = self._wanted(before, set(aside)) if aside else set()
            for path, target in aside.items():
                if path in wanted:
                    with contextlib.suppress(FileExistsError):
                        os.link(target, self.folder / path)
                target.unlink(missing_ok=True)
        return [path for path in aside if path not in wanted]

    def _wanted(self, before: int, paths: set[str]) -> set[str]:
        """Which of the paths a folder in progress pins, or a complete checkpoint not yet recorded names."""
        wanted = set()
        for number in (number for number in self._folders() if number >= before):
            folder = self._chk(number)
            with contextlib.suppress(FileNotFoundError):
                pins = (name[4:] for name in os.listdir(folder) if name.startswith("pin-"))
                wanted |= {f"shared/{digest}" for digest in pins}
            # After the pins, because the metadata is written before they go.
            if (folder / METADATA).exists():
                try:
                    wanted |= {ref.path for ref in files_of(self.load_metadata(number))}
                except DamagedFileError:
                    return paths  # it may need any of them
        return wanted & paths

    def _empty_trash(self) -> None:
        """Put back what an interrupted removal had moved aside; the sweep decides again."""
        trash = self.folder / ".trash"
        with self._trouble(trash, "removed"):
            for name in os.listdir(trash) if trash.is_dir() else []:
                with contextlib.suppress(FileExistsError):
                    os.link(trash / name, self.folder / "shared" / name)
                (trash / name).unlink(missing_ok=True)
