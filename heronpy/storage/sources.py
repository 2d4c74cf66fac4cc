"""The sources that a user may submit, as streams of entries: a file, a directory, a zip, pex or tar.

Each source has a digest and entries; `unpack` writes entries below a directory. Invariants: no names or links in an
archive can make `unpack` write outside that directory, because every name is checked before use, and links are created
last and only to unpacked entries; the limits on entries and bytes apply to the data that is read, not to the sizes in a
header.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import os
import posixpath
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from heronpy.common.errors import PackageError
from heronpy.common.folders import make_folders
from heronpy.common.log_format import is_plain

EXCLUDED: Final = frozenset(
    {"__pycache__", ".git", ".hg", ".svn", ".venv", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
)
"""Names that are left out of a directory."""

_CHUNK: Final = 1024 * 1024
_DEPTH_MAX: Final = 100
_CHAIN_MAX: Final = 40
_PEX_DEPENDENCIES: Final = ".deps/"


class Entry(Struct, frozen=True):
    """One entry to unpack: a file (`open`), a link (`target`) or, without either, a directory."""

    name: str
    open: Callable[[], IO[bytes]] | None = None
    executable: bool = False
    target: str | None = None
    """The target of a link, relative to the root of the package."""
    hard: bool = False
    optional: bool = False
    """Whether to skip the entry if one with the same name is already unpacked."""


class Source(Protocol):
    """Code that a user submits."""

    def digest(self) -> str:
        """Return the sha256 of the content, in hexadecimal."""

    def entries(self) -> Iterator[Entry]:
        """Yield the entries to unpack."""


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Caps(Struct, frozen=True):
    """Limits on the content of one package."""

    files: int
    bytes: int


class PlainFile:
    """One Python file; the file's name counts as content, because it names the module."""

    def __init__(self, path: Path, caps: Caps) -> None:
        self._path = path
        self._caps = caps

    def digest(self) -> str:
        found = hashlib.sha256(f"file\0{self._path.name}\0".encode())
        _hash_file(self._path, found, self._caps)
        return found.hexdigest()

    def entries(self) -> Iterator[Entry]:
        yield Entry(self._path.name, open=partial(io.FileIO, self._path))


class Directory:
    """A submitted directory. A directory that is a Python package keeps its name."""

    def __init__(self, path: Path, caps: Caps) -> None:
        self._path = path
        self._caps = caps
        is_package = (path / "__init__.py").is_file()
        self._prefix = f"{path.resolve().name}/" if is_package else ""

    def digest(self) -> str:
        found = hashlib.sha256(b"directory\0")
        left = Caps(self._caps.files, self._caps.bytes)
        for entry in self.entries():
            kind = "f" if entry.open else f"l{entry.target}" if entry.target is not None else "d"
            found.update(f"{entry.name}\0{kind}\0{entry.executable}\0".encode(errors="surrogateescape"))
            left = Caps(left.files - 1, left.bytes)
            if left.files < 0:
                raise _too_many(self._path, self._caps)
            if entry.open:
                content = hashlib.sha256()
                with entry.open() as opened:
                    left = Caps(left.files, left.bytes - _feed(opened, content.update, left.bytes))
                if left.bytes < 0:
                    raise _too_large(self._path, self._caps)
                found.update(content.digest())
        return found.hexdigest()

    def entries(self) -> Iterator[Entry]:
        if self._prefix:
            yield Entry(self._prefix.rstrip("/"))
        yield from self._walk(self._path, self._prefix)

    def _walk(self, directory: Path, prefix: str) -> Iterator[Entry]:
        if prefix.count("/") > _DEPTH_MAX:
            raise PackageError(f"{directory} is nested too deeply; move it up")
        with os.scandir(directory) as scan:
            found = sorted(scan, key=lambda item: item.name)
        for item in found:
            name, path = prefix + item.name, Path(item.path)
            if item.name in EXCLUDED:
                continue
            if item.is_symlink():
                yield Entry(name, target=self._link(path, name))
            elif item.is_dir(follow_symlinks=False):
                yield Entry(name)
                yield from self._walk(path, f"{name}/")
            elif item.is_file(follow_symlinks=False):
                executable = bool(item.stat(follow_symlinks=False).st_mode & stat.S_IXUSR)
                yield Entry(name, open=partial(io.FileIO, path), executable=executable)
            else:
                raise PackageError(f"{path} is neither a file nor a directory; remove it from the package")

    def _link(self, path: Path, name: str) -> str:
        """Return the target of a link inside the directory, as a name in the package."""
        root = os.path.realpath(self._path)
        real = os.path.realpath(path)
        if not os.path.exists(real) or os.path.commonpath([root, real]) != root or real == root:
            raise PackageError(
                f"{path} is a link that leads out of the package; replace {name!r} with the link's target"
            )
        return self._prefix + os.path.relpath(real, root)


