"""A keeper's view of the files that match a pattern, and its differences from the ledger.

`Finder` identifies files by their content, with the inode as a hint, so renamed and copied files keep their identity.
This module translates the answers of `Finder` into the ledger's terms: key, generation, and sizes that end at a line
end. The view is rebuilt from the ledger when a keeper starts, or when another keeper has reported a change first.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from msgspec import Struct

from heronpy.connectors.textfiles.finding import MISSES, Finder
from heronpy.connectors.textfiles.followed import Followed, Table
from heronpy.connectors.textfiles.notices import Notice, Notices
from heronpy.connectors.textfiles.places import UNREADABLE, Places
from heronpy.growing.chunks import BLOCK_BYTES, bytes_before, safe_size
from heronpy.growing.identity import HEAD_BYTES, Fingerprint, digest
from heronpy.growing.patterns import join, key_of
from heronpy.growing.scan import COST_FACTOR, INTERVAL_S, NOTHING, WAITS, Pace, Scanner
from heronpy.ingest.fingerprints import fingerprint_from, head_text, tail_text
from heronpy.ingest.ledger.partitions import birth_of
from heronpy.ingest.ledger.requests import GoneFile, KnownFile, Reported, SeenFile
from heronpy.ingest.ledger.types import PART, FileState
from heronpy.ingest.options import Logs

FILES_MAX = 200_000


class _Known(Struct):
    """A file as recorded in the ledger; `id` is 0 until the ledger has answered."""

    key: str
    generation: int
    id: int = 0
    head: str = ""
    path: str = ""
    size: int = -1
    inode: str = ""
    mutated: bool = False
    gone: bool = False
    #: State of the file when its content last agreed with the ledger.
    settled: tuple[object, ...] | None = None


class Watch:
    """The files of a pipeline on one site, scanned by `keepers` keepers."""

    def __init__(
        self,
        logs: Logs,
        days: float,
        known: Iterable[KnownFile],
        site: str,
        keepers: int = 1,
        interval_s: float = INTERVAL_S,
        made: Iterable[int] = (),
        bounded: bool = False,
        header_lines: int = 0,
        whole: bool = False,
    ) -> None:
        """`bounded`: do not wait for new files. `header_lines`, `whole`: see `UnitOptions`."""
        self._root, self._whole = logs.root, whole
        self._site = site
        self._table = Table()
        self._notices = Notices()
        scanner = Scanner(logs.patterns, FILES_MAX, NOTHING if bounded else WAITS)
        self._places = Places(scanner, header_lines)
        self._finder = Finder(
            scanner,
            self._places,
            self._table,
            self._notices,
            header_lines=header_lines,
            header_bytes=BLOCK_BYTES,
            whole=whole,
            # Files are forgotten here after the ledger has forgotten them.
            forget_s=(days + 1) * 86_400,
            files_max=FILES_MAX,
        )
        self._pace = Pace(interval_s, lookers=keepers)
        self._known: dict[int, _Known] = {}
        self._generations: dict[str, int] = {}
        self._asked: list[tuple[_Known, SeenFile | GoneFile]] = []
        #: Ids of the files in this watch, and the id up to which it contains all files of the ledger.
        self._ids: set[int] = set()
        self._made = tuple(made)
        self._unfinished = 0
        #: Whether the last scan found all files, and no file moved during the scan.
        self.is_complete = False
        #: Like `is_complete`, but ignoring known files that cannot be read now.
        self.has_all_readable = False
        for one in known:
            self._learn(one)
        following = {one // PART: one for one in self._made}
        number = sum(one % PART - 1 for one in self._made)
        remembered = sum(one < following.get(one // PART, 0) for one in self._ids)
        #: The highest possible generation of a file that the ledger has forgotten.
        self._seen_before = number if remembered < number else 0

    @property
    def due(self) -> float:
        """The monotonic time of the next scan."""
        return self._pace.due

    @property
    def made(self) -> tuple[int, ...]:
        """The ids up to which all files are known; see `ReportScan`."""
        self._made = tuple(map(self._after, self._made))
        return self._made

    def _after(self, number: int) -> int:
        while number in self._ids:
            number += 1
        return number

    def look(self, now: float) -> None:
        """Scan the files, and measure files that have grown."""
        begun, begun_cpu = time.monotonic(), time.thread_time()
        moving = self._finder.look(now)
        self.is_complete, unreadable = not moving, False
        is_here = self._finder.is_here
        self._unfinished = 0
        for file in self._table:
            if not is_here(file):
                continue
            if file.is_readable and file.size > file.fingerprint.cut:
                self.is_complete &= self._measure(file)
            elif file.held and not file.short:
                unreadable = True
            elif file.held and not file.mutated and file.short < MISSES:
                self.is_complete = False
            if file.size > file.fingerprint.cut:
                self._unfinished += file.size - file.fingerprint.cut
        self.has_all_readable = self.is_complete
        self.is_complete &= not unreadable
        # The pause depends on the CPU time of the scan, but is longer after a scan of a slow disk.
        self._pace.looked(now, max(time.thread_time() - begun_cpu, (time.monotonic() - begun) / COST_FACTOR))
        if moving:
            self._pace.sooner(now, 0.05)

    def changes(self, limit: int) -> tuple[tuple[SeenFile, ...], tuple[GoneFile, ...]]:
        """Return changes that are not in the ledger yet, for at most `limit` files; call `answered` afterwards."""
        self._asked = []
        for file in self._table:
            if len(self._asked) == limit:
                break
            known = self._known.get(file.number)
            now = file.path, file.fingerprint, file.device, file.inode, file.mutated
            if known is not None and not known.gone and known.settled == now and self._finder.is_here(file):
                continue  # the usual case
            change = self._change(file)
            if change is not None:
                self._asked.append((self._known[file.number], change))
            elif known is not None:
                known.settled = now
        seen = tuple(change for _, change in self._asked if isinstance(change, SeenFile))
        gone = tuple(change for _, change in self._asked if isinstance(change, GoneFile))
        return seen, gone

    def answered(self, answer: Reported) -> bool:
        """Record the ledger's answer. Returns False if the ledger decided differently and a new `Watch` is needed."""
        if answer.stale:
            return False
        ids = {(one.file.key, one.file.generation): one.file for one in answer.known}
        for known, change in self._asked:
            if isinstance(change, GoneFile):
                known.gone = True
                continue
            known.path, known.size, known.inode, known.mutated = change.path, change.size, change.inode, change.mutated
            row = ids.get((known.key, known.generation))
            if row is None:
                continue  # the run is sealed, and the file is new
            known.id, known.head, known.gone = row.id, row.head, False
            self._ids.add(row.id)
            if row.state is FileState.LATE:
                self._notices.say(
                    f"{change.path} is older than the ledger's record of processed files, so it is not processed; if"
                    " the file is new, copy it to another name",
                    is_error=True,
                )
        self._asked = []
        return True

    def place_of(self, key: str, generation: int) -> tuple[str, str]:
        """Return a file's path and head as recorded in the ledger; ("", "") if unknown."""
        for known in self._known.values():
            if (known.key, known.generation) == (key, generation):
                return known.path, known.head
        return "", ""

    def is_there(self, key: str, generation: int) -> bool | None:
        """Whether the last scan found the file; None if this watch does not contain the file (yet)."""
        known = [not one.gone for one in self._known.values() if (one.key, one.generation) == (key, generation)]
        return any(known) if known else None

    def notices(self) -> list[Notice]:
        """Return the notices about the files, such as unreadable files, since the last call."""
        return self._notices.taken()

    def unfinished_bytes(self) -> int:
        """Return the number of bytes in unfinished last lines, as of the last scan."""
        return self._unfinished

    def copies(self) -> int:
        """Return the number of files that are not read because they are considered copies."""
        return self._finder.copies

    # ---- details -----------------------------------------------------------------------------
    def _learn(self, one: KnownFile) -> None:
        row = one.file
        self._ids.add(row.id)
        self._generations[row.key] = max(row.generation, self._generations.get(row.key, 0))
        copy = next((copy for copy in one.copies if copy.site == self._site), None)
        try:
            fingerprint = fingerprint_from(row.head, copy.tail if copy is not None else "0:")
        except ValueError:
            return  # written by another release; the file then gets a new generation
        if copy is None:
            # The file is known from another site: until it is found on this site, only its beginning is compared.
            device, inode, fingerprint, path = 0, 0, fingerprint._replace(cut=0, before=digest(b"")), row.key
        else:
            place, _, number = copy.inode.partition(":")
            device, inode, path = int(place), int(number), copy.path
        file = self._table.add(join(self._root, path), device, inode, fingerprint, fingerprint.cut, fingerprint.cut)
        file.renamed = copy is not None and copy.path != row.key
        # Without sites, no other host has the file, so a shorter file is not a growing copy.
        file.least = 0 if one.copies or self._site else row.size
        known = self._known[file.number] = _Known(row.key, row.generation, row.id, row.head)
        known.mutated = row.state is FileState.MUTATED
        if copy is not None:
            known.path, known.size, known.inode = copy.path, copy.size, copy.inode
        else:
            known.gone = True

    def _measure(self, file: Followed) -> bool:
        """Extend a file's fingerprint to its last line end; return False if the file has moved."""
        fingerprint = file.fingerprint
        try:
            with self._places.open(file.path) as descriptor:
                if not self._places.is_at(file, descriptor):
                    return False
                size = os.fstat(descriptor).st_size
                cut = size if self._whole else safe_size(descriptor, size, fingerprint.cut)
                if cut == fingerprint.cut:
                    return True
                context = bytes_before(descriptor, cut)
                head = os.pread(descriptor, min(HEAD_BYTES, cut), 0)
        except UNREADABLE:
            return False  # the next scan determines what the file is
        if digest(head[: fingerprint.head_bytes]) == fingerprint.head:
            grown = max(fingerprint.head_bytes, len(head))
            file.fingerprint = Fingerprint(fingerprint.first, grown, digest(head[:grown]), cut, digest(context))
            file.position = file.read_to = cut
            return True
        return False

    def _change(self, file: Followed) -> SeenFile | GoneFile | None:
        known = self._known.get(file.number)
        if not self._finder.is_here(file):
            if known is None or known.gone or not known.id or file.misses < MISSES:
                return None
            return GoneFile(known.id, known.inode)
        path = key_of(self._root, file.path)
        if path is None or (known is None and not file.fingerprint.cut):
            return None
        if known is None:
            # Later files of a name may be forgotten while an earlier file still exists.
            generation = max(self._generations.get(path, 0), self._seen_before) + 1
            self._generations[path] = generation
            known = self._known[file.number] = _Known(path, generation)
        seen = SeenFile(
            known.key,
            known.generation,
            path,
            file.fingerprint.cut,
            f"{file.device}:{file.inode}",
            head_text(file.fingerprint),
            compared=known.head,
            tail=tail_text(file.fingerprint),
            age_s=self._age_s(file) if not known.id else 0.0,
            mutated=file.mutated,
            birth=birth_of(known.key),
        )
        same = (known.path, known.size, known.inode, known.mutated or not file.mutated)
        if not known.gone and same == (seen.path, seen.size, seen.inode, True):
            return None
        return seen

    def _age_s(self, file: Followed) -> float:
        try:
            return max(0.0, time.time() - os.lstat(file.path).st_mtime)
        except OSError:
            return 0.0
