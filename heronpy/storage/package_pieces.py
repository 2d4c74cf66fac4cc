"""The archive of a package in a shared place, so that not every host has to fetch it from the scheduler.

The archive is stored in pieces `<topology id>/<sha256 of the archive>/<number>`, so that no process has the whole
archive in memory. Readers get size and digest from the scheduler, so they detect an archive of another user.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from heronpy.common.errors import HeronError
from heronpy.storage.objects.opening import COMMAND_S, open_own

PIECE_BYTES: Final = 8 << 20


class PackagePieces:
    """The package of one topology below `place`, a folder or a URL. Raises ConfigError if this host cannot open it.

    Calls raise ObjectsError if the place does not answer or refuses the request.
    """

    def __init__(self, place: str, topology_id: str, patience_s: float = COMMAND_S) -> None:
        self._objects = open_own(place, topology_id, PIECE_BYTES, patience_s)
        self._prefix = topology_id

    @property
    def name(self) -> str:
        """The name of the place, for messages."""
        return self._objects.name

    def _key(self, digest: bytes, number: int) -> str:
        return f"{self._prefix}/{digest.hex()}/{number:06d}"

    def put(self, archive: Path, digest: bytes) -> None:
        """Store an archive, unless its last piece exists: pieces are written in order, so it is then complete."""
        size = archive.stat().st_size
        last = max(0, size - 1) // PIECE_BYTES
        if self._objects.head(self._key(digest, last)) == size - last * PIECE_BYTES:
            return
        with open(archive, "rb") as file:
            for number in range(last + 1):
                self._objects.put(self._key(digest, number), file.read(PIECE_BYTES))

    def read(self, digest: bytes, size: int, offset: int) -> bytes:
        """Return the piece at the offset; empty at the end. Raises MissingObjectError if the package is missing."""
        if offset >= size:
            return b""
        number, start = divmod(offset, PIECE_BYTES)
        return self._objects.get(self._key(digest, number))[start:]

    def remove(self) -> None:
        """Delete all archives of the topology."""
        self._objects.delete(self._objects.list(self._prefix).objects)


def either(
    first: Callable[[int], bytes], other: Callable[[int], bytes], failed: Callable[[HeronError], None]
) -> Callable[[int], bytes]:
    """Return a reader that switches from `first` to `other` after an error, or if the beginning is read again.

    A caller reads the beginning again if the data of `first` does not match the announced digest.
    """
    sources = [first, other]
    begun = False

    def read(offset: int) -> bytes:
        nonlocal begun
        if offset == 0 and begun:
            del sources[:-1]
        begun = True
        if len(sources) > 1:
            try:
                return sources[0](offset)
            except HeronError as error:
                failed(error)
                del sources[:-1]
        return other(offset)

    return read
