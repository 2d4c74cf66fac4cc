"""A package together with one archive of it, for tasks that load classes from the archive themselves.

Apache Heron gives tasks the path of the submitted .pex, with its content unpacked next to it; user
code opens the file with `zipfile`, imports from it with `zipimport`, or reads data from its folder. Here the
archive is an additional file of the package's entry in the cache: the submitted zip or pex unchanged, otherwise
a zip of the files. Invariant: equal content gives equal bytes, so that an entry can be checked.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, Final

from heronpy.storage.sources import Entry, Source, Zip

_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_REGULAR: Final = 0o100600 << 16


def archive_in(entry: Path) -> Path:
    """Path of the archive in an entry of the cache, which is named by its digest."""
    return entry / _name(entry.name)


def _name(digest: str) -> str:
    # The digest avoids clashes with the user's files.
    return f"topology-{digest[:12]}.pex"


class Archived:
    """A source plus its archive; the digest differs from that of the source alone."""

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
    """The same file, rewound; the caller reads and closes it."""
    file.seek(0)
    return os.fdopen(os.dup(file.fileno()), "rb")


def _zip(source: Source, into: IO[bytes]) -> None:
    """Write the files of a source; a link to a file becomes that file, a link to a folder is omitted."""
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
