"""Reads lines of files that may appear, grow, or be renamed, copied or truncated meanwhile. Keeps a position per file.

Files are shared by content: a hash of the first line decides which reader a file belongs to, regardless of name and
inode. So readers need no coordination, and every line has exactly one reader. One reader reads a whole file, in order.
The reader reports files that it cannot read, or can no longer read (`Notice`), and continues with the other files.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

from heronpy.connectors.textfiles.decoding import LineDecoder, TextFileError
from heronpy.connectors.textfiles.finding import MISSES, Finder
from heronpy.connectors.textfiles.followed import Followed, Table
from heronpy.connectors.textfiles.notices import Notice, Notices
from heronpy.connectors.textfiles.places import UNREADABLE, Places
from heronpy.growing import chunks
from heronpy.growing.chunks import BLOCK_BYTES, LINE_BYTES_MAX, LongLineError
from heronpy.growing.identity import HEAD_BYTES, Fingerprint, advanced, before, fits
from heronpy.growing.patterns import Pattern
from heronpy.growing.scan import INTERVAL_S, Pace, Scanner

#: Maximum number of files of one reader, including deleted files that are not yet forgotten.
FILES_MAX = 100_000
FORGET_S = 7 * 86400.0
#: Pause in seconds before the next scan if something changed during a scan or read.
_AGAIN_S = 0.05
#: Seconds after which an unfinished last line is reported.
_UNFINISHED_S = 60.0
#: Version of the format that `keep` puts into a state.
_VERSION = 1


class FollowedBlock(NamedTuple):
    """Some lines of one file. `offsets` contains the offset of each line's first byte; `ref` is the file's number."""

    path: str
    ref: int
    lines: list[str]
    offsets: list[int]


class _Reading(NamedTuple):
    """The most recently returned block, and the position in its file once the whole block is done."""

    file: Followed
    block: FollowedBlock
    fingerprint: Fingerprint


class Follower:
    """Finds and reads the files of one reader. `now` and `due` are in seconds, as from `time.monotonic`."""

    def __init__(
        self,
        patterns: Sequence[Pattern],
        decoder: LineDecoder,
        *,
        header_lines: int = 0,
        block_bytes: int = BLOCK_BYTES,
        line_bytes_max: int = LINE_BYTES_MAX,
        scan_s: float = INTERVAL_S,
        forget_s: float = FORGET_S,
        files_max: int = FILES_MAX,
    ) -> None:
        self._decoder = decoder
        self._block_bytes = block_bytes
        self._line_bytes_max = line_bytes_max
        self._pace = Pace(scan_s)
        self._table = Table()
        self._notices = Notices()
        scanner = Scanner(patterns)
        self._places = Places(scanner, header_lines)
        self._finder = Finder(
            scanner,
            self._places,
            self._table,
            self._notices,
            header_lines=header_lines,
            header_bytes=block_bytes,
            forget_s=forget_s,
            files_max=files_max,
        )
        #: Files with unread bytes, served in turn.
        self._ready: deque[Followed] = deque()
        self._reading: _Reading | None = None
        #: The last result of `figures`; None before the first call.
        self.backlog_bytes: int | None = None

    @property
    def due(self) -> float:
        """The time of the next scan for files."""
        return self._pace.due

    def attend(self, now: float, index: int, readers: int) -> None:
        """Scan for files, as reader `index` of `readers`."""
        self._finder.divide(index, readers)
        begun = time.monotonic()
        is_moving = self._finder.look(now)
        self._line_up(now)
        self._pace.looked(now, time.monotonic() - begun)
        if is_moving:
            self._pace.sooner(now, _AGAIN_S)

    def wait_s(self, now: float) -> float:
        """Return the seconds until the next scan; 0 if a file has unread bytes."""
        return 0.0 if self._ready else max(0.0, self._pace.due - now)

    def next_block(self) -> FollowedBlock | None:
        """Return the next lines of one of the files; None if everything is read. The previous block counts as done."""
        self._finish_block()
        while self._ready:
            file = self._ready.popleft()
            if not file.is_readable or self._table.get(file.number) is not file:
                continue
            try:
                block, more = self._read(file)
            except (LongLineError, TextFileError) as error:
                file.stuck = str(error)
                self._notices.say(f"{error}; reading continues only after the task restarts", is_error=True)
                continue
            except UNREADABLE:
                # Renamed, removed or replaced since the last scan; the next scan determines what happened.
                self._pace.sooner(time.monotonic(), _AGAIN_S)
                continue
            if more:
                self._ready.append(file)
            if block is not None:
                return block
        return None

    def line_at(self, number: int, offset: int) -> str | None:
        """Read a line again; None while the place of its file is unknown.

        Raises LookupError if the file now belongs to another reader, and TextFileError if the line is unreadable.
        """
        file = self._table.get(number)
        if file is None:
            raise LookupError(number)
        try:
            with self._places.open(file.path) as descriptor:
                data = chunks.line_at(descriptor, file.path, offset, self._line_bytes_max)
                if data is not None and self._places.is_it(file, descriptor):
                    return self._decoder.line(file.path, offset, data)
        except (LongLineError, *UNREADABLE):
            pass
        if file.held or file.misses >= MISSES:
            raise TextFileError(f"the line at byte {offset} of {file.path} must be replayed but cannot be read again")
        self._pace.sooner(time.monotonic(), _AGAIN_S)
        return None

    def path_of(self, number: int) -> str:
        """Return the last known path of a file."""
        file = self._table.get(number)
        return f"file {number}" if file is None else file.path

    def notices(self) -> list[Notice]:
        """Return the notices since the last call."""
        return self._notices.taken()

    def figures(self) -> dict[str, int]:
        """Return the number of files, and the waiting bytes by reason, as of the last scan."""
        found = dict.fromkeys(
            ("files", "backlog-bytes", "unfinished-line-bytes", "held-files", "held-bytes", "lost-bytes"), 0
        )
        for file in self._table:
            unread = max(0, file.size - file.read_to)
            found["files"] += 1
            if not file.is_readable:
                found["held-files"] += 1
                found["held-bytes"] += unread
            elif self._finder.is_here(file):
                found["unfinished-line-bytes" if file.unfinished_at == file.size else "backlog-bytes"] += unread
        found["lost-bytes"] = self._finder.lost_bytes
        self.backlog_bytes = found["backlog-bytes"]
        return found

    def keep(self, done: int, state: MutableMapping[tuple[str, int], Any], header_lines: int) -> None:
        """Put the known files into a state, by first line; of the last block, the first `done` lines count as read."""
        reading, position = None, 0
        if self._reading is not None:
            reading, block, fingerprint = self._reading
            position = block.offsets[done] if done < len(block.offsets) else fingerprint.cut
        rows = kept(self._table.to_state(reading, position), header_lines)
        for key in [key for key in state if key not in rows]:
            del state[key]
        for key, value in rows.items():
            if state.get(key) != value:
                state[key] = value

    def restore(self, state: Mapping[tuple[str, int], Any]) -> set[int]:
        """Continue from a state; return its counts of header lines. Raises ValueError for another release's state."""
        headers = set()
        for version, header_lines, *files in state.values():
            if version != _VERSION:
                raise ValueError(f"positions of version {version} are from another release; start without a checkpoint")
            headers.add(header_lines)
            self._table.restore(files)
        return headers

    def _line_up(self, now: float) -> None:
        waiting = {file.number for file in self._ready}
        for file in self._table:
            if not self._finder.is_here(file) or not file.is_readable or file.size <= file.read_to:
                continue
            if file.size != file.unfinished_at:
                if file.number not in waiting:
                    self._ready.append(file)
            elif now - file.unfinished_since > _UNFINISHED_S:
                self._notices.say(f"the last line of {file.path} is unfinished; it is read once it is complete")

    def _read(self, file: Followed) -> tuple[FollowedBlock | None, bool]:
        """Return the next lines of a file, and whether more may follow. Raises FileNotFoundError if it has moved."""
        fingerprint = file.fingerprint
        with self._places.open(file.path) as descriptor:
            if not self._places.is_at(file, descriptor):
                raise FileNotFoundError(file.path)
            size = os.fstat(descriptor).st_size
            context = fingerprint.cut - before(fingerprint.cut)
            around, data = chunks.read_lines(
                descriptor, file.path, fingerprint.cut, self._block_bytes, self._line_bytes_max, context
            )
            beginning = os.pread(descriptor, HEAD_BYTES, 0)
        if size < file.size or not fits(fingerprint, around, beginning):
            raise FileNotFoundError(file.path)
        file.size = size
        if not data:
            file.unfinished_at, file.unfinished_since = size, time.monotonic()
            return None, False
        lines, offsets = self._decoder.split(file.path, fingerprint.cut, data)
        # A restored position may lie within the first block.
        done = bisect_left(offsets, file.position)
        block = FollowedBlock(file.path, file.number, lines[done:], offsets[done:])
        self._reading = _Reading(file, block, advanced(fingerprint, around, data))
        file.read_to = max(file.read_to, self._reading.fingerprint.cut)
        if not block.lines:
            self._finish_block()
            return None, size > file.fingerprint.cut
        return block, size > file.read_to

    def _finish_block(self) -> None:
        if self._reading is not None:
            file, _, fingerprint = self._reading
            file.fingerprint, file.position = fingerprint, max(file.position, fingerprint.cut)
            self._reading = None


def kept(rows: Mapping[str, Sequence[tuple[Any, ...]]], header_lines: int) -> dict[tuple[str, int], tuple[Any, ...]]:
    """Return a partitioned state with the known files by first line."""
    return {(first, 0): (_VERSION, header_lines, *files) for first, files in rows.items()}
