"""Finds the files that a reader follows: files that grew, moved, were copied or replaced, and new files.

The inode is a hint, and the content decides (`heronpy.growing.identity`). A scan processes files in this order:
files at their old place; files with another name, even a name that does not match the patterns; files that were copied
before they were truncated; new files. Files that have not changed since the last scan are not opened.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from heronpy.common.hashing import stable_hash
from heronpy.common.units import counted
from heronpy.connectors.textfiles.followed import Followed, Table
from heronpy.connectors.textfiles.notices import Notices
from heronpy.connectors.textfiles.places import UNREADABLE, Places
from heronpy.growing.chunks import bytes_before
from heronpy.growing.identity import HEAD_BYTES, Identity, Line, digest, fingerprint_of, first_line
from heronpy.growing.patterns import stem, stems_of_origins
from heronpy.growing.scan import WAITS, Entry, Scanner, entry_of, siblings

#: A file counts as gone when this number of consecutive scans have missed it, because one scan may run during a
#: rotation.
MISSES = 3
#: Maximum number of files whose copies are searched for in one scan.
_SEARCHES = 100
#: Maximum number of seconds that count as watched between two scans; in a longer gap, the spout was paused.
_WATCHED_S = 60.0
#: A file that changed less than this time ago may have changed again within its file system's time resolution.
_RACY_NS = 2_000_000_000
_PACKED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


class Finder:
    """Keeps a table of files up to date."""

    def __init__(
        self,
        scanner: Scanner,
        places: Places,
        table: Table,
        notices: Notices,
        *,
        header_lines: int,
        header_bytes: int,
        forget_s: float,
        files_max: int,
        whole: bool = False,
    ) -> None:
        """`whole`: whether files are read once and not followed, so that an unfinished line counts as a line, and
        possible copies count as separate files.
        """
        self._whole = whole
        self._scanner = scanner
        self._places = places
        self._table = table
        self._notices = notices
        self._header_lines = header_lines
        self._header_bytes = max(header_bytes, HEAD_BYTES) if header_lines else HEAD_BYTES
        self._forget_s = forget_s
        self._files_max = files_max
        #: Maps a path to the file seen there, not opened until it changes; None if it belongs to another reader.
        self._settled: dict[str, tuple[Entry, Followed | None]] = {}
        self._looks = 0
        self._looked_at: float | None = None
        self._share = (0, 1)
        self._is_moving = False
        #: Places whose old content was found elsewhere, so they now have new content.
        self._freed: list[str] = []
        #: Paths that are not read because they are considered copies.
        self._copies: set[str] = set()
        self.lost_bytes = 0

    @property
    def copies(self) -> int:
        """The number of files that are not read because they are considered copies of files that are read."""
        return len(self._copies)

    def divide(self, index: int, readers: int) -> None:
        """Become reader `index` of `readers`: drop the files of other readers, and treat added files as new."""
        if self._share == (index, readers):
            return
        self._share = (index, readers)
        self._settled.clear()
        self._copies.clear()
        for file in self._table:
            if not self._owns(file.fingerprint.first):
                self._table.drop(file)

    def look(self, now: float) -> bool:
        """Scan once; return whether something changed during the scan, so that another scan should follow soon."""
        self._looks += 1
        self._is_moving = False
        elapsed = 0.0 if self._looked_at is None else min(now - self._looked_at, _WATCHED_S)
        self._looked_at = now
        look = self._scanner.look()
        for path, why in look.refused.items():
            self._notices.say(f"{path} {why}", is_error=why != WAITS)
        settled, self._settled = self._settled, {}
        if self._copies:
            self._copies.intersection_update(entry.path for entry in look.files)
        unknown: list[Entry] = []
        for entry in look.files:
            last = settled.get(entry.path)
            if last is not None and last[0] == entry and (last[1] is None or last[1].inode == entry.inode):
                self._settled[entry.path] = last
                if last[1] is not None:
                    self._see(last[1], entry)
            elif not self._examine(entry):
                unknown.append(entry)
        nowhere: list[tuple[Followed, list[str]]] = []
        sought = self._sought()
        if sought:
            nowhere = self._look_outside(look.files)
            unknown += self._copies_again(look.files, sought)
        # Longest first: of several copies of a file, the longest has the most lines.
        for entry in sorted(unknown, key=lambda entry: -entry.size):
            with self._named(entry.path):
                self._place(entry)
        self._place_freed()
        self._look_for_copies(nowhere)
        self._count_missing(elapsed)
        return self._is_moving

    def is_here(self, file: Followed) -> bool:
        """Whether the last scan has seen a file."""
        return file.seen == self._looks

    # ---- files that are known ---------------------------------------------------------------------

    def _examine(self, entry: Entry, outside: bool = False) -> bool:
        """Whether the entry is the file that was known at this path; False if it has to be identified."""
        file = self._table.at(entry.device, entry.inode)
        if file is None:
            return False
        if file.seen == self._looks:
            return True  # another name of the same inode
        found = None
        try:
            with self._places.open(entry.path) as descriptor:
                if self._places.is_at(file, descriptor):
                    found = self._places.identify(file, descriptor, os.fstat(descriptor).st_size)
        except FileNotFoundError:
            pass
        except UNREADABLE as error:
            self._notices.refuse(entry.path, error)
            self._see(file, entry, outside)
            file.held = f"{entry.path} cannot be read"
            return True
        if found is None:
            self._is_moving = True
            return True
        if found is Identity.NEW:
            file.left = entry.device, entry.inode
            self._table.detach(file)
            return False
        file.renamed |= file.path != entry.path
        known = file.size
        self._see(file, entry, outside)
        if found is Identity.SHORTER:
            # A new file may have reused the inode and may still have few bytes, so keep the earlier findings.
            file.size = max(known, entry.size)
        if self._judge(file, found):
            self._settle(entry, file)
        return True

    def _judge(self, file: Followed, found: Identity) -> bool:
        """Stop or resume reading a file at its old place; return whether the file can be skipped until it changes."""
        file.held = ""
        file.short = file.short + 1 if found in (Identity.MUTATED, Identity.SHORTER) else 0
        # Report the change only later, because the content may be in a copy that this scan has not seen.
        file.mutated = found is Identity.MUTATED and file.short >= MISSES
        if found is Identity.MUTATED:
            file.held = (
                f"{file.path} has changed before byte {file.fingerprint.cut}, in bytes that were already read, so the"
                " file is no longer read; restore its content, or give the new content another name"
            )
        elif found is Identity.SHORTER:
            file.held = (
                f"{file.path} has become shorter than the {file.fingerprint.cut} bytes that were read, and begins as"
                " before; it is not read until it is longer, or begins differently"
            )
        if file.held and file.short >= MISSES:
            self._notices.say(file.held, is_error=True)
        return not file.held

    def _sought(self) -> list[Followed]:
        """Return files that may have moved: this scan has not seen them, or has seen other content at their places."""
        looks = self._looks
        return [
            file for file in self._table if (file.seen != looks or 0 < file.short <= MISSES) and file.misses < MISSES
        ]

    def _look_outside(self, files: list[Entry]) -> list[tuple[Followed, list[str]]]:
        """Find files that were renamed to a name that matches no pattern.

        Returns the files whose content was not found, with the other names in their folders.
        """
        folders: dict[str, dict[int, str]] = {}
        nowhere: list[tuple[Followed, list[str]]] = []
        matched = {entry.path for entry in files}
        for file in self._table:
            if file.seen == self._looks or file.misses >= MISSES:
                continue
            if file.outside and self._examine_at(file, file.path):
                continue
            folder = file.path.rpartition("/")[0]
            if folder not in folders:
                folders[folder] = {inode: path for path, inode in siblings(file.path) if path not in matched}
            around = folders[folder]
            if file.inode in around and self._examine_at(file, around[file.inode]):
                continue
            if len(nowhere) < _SEARCHES:
                nowhere.append((file, [path for path in around.values() if stem(file.path) in stems_of_origins(path)]))
        return nowhere

    def _look_for_copies(self, nowhere: list[tuple[Followed, list[str]]]) -> None:
        """Find, under names that match no pattern, copies that were made before a file was truncated or removed."""
        for file, around in nowhere:
            if file.seen == self._looks:
                continue
            found = [entry_of(path) for path in around]
            for entry in sorted((entry for entry in found if entry is not None), key=lambda entry: -entry.size):
                if self._adopt_outside(file, entry):
                    break

    def _copies_again(self, files: list[Entry], sought: list[Followed]) -> list[Entry]:
        """Return unread files that were considered copies of files that are now missing."""
        stems = {stem(file.path) for file in sought}
        found = [entry for entry in files if self._settled.get(entry.path, (None, 0))[1] is None]
        again = [entry for entry in found if not stems.isdisjoint(stems_of_origins(entry.path))]
        for entry in again:
            del self._settled[entry.path]
        return again

    def _examine_at(self, file: Followed, path: str) -> bool:
        entry = entry_of(path)
        if entry is None or not file.inode or (entry.device, entry.inode) != (file.device, file.inode):
            return False
        return self._examine(entry, outside=True)

    def _adopt_outside(self, file: Followed, entry: Entry) -> bool:
        # Wait for the second scan that misses the file, because the file may have moved during the first. Adopting an
        # older copy would lose lines, because copies under other names are not examined again.
        if not file.misses or self._table.at(entry.device, entry.inode) is not None:
            return False
        with self._named(entry.path), self._places.open(entry.path) as descriptor:
            found = self._places.identify(file, descriptor, os.fstat(descriptor).st_size)
            if found in (Identity.SAME, Identity.RENAMED):
                self._adopt(file, entry, outside=True)
                return True
        return False

    # ---- entries at places without a known file ---------------------------------------------------

    def _place(self, entry: Entry) -> None:
        """Identify an entry: another reader's file, a moved file, a copy, or a new file."""
        with self._places.open(entry.path) as descriptor:
            status = os.fstat(descriptor)
            if (status.st_dev, status.st_ino) != (entry.device, entry.inode):
                self._is_moving = True
                return
            self._copies.discard(entry.path)
            known = self._table.at(entry.device, entry.inode)
            if known is not None and known.seen == self._looks:
                return  # another name of an inode that was found in this scan
            beginning = os.pread(descriptor, self._header_bytes, 0)
            packed = next((name for magic, name in _PACKED.items() if beginning.startswith(magic)), None)
            if packed is not None:
                self._settle(entry, None)
                self._notices.say(
                    f"{entry.path} is compressed ({packed}) and is not read; make the pattern exclude it", is_error=True
                )
                return
            line = first_line(beginning, self._header_lines)
            if line is None and self._whole and beginning:
                line = Line(0, beginning[:HEAD_BYTES])
            if line is None:
                self._settle(entry, None)
                if self._header_lines and len(beginning) == self._header_bytes:
                    limit = f"its first {self._header_bytes} bytes; skip fewer lines"
                    self._notices.say(f"the header of {entry.path} is longer than {limit}", is_error=True)
                return
            first = digest(line.data)
            if not self._owns(first):
                self._settle(entry, None)
                return
            origins = self._table.origins(entry.path, first) if not self._whole else []
            content = _ends(descriptor, status.st_size) if origins else None
            for file in origins:
                if self._is_known(file, entry, descriptor, status.st_size):
                    return
            if origins and _ends(descriptor, status.st_size) != content:
                # The file has changed during the comparisons, for example because a copy is in progress, so they are
                # unreliable.
                self._is_moving = True
                return
        if len(self._table) >= self._files_max and not self._make_room():
            limit = counted(self._files_max, "file")
            self._notices.say(f"{entry.path} is not read: its task already follows {limit}; add tasks", is_error=True)
            return
        fingerprint = fingerprint_of(beginning, line)
        file = self._table.add(entry.path, entry.device, entry.inode, fingerprint, line.offset, status.st_size)
        self._see(file, entry)
        self._settle(entry, file)

    def _is_known(self, file: Followed, entry: Entry, descriptor: int, size: int) -> bool:
        """Whether an entry is a known file that has moved to this path, or a copy of a known file."""
        found = self._places.identify(file, descriptor, size)
        if found is Identity.NEW:
            return False
        if file.seen == self._looks:
            # The path still has the file itself, or other content that was mistaken for the file.
            if found is Identity.MUTATED or self._is_next_life(file, entry):
                return False
            if file.short and found is not Identity.SHORTER and self._places.was_rewritten(file, descriptor):
                # The file was copied, truncated, and rewritten with the same beginning, such as a header.
                self._freed.append(file.path)
                file.left = file.device, file.inode
                self._adopt(file, entry)
                self._judge(file, found)
                return True
            # The name suggests a copy, which can be longer than its original only if the copy was changed.
            is_copy = found is Identity.SHORTER or entry.path.startswith(file.path)
            if not is_copy and self._places.goes_on(file, descriptor, size):
                self._adopt(file, entry)
                self._judge(file, found)
                return True
            if found is Identity.SHORTER and not self._places.begin_alike(file, descriptor, size):
                return False
            self._copies.add(entry.path)
            if self._is_settled(entry):
                self._notices.say(f"{entry.path} is a copy of {file.path} and is not read")
            return True
        if found is Identity.SHORTER:
            # The copy may be in progress, or older than the last lines of the file, so it is examined again.
            self._copies.add(entry.path)
            if self._is_settled(entry):
                self._notices.say(
                    f"{entry.path} begins like {file.path} and is shorter than the part of that file that was read;"
                    " the new file is not read until it is longer or differs"
                )
            return True
        self._adopt(file, entry)
        self._judge(file, found)
        return True

    @staticmethod
    def _is_next_life(file: Followed, entry: Entry) -> bool:
        """Whether an entry is the new log after a rotation, and begins like a known file at another place.

        A rotation by renaming moves the known inode to another name; copying and truncating leaves the inode in place.
        """
        if (entry.device, entry.inode) == file.left:
            return True
        return file.renamed and file.path != entry.path and file.path.startswith(entry.path)

    def _place_freed(self) -> None:
        """Identify the content at the old places of files that were found elsewhere."""
        freed, self._freed = self._freed, []
        for path in freed:
            entry = entry_of(path)
            if entry is not None and self._table.at(entry.device, entry.inode) is None:
                with self._named(path):
                    self._place(entry)

    def _adopt(self, file: Followed, entry: Entry, outside: bool = False) -> None:
        self._table.locate(file, entry.device, entry.inode)
        self._see(file, entry, outside)

    def _see(self, file: Followed, entry: Entry, outside: bool = False) -> None:
        if file.path != entry.path:
            self._copies.discard(entry.path)
            self._table.rename(file, entry.path)
        file.size, file.seen, file.outside = entry.size, self._looks, outside
        file.misses, file.gone_s = 0, 0.0

    def _settle(self, entry: Entry, file: Followed | None) -> None:
        if self._is_settled(entry):
            self._settled[entry.path] = entry, file

    @staticmethod
    def _is_settled(entry: Entry) -> bool:
        return time.time_ns() - entry.changed_ns > _RACY_NS

    def _owns(self, first: str) -> bool:
        index, readers = self._share
        return stable_hash(first) % readers == index

    # ---- files that are gone ----------------------------------------------------------------------

    def _count_missing(self, elapsed: float) -> None:
        for file in self._table:
            if file.seen == self._looks:
                continue
            file.misses += 1
            file.gone_s += elapsed
            if file.misses == MISSES and file.size > file.read_to:
                self.lost_bytes += file.size - file.read_to
                self._notices.say(
                    f"{file.path} was removed, or truncated without a copy, before it was read: bytes"
                    f" {file.read_to} to {file.size} are lost",
                    is_error=True,
                )
                file.size = file.read_to  # reported, and recorded for a successor
            if file.misses < MISSES:
                self._is_moving = True
            elif file.gone_s > self._forget_s:
                self._table.drop(file)

    def _make_room(self) -> bool:
        gone = [file for file in self._table if file.misses >= MISSES]
        if gone:
            self._table.drop(max(gone, key=lambda file: file.gone_s))
        return bool(gone)

    @contextmanager
    def _named(self, path: str) -> Iterator[None]:
        """Report that a file cannot be read, unless the file has disappeared."""
        try:
            yield
        except FileNotFoundError:
            self._is_moving = True
        except UNREADABLE as error:
            self._notices.refuse(path, error)


def _ends(descriptor: int, size: int) -> tuple[bytes, bytes]:
    """Return the first and the last bytes among the first `size` bytes of a file."""
    return os.pread(descriptor, min(size, HEAD_BYTES), 0), bytes_before(descriptor, size)
