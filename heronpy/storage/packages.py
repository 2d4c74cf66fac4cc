"""The package cache: user code, stored once per host under the sha256 of its content.

`<root>/<sha256>/` contains the unpacked package. Unfinished entries are in `<root>/.tmp`; the next process that stores
the same package removes them.

Invariants: an entry appears by one rename, so it is complete or absent, even after a crash; processes that add the same
package concurrently unpack it once; heronpy never changes an entry; an entry that another program has changed, or that
belongs to another user, is refused (see `package_manifest`).
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import io
import logging
import os
import re
import shutil
import tempfile
import time
import zipfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Final

from msgspec import Struct

from heronpy.common.errors import PackageError
from heronpy.common.flock import lock_file, unlock
from heronpy.common.folders import absolute, check_root, make_folders, open_private, sync_path
from heronpy.storage import package_manifest
from heronpy.storage.sources import Caps, Entry, PlainFile, Source, Tar, Zip, source_of, unpack

log = logging.getLogger("heronpy.storage")

FILES_MAX: Final = 100_000
BYTES_MAX: Final = 4 * 1024**3
LOCK_TIMEOUT_S: Final = 600.0
_FSYNC_EACH_MAX: Final = 500
#: Maximum number of reads of an archive that does not match the announced digest.
FETCHES: Final = 2
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_REGULAR: Final = 0o100600 << 16


def archive_in(entry: Path) -> Path:
    return entry / _name(entry.name)


def _name(digest: str) -> str:
    # The digest avoids clashes with the user's files.
    return f"topology-{digest[:12]}.pex"


class Archived:
    """A package with its archive, for tasks that load classes from the archive; its digest differs from the source's.

    Apache Heron gives tasks the path of the submitted .pex, with the content unpacked next to it; user code opens the
    file with `zipfile`, imports from it with `zipimport`, or reads data from its folder. Here the archive is an
    additional file in the package's cache entry: the submitted zip or pex unchanged, otherwise a zip of the
    files. Invariant: equal content gives equal bytes, so that an entry can be checked.
    """

    def __init__(self, source: Source, path: Path) -> None:
        self._source = source
        self._path = path

    def digest(self) -> str:
        return hashlib.sha256(f"archived\0{self._source.digest()}".encode()).hexdigest()

    def entries(self) -> Iterator[Entry]:
        yield from self._source.entries()
        name = _name(self.digest())
        if isinstance(self._source, Zip):
            yield Entry(name, open=partial(io.FileIO, self._path))
            return
        with tempfile.TemporaryFile() as made:
            _zip(self._source, made)
            yield Entry(name, open=partial(_from_begin, made))


def _from_begin(file: IO[bytes]) -> IO[bytes]:
    """Return the rewound file, which the caller reads and closes."""
    file.seek(0)
    return os.fdopen(os.dup(file.fileno()), "rb")


def _zip(source: Source, into: IO[bytes]) -> None:
    """Write a source's files to a zip archive; a link to a file becomes that file, a link to a folder is omitted."""
    links: dict[str, str] = {}
    with zipfile.ZipFile(into, "w") as archive:
        for entry in source.entries():
            if entry.target is not None:
                links[entry.name] = entry.target
            elif entry.open is not None:
                with entry.open() as opened, archive.open(_info(entry.name), "w", force_zip64=True) as written:
                    shutil.copyfileobj(opened, written)
        known = set(archive.namelist())
        for name, target in links.items():
            if target in known and name not in known:
                archive.writestr(_info(name), archive.read(target))


def _info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(os.fsencode(name).decode(errors="replace"), _EPOCH)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = _REGULAR
    return info


class Package(Struct, frozen=True):
    sha256: str
    dir: Path
    """Directory to insert into sys.path."""
    main_file: Path | None
    """The file to load as `__main__`, when the user submitted a plain Python file."""


