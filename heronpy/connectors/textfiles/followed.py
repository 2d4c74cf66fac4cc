"""The files that a reader follows, and its position in each. Pure.

A *file* is identified by its content, not by its name: it stays the same file when it is renamed, or copied before
its name is reused. Each file has a number that is never reused, so number and offset identify a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from heronpy.growing.identity import Fingerprint
from heronpy.growing.patterns import stem, stems_of_origins


class Followed(Struct, eq=False):
    """One file, and the reader's position in it."""

    number: int
    path: str
    device: int
    #: Inode of the content; 0 while the content's place is unknown.
    inode: int
    #: The fingerprint of the content up to the beginning of the block that is being emitted.
    fingerprint: Fingerprint
    #: Offset of the first byte of the next line; never before the cut of the fingerprint.
    position: int
    #: Last seen size in bytes.
    size: int
    #: Seconds for which the file has been missing from the scans of a reader.
    gone_s: float = 0.0

    # Not in the state:
    #: Offset up to which the file was read; the last bytes may not be emitted yet.
    read_to: int = 0
    #: Number of the last scan that saw the file, and the number of scans since then that missed the file.
    seen: int = 0
    misses: int = 0
    #: Number of consecutive scans that found the file shorter, or with other bytes.
    short: int = 0
    #: Whether the file was renamed to a name that does not match the patterns.
    outside: bool = False
    #: Whether the inode had another name before.
    renamed: bool = False
    #: Former place of the content, until other content is found there; (0, 0) without a former place.
    left: tuple[int, int] = (0, 0)
    #: Lower bound of the size in bytes, used while the content is unknown.
    least: int = 0
    #: The reason why the file is not read now; empty if it is read.
    held: str = ""
    #: Whether bytes that were read have changed.
    mutated: bool = False
    #: The reason why the file is not read until the reader restarts; empty if it is read.
    stuck: str = ""
    #: Size of the file when no further line break was found, and the time of that search.
    unfinished_at: int = -1
    unfinished_since: float = 0.0

    def __post_init__(self) -> None:
        self.read_to = self.position

    @property
    def is_readable(self) -> bool:
        """Whether the next lines of the file may be read."""
        return not self.held and not self.stuck


class Table:
    """The files that one reader follows, with look-ups by number, place, first line and name."""

    def __init__(self) -> None:
        self._files: dict[int, Followed] = {}
        self._by_inode: dict[tuple[int, int], Followed] = {}
        #: Files by first line, and by stem of the name.
        self._alike: dict[tuple[str, str], list[Followed]] = {}
        self._next = 1

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[Followed]:
        return iter(list(self._files.values()))

    def get(self, number: int) -> Followed | None:
        return self._files.get(number)

    def at(self, device: int, inode: int) -> Followed | None:
        """Return the file whose content was last seen at this device and inode."""
        return self._by_inode.get((device, inode))

    def origins(self, path: str, first: str) -> list[Followed]:
        """Return the files with this first line of which `path` may be a copy, judging by the names."""
        return [file for stem in stems_of_origins(path) for file in self._alike.get((first, stem), ())]

    def rename(self, file: Followed, path: str) -> None:
        if file.path != path:
            self._forget_name(file)
            file.path = path
            self._keep_name(file)

    def add(self, path: str, device: int, inode: int, fingerprint: Fingerprint, position: int, size: int) -> Followed:
        file = Followed(self._next, path, device, inode, fingerprint, position, size)
        self._next += 1
        self._put(file)
        return file

    def locate(self, file: Followed, device: int, inode: int) -> None:
        """Record the device and inode of the file's content."""
        self.detach(file)
        other = self.at(device, inode)
        if other is not None:
            self.detach(other)
        file.device, file.inode = device, inode
        self._by_inode[device, inode] = file

    def detach(self, file: Followed) -> None:
        """Record that the file's content is no longer at its device and inode."""
        if self._by_inode.get((file.device, file.inode)) is file:
            del self._by_inode[file.device, file.inode]
        file.inode = 0

    def drop(self, file: Followed) -> None:
        self.detach(file)
        del self._files[file.number]
        self._forget_name(file)

    def _keep_name(self, file: Followed) -> None:
        self._alike.setdefault((file.fingerprint.first, stem(file.path)), []).append(file)

    def _forget_name(self, file: Followed) -> None:
        key = file.fingerprint.first, stem(file.path)
        alike = self._alike[key]
        alike.remove(file)
        if not alike:
            del self._alike[key]

    def _put(self, file: Followed) -> None:
        self._files[file.number] = file
        if file.inode:
            self._by_inode[file.device, file.inode] = file
        self._keep_name(file)

    # ---- state ------------------------------------------------------------------------------------

    def to_state(self, reading: Followed | None, position: int) -> dict[str, list[tuple[Any, ...]]]:
        """Return the known files by first line, as plain values; `position` is the position in the file `reading`."""
        rows: dict[str, list[tuple[Any, ...]]] = {}
        for file in self._files.values():
            at = position if file is reading else file.position
            row = (file.path, file.device, file.inode, tuple(file.fingerprint), at, file.size, file.gone_s)
            rows.setdefault(file.fingerprint.first, []).append(row)
        return rows

    def restore(self, rows: Iterable[Sequence[Any]]) -> None:
        """Add the files from a result of `to_state`."""
        for path, device, inode, fingerprint, position, size, gone_s in rows:
            self._put(Followed(self._next, path, device, inode, Fingerprint(*fingerprint), position, size, gone_s))
            self._next += 1