class _Archive:
    """The common part of zip and tar; the digest is the digest of the archive file."""

    def __init__(self, path: Path, caps: Caps) -> None:
        self._path = path
        self._caps = caps

    def digest(self) -> str:
        found = hashlib.sha256()
        _hash_file(self._path, found, self._caps)
        return found.hexdigest()


class Zip(_Archive):
    """A zip, wheel or pex; the dependencies inside a pex are placed next to the user's code."""

    def entries(self) -> Iterator[Entry]:
        with zipfile.ZipFile(self._path) as archive:
            members = archive.infolist()
            is_pex = any(member.filename == "PEX-INFO" for member in members)
            if is_pex:  # so that the user's own files win over those of dependencies
                members.sort(key=lambda member: member.filename.startswith(_PEX_DEPENDENCIES))
            for member in members:
                entry = self._entry(archive, member)
                if not (is_pex and entry.name.startswith(_PEX_DEPENDENCIES)):
                    yield entry
                elif name := _without_dependency(entry.name):
                    target = _without_dependency(entry.target) if entry.target else None
                    yield replace(entry, name=name, target=target, optional=True)
                elif entry.open:
                    raise PackageError(
                        f"{entry.name!r} in the pex is packed; build the pex with --layout zipapp, or submit a zip"
                    )

    def _entry(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Entry:
        # zipfile cuts a name at NUL and rewrites separators; check the name in the archive itself.
        name = member.orig_filename
        mode = member.external_attr >> 16
        if member.is_dir() or stat.S_ISDIR(mode):
            return Entry(name.rstrip("/") if name.strip("/") else name)
        if stat.S_ISLNK(mode):
            with archive.open(member) as opened:
                text = opened.read(4096).decode("utf-8", "surrogateescape")
            return Entry(name, target=_link_target(name, text))
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            raise PackageError(f"{name!r} in the package is a device or pipe; remove it")
        return Entry(name, open=lambda: archive.open(member), executable=bool(mode & stat.S_IXUSR))


class Tar(_Archive):
    """A tar archive, compressed or not."""

    def entries(self) -> Iterator[Entry]:
        with tarfile.open(self._path, "r:*") as archive:
            for member in archive:
                yield self._entry(archive, member)
            # The checksum of a compressed archive is at its end, which tarfile does not read.
            if archive.fileobj and _feed(archive.fileobj, len, self._caps.bytes) > self._caps.bytes:
                raise _too_large(self._path, self._caps)

    def _entry(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> Entry:
        name = member.name.removeprefix("./")
        if member.isdir():
            return Entry(name)
        if member.issym():
            return Entry(name, target=_link_target(name, member.linkname))
        if member.islnk():
            return Entry(name, target=_inside(name, member.linkname.removeprefix("./")), hard=True)
        if not member.isreg():
            raise PackageError(f"{name!r} in the package is a device or pipe; remove it")
        executable = bool(member.mode & stat.S_IXUSR)
        return Entry(name, open=lambda: archive.extractfile(member) or io.BytesIO(), executable=executable)


def _without_dependency(name: str) -> str:
    """Return `<rest>` of `.deps/<distribution>/<rest>`; may be empty."""
    return name.removeprefix(_PEX_DEPENDENCIES).partition("/")[2]


def source_of(path: Path, caps: Caps) -> Source:
    """Return the source for a submitted path."""
    if path.is_dir():
        return Directory(path, caps)
    if not path.is_file():
        what = "is not a file or directory" if path.exists() else "does not exist"
        raise PackageError(f"package {path} {what}")
    if path.suffix == ".py":
        return PlainFile(path, caps)
    if zipfile.is_zipfile(path):
        return Zip(path, caps)
    if _is_tar(path):
        return Tar(path, caps)
    raise PackageError(f"package {path} cannot be run; submit a .py file, a directory, or a zip, pex or tar archive")


def _is_tar(path: Path) -> bool:
    try:
        return tarfile.is_tarfile(path)
    except (EOFError, ValueError, OverflowError, zlib.error, lzma.LZMAError):
        # tarfile reads only part of a compressed archive that is truncated or damaged.
        return False


def unpack(source: Source, destination: Path, caps: Caps) -> None:
    """Write the entries of a source below a new directory."""
    destination.mkdir(mode=0o700)
    links: list[Entry] = []
    files, left = 0, caps.bytes
    current = ""
    with _named(lambda: current):
        for entry in source.entries():
            current = entry.name
            files += 1
            if files > caps.files:
                raise _too_many(destination, caps)
            path = destination / _check_name(entry.name)
            if entry.target is not None:
                links.append(entry)
            elif entry.open is None:
                _make_directory(destination, path)
            else:
                _make_directory(destination, path.parent)
                if os.path.lexists(path):
                    if entry.optional:
                        continue
                    raise PackageError(f"{entry.name!r} is in the package twice; remove one of the two")
                with entry.open() as opened:
                    left -= _write(opened, path, entry.executable, left)
                if left < 0:
                    raise _too_large(destination, caps)
        targets = {entry.name: entry.target for entry in links if entry.target is not None}
        for entry in links:
            current = entry.name
            _make_link(destination, entry, targets)


@contextmanager
def _named(current: Callable[[], str]) -> Iterator[None]:
    """Turn errors of the archive libraries into PackageErrors that name the current entry."""
    try:
        yield
    except PackageError:
        raise
    except Exception as error:
        # The exceptions of zipfile, tarfile and zlib for a damaged or encrypted archive are undocumented; an OSError
        # with a number comes from the disk instead.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise PackageError(f"the package is damaged or encrypted after entry {current()!r}: {error}") from error


def _check_name(name: str) -> str:
    """Return the name of an entry. Raises PackageError if the name is unsafe or points outside the package."""
    parts = name.split("/")
    if name.startswith("/") or ".." in parts or "\\" in name or (parts[0] and parts[0][-1] == ":"):
        raise PackageError(f"{name!r} in the package leads out of the package; use only relative names")
    if not is_plain(name.encode(errors="replace").decode()):  # bytes that are not UTF-8 are harmless
        raise PackageError(
            f"{name!a} in the package contains a control character, or a character that hides or reorders text; rename"
            " it"
        )
    if len(parts) > _DEPTH_MAX:
        raise PackageError(f"{name[:80]!r}... in the package is nested deeper than {_DEPTH_MAX} folders; move it up")
    if any(len(os.fsencode(part)) > 255 for part in parts) or len(name) > 2000:
        raise PackageError(f"{name[:80]!r}... in the package is too long; rename it")
    return name


def _link_target(name: str, target: str) -> str:
    """Return the target of a symbolic link, as a name in the package."""
    if target.startswith("/"):
        raise PackageError(
            f"{name!r} in the package is a link to {target!r}, which is outside of the package; replace the link with"
            " its target"
        )
    return _inside(name, posixpath.join(posixpath.dirname(name), target))


def _inside(name: str, target: str) -> str:
    normal = posixpath.normpath(target)
    if normal.startswith(("/", "..")) or normal == ".":
        raise PackageError(
            f"{name!r} in the package is a link to {target!r}, which is outside of the package; replace the link with"
            " its target"
        )
    return normal


def _make_directory(destination: Path, path: Path) -> None:
    try:
        make_folders(path)
    except (FileExistsError, NotADirectoryError):
        name = path.relative_to(destination)
        raise PackageError(f"'{name}' in the package is both a file and a directory; rename one of them") from None


def _make_link(destination: Path, entry: Entry, targets: dict[str, str]) -> None:
    """Create a link directly to an unpacked entry, never through another link."""
    end = entry.name
    for _ in range(_CHAIN_MAX):
        if end not in targets:
            break
        end = _check_name(targets[end])
    path, target = destination / entry.name, destination / end
    if os.path.lexists(path):
        if entry.optional:
            return
        raise PackageError(f"{entry.name!r} is in the package twice; remove one of the two")
    for name in (entry.name, end):
        # A parent that is a link would make the outcome depend on the order of the links.
        if any(str(parent) in targets for parent in PurePosixPath(name).parents):
            raise PackageError(
                f"{entry.name!r} in the package is a link through another link; replace the link with its target"
            )
    if not os.path.lexists(target) or target.is_symlink():
        raise PackageError(
            f"{entry.name!r} in the package links to {end!r}, which is not in the package; add the target, or remove"
            " the link"
        )
    _make_directory(destination, path.parent)
    if entry.hard:
        os.link(target, path)
    else:
        path.symlink_to(os.path.relpath(target, path.parent))


def _write(opened: IO[bytes], path: Path, executable: bool, limit: int) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o700 if executable else 0o600), "wb") as written:
        return _feed(opened, written.write, limit)


def _feed(opened: _Readable, into: Callable[[bytes], object], limit: int) -> int:
    """Pass the bytes of a file to `into`, at most slightly more than `limit`; return the number of bytes."""
    count = 0
    while count <= limit and (chunk := opened.read(_CHUNK)):
        count += len(chunk)
        into(chunk)
    return count


def _hash_file(path: Path, found: hashlib._Hash, caps: Caps) -> None:
    with open(path, "rb") as opened:
        if _feed(opened, found.update, caps.bytes) > caps.bytes:
            raise _too_large(path, caps)


def _too_many(path: Path, caps: Caps) -> PackageError:
    return PackageError(f"the package has more than {caps.files} files; leave some out")


def _too_large(path: Path, caps: Caps) -> PackageError:
    return PackageError(f"the package contains more than {caps.bytes} bytes; leave some out")