class WithoutBytecode:
    """A source without Python's bytecode, which each host generates."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def digest(self) -> str:
        return self._source.digest()

    def entries(self) -> Iterator[Entry]:
        return (one for one in self._source.entries() if "__pycache__" not in one.name.split("/"))


class PackageStore:
    """The package cache below `root`."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        files_max: int = FILES_MAX,
        bytes_max: int = BYTES_MAX,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
    ) -> None:
        self._root = absolute(root)
        self._caps = Caps(files_max, bytes_max)
        self._lock_timeout_s = lock_timeout_s

    def add(self, path: str | os.PathLike[str], archived: bool = False) -> Package:
        """Store the submitted code, unless it is already stored.

        A plain .py file is stored alone: it can import installed modules but not adjacent files; to import these,
        submit the directory. A directory with an `__init__.py` is stored under its own name, so that `import directory`
        works; for any other directory the content is stored, as if Python had started in the directory. Directories are
        stored without caches, version control and virtual environments (`sources.EXCLUDED`). Archives (zip, pex, tar)
        are unpacked without caches; the dependencies inside a pex are placed next to the user's code. No code of the
        package is executed. With `archived`, the entry also contains an archive of the package, at
        `archive_in(package.dir)`.
        """
        submitted = absolute(path)
        check_root(self._root, "the package cache")
        with self._trouble(submitted):
            source: Source = source_of(submitted, self._caps)
            main_name = submitted.name if isinstance(source, PlainFile) else None
            if archived:
                source = Archived(source, submitted)
            sha256 = source.digest()
            entry = self._root / sha256
            main_file = entry / main_name if main_name else None
            with self._locked(sha256):
                if os.path.lexists(entry):
                    self._check(entry, source, submitted, sha256)
                    os.utime(entry)  # `prune` uses the time of the last use
                else:
                    self._make(entry, lambda temporary: self._unpack(source, submitted, sha256, temporary))
        return Package(sha256, entry, main_file)

    def _make(self, entry: Path, write: Callable[[Path], None]) -> None:
        """Write a package under a temporary name, and rename it once it is completely on disk."""
        temporary = self._root / ".tmp" / entry.name
        try:
            write(temporary)
            _sync(temporary)
            package_manifest.write(temporary, self._manifest(entry.name))
            os.rename(temporary, entry)
        except BaseException:
            _remove(temporary)
            raise
        sync_path(self._root)

    def fetch(self, sha256: str, read: Callable[[int], bytes], size: int, digest: bytes) -> Path:
        """Fetch the entry `sha256` from another host, unless it is already stored; return the path of the entry.

        `read(offset)` returns the bytes from `offset` on of a tar file, and no bytes at its end. The file has `size`
        bytes and the sha256 `digest`.
        A damaged archive is read again. If several processes fetch the same package, only the first one reads. Raises
        PackageError if the stored entry has changed, or the archive does not match its size and digest.
        """
        if not _SHA256.fullmatch(sha256):
            raise PackageError(f"package {sha256[:80]!r} is not named by its digest; submit the topology again")
        check_root(self._root, "the package cache")
        entry = self._root / sha256
        with self._trouble(entry):
            with self._locked(sha256):
                expected = package_manifest.read(self._manifest(sha256))
                if os.path.lexists(entry) and expected is not None:
                    package_manifest.check_entry(entry)
                    package_manifest.compare(entry, expected)
                    os.utime(entry)  # `prune` uses the time of the last use
                    return entry
                archive = self._root / ".tmp" / f"{sha256}.tar"

                def write(temporary: Path) -> None:
                    for left in (temporary, entry):  # left by a process that died
                        _remove(left)
                    self._receive(sha256, archive, read, size, digest)
                    unpack(WithoutBytecode(Tar(archive, self._caps)), temporary, self._caps)

                try:
                    self._make(entry, write)
                finally:
                    archive.unlink(missing_ok=True)
        return entry

    def _receive(self, sha256: str, archive: Path, read: Callable[[int], bytes], size: int, digest: bytes) -> None:
        if size > self._caps.bytes:
            raise PackageError(f"package {sha256} has {size} bytes, more than {self._caps.bytes}; leave some files out")
        for tried in range(1, FETCHES + 1):
            archive.unlink(missing_ok=True)
            got, found = 0, hashlib.sha256()
            with open(open_private(archive, os.O_WRONLY | os.O_EXCL), "wb") as file:
                while got <= size and (piece := read(got)):
                    file.write(piece)
                    found.update(piece)
                    got += len(piece)
            if got == size and hmac.compare_digest(found.digest(), digest):
                return
            what = f"with {got} of {size} bytes" if got != size else f"with digest {found.hexdigest()[:16]}"
            log.warning(
                "package %s arrived %s, which differs from the announcement (attempt %d of %d)",
                sha256,
                what,
                tried,
                FETCHES,
            )
        raise PackageError(
            f"package {sha256} arrived damaged {FETCHES} times: its archive arrived {what}, but {size} bytes of digest"
            f" {digest.hex()[:16]} were announced; check the network and the disks of both hosts, or submit again"
        )

    def _unpack(self, source: Source, submitted: Path, sha256: str, temporary: Path) -> None:
        _remove(temporary)  # left by a process that died
        unpack(WithoutBytecode(source), temporary, self._caps)
        if source.digest() != sha256:
            raise PackageError(f"{submitted} changed while it was read; submit again")

    def _check(self, entry: Path, source: Source, submitted: Path, sha256: str) -> None:
        """Raise PackageError if an entry has changed; an entry without a manifest is compared with the source."""
        package_manifest.check_entry(entry)
        manifest = self._manifest(sha256)
        expected = package_manifest.read(manifest)
        if expected is not None:
            package_manifest.compare(entry, expected)
            return
        temporary = self._root / ".tmp" / sha256
        try:
            self._unpack(source, submitted, sha256, temporary)
            package_manifest.write(temporary, manifest)
            package_manifest.compare(entry, package_manifest.read(manifest) or {})
        except BaseException:
            manifest.unlink(missing_ok=True)
            raise
        finally:
            _remove(temporary)

    def _manifest(self, sha256: str) -> Path:
        return self._root / package_manifest.FOLDER / f"{sha256}.json"

    def prune(self, in_use: Collection[str], unused_s: float) -> list[str]:
        """Remove entries not in `in_use` that were added or fetched over `unused_s` ago; return their names."""
        removed = []
        with self._trouble(self._root):
            names = os.listdir(self._root) if self._root.is_dir() else []
            for sha256 in sorted(name for name in names if _SHA256.fullmatch(name)):
                if sha256 in in_use:
                    continue
                with self._locked(sha256, last=True):
                    entry = self._root / sha256
                    if entry.is_dir() and time.time() - entry.stat().st_mtime >= unused_s:
                        doomed = self._root / ".tmp" / sha256
                        _remove(doomed)
                        os.rename(entry, doomed)
                        _remove(doomed)
                        self._manifest(sha256).unlink(missing_ok=True)
                        removed.append(sha256)
        return removed

    @contextmanager
    def _trouble(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            where = error.filename or self._root
            reason = error.strerror or str(error)
            raise PackageError(f"package {path} cannot be stored: {where}: {reason}") from error

    @contextmanager
    def _locked(self, sha256: str, last: bool = False) -> Iterator[None]:
        """Lock an entry exclusively, and create missing folders; `last` removes the lock file afterwards."""
        for name in (".tmp", ".locks", package_manifest.FOLDER):
            make_folders(self._root / name)
        file = self._root / ".locks" / f"{sha256}.lock"
        deadline = time.monotonic() + self._lock_timeout_s
        pause = 0.002
        while (descriptor := lock_file(file)) < 0:
            if time.monotonic() >= deadline:
                raise PackageError(f"{file} has been locked for {self._lock_timeout_s:g} s; look for a stopped process")
            time.sleep(pause)
            pause = min(pause * 2, 0.05)
        try:
            yield
        finally:
            if last:
                file.unlink(missing_ok=True)
            unlock(descriptor)


def _remove(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)


def _sync(directory: Path) -> None:
    """Sync a directory with all its content, before a rename marks it as complete."""
    paths = [directory]
    for parent, directories, files in os.walk(directory):
        paths += [Path(parent) / name for name in directories + files]
    if len(paths) > _FSYNC_EACH_MAX:
        os.sync()
        return
    for path in paths:
        if not path.is_symlink():
            sync_path(path)
