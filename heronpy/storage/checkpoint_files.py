"""Encodes, reads and checks the content of a checkpoint's files; see checkpoints.py for the layout.

Metadata has a header (magic, format, length and sha256 of the body) and a body, the protobuf message `Metadata`.
Invariant: any damage to a file raises a DamagedFileError that names the file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import stat
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError

from heronpy.common.errors import HeronError, RetryableError
from heronpy.common.folders import WRITABLE_BY_OTHERS
from heronpy.proto.checkpoint_pb2 import FileRef, Metadata

FORMAT: Final = 2
_MAGIC: Final = b"HERONCKP"
_HEAD: Final = struct.Struct("<8sIQ32s")
_CHUNK: Final = 1 << 20
#: Flags that neither follow a link nor wait for the other end of a pipe.
_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_FOLDER: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY
_CHANGED: Final = "has changed since it was written (its checksum differs)"


class StoreError(RetryableError):
    """A checkpoint file cannot be written or removed now; a later checkpoint may succeed."""


class DamagedFileError(HeronError):
    """A file of a checkpoint is missing, or differs from the content that was written."""

    def __init__(self, path: str | os.PathLike[str], what: str) -> None:
        super().__init__(f"checkpoint file {os.fspath(path)} {what}")
        self.path = os.fspath(path)
        self.what = what


def chunks_of(path: Path, ref: FileRef) -> Iterator[bytes]:
    """Yield a file's content in pieces. The last step raises DamagedFileError if the content does not match `ref`."""
    return verified(path, ref, _chunks(path, ref.bytes))


def verified(path: str | os.PathLike[str], ref: FileRef, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the chunks. The last step raises DamagedFileError if all chunks together do not match `ref`."""
    digest, size = hashlib.sha256(), 0
    for chunk in chunks:
        digest.update(chunk)
        size += len(chunk)
        yield chunk
    if size != ref.bytes:
        raise DamagedFileError(path, f"has {size} bytes instead of {ref.bytes}")
    if digest.digest() != ref.sha256:
        raise DamagedFileError(path, _CHANGED)


def _chunks(path: Path, size: int) -> Iterator[bytes]:
    with _reading(path):
        descriptor = os.open(path, _READ)
    try:
        actual = os.fstat(descriptor).st_size
        if actual != size:
            raise DamagedFileError(path, f"has {actual} bytes instead of {size}")
        while chunk := _next(descriptor, path):
            yield chunk
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn an OSError from opening a file into a DamagedFileError."""
    try:
        yield
    except FileNotFoundError:
        raise DamagedFileError(path, "is missing") from None
    except OSError as error:
        raise DamagedFileError(path, f"cannot be read ({error.strerror or error})") from error


def _next(descriptor: int, path: Path) -> bytes:
    try:
        return os.read(descriptor, _CHUNK)
    except OSError as error:
        raise DamagedFileError(path, f"cannot be read ({error.strerror or error})") from error


@contextlib.contextmanager
def open_metadata(path: Path) -> Iterator[int]:
    """Open metadata that only this user or root has written or can replace.

    Saved values may be pickles. Metadata contains the hash of every other file, so only metadata must belong to the
    restoring user. Each folder on the path from the store is opened from its parent and checked by descriptor: even if
    another user links or renames files during the check, the checked file is the file that is read.
    """
    held: list[int] = []
    try:
        with _reading(path):
            held.append(os.open(path.parent.parent, _FOLDER))
            store = os.open("..", _FOLDER, dir_fd=held[0])
            held.append(store)
            _check(store, path.parent.parent.parent, sticky=True)
            _check(held[0], path.parent.parent)
            held.append(os.open(path.parent.name, _FOLDER | os.O_NOFOLLOW, dir_fd=held[0]))
            _check(held[-1], path.parent)
            held.append(os.open(path.name, _READ, dir_fd=held[-1]))
            _check(held[-1], path)
        yield held[-1]
    finally:
        for descriptor in held:
            os.close(descriptor)


def _check(descriptor: int, path: Path, sticky: bool = False) -> None:
    """Raise DamagedFileError if another user owns the open file, or may write to it.

    `sticky` is for the store itself: any user may own it, but only trusted users may replace its content.
    """
    status = os.fstat(descriptor)
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise DamagedFileError(path, "is not a file")
    if not sticky and status.st_uid not in (os.geteuid(), 0):
        raise DamagedFileError(
            path, f"belongs to another user (uid {status.st_uid}), so it is not restored; make a copy that you own"
        )
    if status.st_mode & WRITABLE_BY_OTHERS and not (sticky and status.st_mode & stat.S_ISVTX):
        raise DamagedFileError(
            path, f"can be changed by other users, so it is not restored; run: chmod go-w {shlex.quote(str(path))}"
        )


def encode_metadata(metadata: Metadata) -> tuple[bytes, bytes]:
    """Return the content of a metadata file: header and body."""
    body = metadata.SerializeToString(deterministic=True)
    return _HEAD.pack(_MAGIC, FORMAT, len(body), hashlib.sha256(body).digest()), body


def read_metadata(path: Path, checkpoint: int) -> Metadata:
    """Return a checkpoint's metadata, after checking owner and checksum."""
    with open_metadata(path) as descriptor:
        data = b"".join(iter(lambda: _next(descriptor, path), b""))
    return parse_metadata(data, path, checkpoint)


def parse_metadata(data: bytes, path: str | os.PathLike[str], checkpoint: int) -> Metadata:
    """Return a checkpoint's metadata from the content of the file; errors name `path`."""
    if len(data) < _HEAD.size:
        raise DamagedFileError(path, f"has {len(data)} bytes, too few for metadata")
    magic, version, length, digest = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    if magic != _MAGIC:
        raise DamagedFileError(path, "is not the metadata of a checkpoint")
    if version != FORMAT:
        raise DamagedFileError(path, f"has format {version}, but this release of heronpy reads format {FORMAT}")
    if len(body) != length:
        raise DamagedFileError(path, f"contains {len(body)} bytes of metadata instead of {length}")
    if hashlib.sha256(body).digest() != digest:
        raise DamagedFileError(path, _CHANGED)
    try:
        metadata = Metadata.FromString(body)
    except DecodeError:
        raise DamagedFileError(path, "cannot be parsed") from None
    if metadata.checkpoint != checkpoint:
        raise DamagedFileError(path, f"has the metadata of checkpoint {metadata.checkpoint}")
    return metadata


def files_of(metadata: Metadata) -> list[FileRef]:
    """Return the distinct files that a checkpoint needs in addition to its metadata."""
    found: dict[str, FileRef] = {}
    for task in metadata.tasks:
        refs = [segment.file for keyed in task.keyed for segment in keyed.segments]
        for ref in (task.state_file, task.channel_file, *refs):
            if ref.path:
                found[ref.path] = ref
    return list(found.values())
