"""A work unit for `rows(unit)`: ranges of files, read as complete lines.

The unit records the most recently returned line, so that an error can be assigned to this line. The lineage gets the
digests of the bytes.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from hashlib import sha256
from operator import length_hint
from pathlib import Path
from typing import NamedTuple

from heronpy.common.errors import HeronError
from heronpy.common.folders import make_folders
from heronpy.connectors.textfiles.decoding import LineDecoder, offsets_of, raw_lines
from heronpy.growing.below import UnfitFileError, open_below
from heronpy.growing.chunks import BLOCK_BYTES, LINE_BYTES_MAX, UnfinishedLineError, read_chunk
from heronpy.growing.patterns import join
from heronpy.ingest.fingerprints import file_matches
from heronpy.ingest.ledger.requests import Chunk, Halve, Line, Work

#: Number of bytes that are read at a time to find the next line end.
_LOOK_BYTES = 64 * 1024


class MovedError(HeronError):
    """A file is not at the path in the ledger, or cannot be read. The file's bytes are not the cause."""


class UnreadError(MovedError):
    """The disk with the logs cannot be read."""


class Block(NamedTuple):
    """Complete lines with their ends; `key` is the name of the file when it was first seen, and `offset` is the
    offset of the first byte."""

    key: str
    offset: int
    data: bytes


_FORM = struct.Struct("<QQQQQ")
_SIZE = mmap.PAGESIZE


class Suspect(NamedTuple):
    """A line that was being processed, with its unit and attempt."""

    unit: int
    attempt: int
    line: Line


class SuspectPage:
    """A memory page with the line that a worker is processing. If the worker dies, its successor reads the page.

    The page is a small mapped file, whose content survives the process but not the host. An attempt writes the page
    only if the unit has failed before, because each line costs a write.
    """

    def __init__(self, folder: Path, task: str) -> None:
        make_folders(folder)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(folder / f"{task}.page", flags, 0o600)
        try:
            os.ftruncate(descriptor, _SIZE)
            self._map = mmap.mmap(descriptor, _SIZE)
        finally:
            os.close(descriptor)

    def read(self) -> Suspect | None:
        """Return the line that this task's previous process was processing, or None."""
        unit, attempt, file, begin, end = _FORM.unpack_from(self._map)
        return Suspect(unit, attempt, Line(file, begin, end)) if unit and begin < end else None

    def write(self, unit: int, attempt: int, file: int, begin: int, end: int) -> None:
        """Record that the attempt is processing this line."""
        _FORM.pack_into(self._map, 0, unit, attempt, file, begin, end)

    def clear(self) -> None:
        """Record that the attempt is processing no line."""
        if not self._map.closed:
            _FORM.pack_into(self._map, 0, 0, 0, 0, 0, 0)

    def close(self) -> None:
        """Close the page, but keep its file for the task's next process."""
        self._map.close()


class LogUnit:
    """The unit of an attempt. Read the unit once, with `lines()`, `texts()` or `blocks()`.

    id: id of the unit in its ledger. attempt: number of the attempt, from 1 on. bytes: size of all ranges. tries:
        number of earlier failures.
    """

    def __init__(
        self,
        work: Work,
        root: str,
        decoder: LineDecoder,
        line_bytes_max: int = LINE_BYTES_MAX,
        page: SuspectPage | None = None,
        *,
        header_lines: int = 0,
        whole: bool = False,
    ) -> None:
        """`header_lines`, `whole`: see `UnitOptions`."""
        self.id = work.unit
        self.attempt = work.attempt
        self.bytes = work.bytes
        self.tries = work.tries
        self._work = work
        self._page = page
        self._root = root
        self._decoder = decoder
        self._line_bytes_max = line_bytes_max
        self._header_lines, self._whole = header_lines, whole
        self._blocks = self._read()
        self._digests: list[str] = []
        # The block whose lines are being returned, their offsets once requested, and the last line: as an index, or
        # as the number of remaining lines.
        self._chunk: Chunk | None = None
        self._block: Block | None = None
        self._offsets: list[int] | None = None
        self._index = -1
        self._left: Iterator[str] | None = None
        self._count = 0
        self._broken: HeronError | None = None
        #: The lines from this number on are processed separately, so that an error belongs to its line. None if the
        #: last try raised an exception, until the first suspect line is known.
        self.apart: int | None = None if work.raised else 0
        #: The number of the first of the lines that are now processed together; None if lines are processed separately.
        self.together: int | None = None

    @property
    def place(self) -> tuple[str, int]:
        """The key of the file where the unit begins, and the offset. Unlike the id, they do not depend on timing."""
        return self._work.chunks[0].key, self._work.chunks[0].begin

    def __repr__(self) -> str:
        return f"LogUnit({self.id}, attempt {self.attempt}, {self.bytes} bytes)"

    def lines(self) -> Iterator[str]:
        """Yield the lines without their line ends, in file order."""
        for texts in self.texts():
            yield from texts if self._left is None else self._left

    def texts(self) -> Iterator[list[str]]:
        """Yield the lines of a block together. Errors then cannot be assigned to a line.

        After a failure, or if a line of the block cannot be decoded, each line is yielded separately, so that an error
        can be assigned to its line.
        """
        for block in self._blocks:
            key, offset, data = block
            self._block, self._offsets, self._index, self._left = block, None, -1, None
            if self._page is None:
                try:
                    texts = self._decoder.texts(key, offset, data)
                except HeronError:
                    pass
                else:
                    self._count, self._left = len(texts), iter(texts)
                    yield texts
                    self._blame_nothing()
                    continue
            # Decode the lines one by one, so that an error belongs to its line.
            self._offsets = offsets = offsets_of(offset, data)
            for self._index, one in enumerate(raw_lines(data)):
                if self._page is not None:
                    self._note(self._page)
                try:
                    text = self._decoder.line(key, offsets[self._index], one)
                except HeronError as error:
                    self._broken = error
                    raise
                yield [text]
            self._blame_nothing()

    def located(self) -> Iterator[tuple[str, str, int]]:
        """Yield the lines with the paths of their files, and the offsets of their first bytes."""
        block, path = None, ""
        for text in self.lines():
            assert self._block is not None and self._chunk is not None
            if block is not self._block:
                block, path = self._block, join(self._root, self._chunk.path or self._chunk.key)
            if self._offsets is None:
                self._offsets = offsets_of(self._block.offset, self._block.data)
            yield text, path, self._offsets[self._last]

    def blocks(self) -> Iterator[Block]:
        """Yield complete lines as bytes, in blocks of about 256 KiB. Errors then cannot be assigned to a line."""
        for block in self._blocks:
            self._blame_nothing()
            yield block

    def process_together(self, first: int | None) -> None:
        """Record that lines from number `first` on are processed together; None: they are processed one by one."""
        self.together = first
        if first is not None and self._page is not None:
            self._page.clear()

    # ---- for the worker ---------------------------------------------------------------------
    @property
    def suspect(self) -> Line | None:
        """The most recently returned line, cut to the unit; None if no single line is suspect.

        No single line is suspect if blocks were returned, if lines are processed together, or if a line after the last
        line of a block was requested, because the function then has several lines.
        """
        if self._chunk is None or self._block is None or self.together is not None:
            return None
        index = self._last
        if self._offsets is None:
            self._offsets = offsets_of(self._block.offset, self._block.data)
        if not 0 <= index < len(self._offsets):
            return None
        following = index + 1
        end = self._block.offset + len(self._block.data)
        if following < len(self._offsets):
            end = self._offsets[following]
        return Line(self._chunk.file, self._offsets[index], min(end, self._chunk.end))

    @property
    def _last(self) -> int:
        """The index of the most recently returned line in its block."""
        return self._index if self._left is None else self._count - length_hint(self._left) - 1

    def _note(self, page: SuspectPage) -> None:
        """Record the line that the attempt is processing, in case its process dies."""
        line = self.suspect
        if line is not None:
            page.write(self.id, self.attempt, line.file, line.begin, line.end)

    def _blame_nothing(self) -> None:
        self._block = None
        if self._page is not None:
            self._page.clear()

    def check(self) -> None:
        """Raise the read error that ended the unit early, even if the function has caught it."""
        if self._broken is not None:
            raise self._broken

    def close(self) -> None:
        """Close the file, even if the lines are still in use."""
        self._blocks.close()

    def digests(self) -> list[str]:
        """Return the digest of each chunk's lines, after reading all remaining lines. Raises the errors of `check`."""
        for _ in self._blocks:
            pass
        self.check()
        return self._digests

    def _read(self) -> Generator[Block]:
        for chunk in self._work.chunks:
            self._chunk = chunk
            path = chunk.path or chunk.key
            digest = sha256()
            try:
                with opened(self._root, chunk) as descriptor:
                    begin = chunk.begin
                    if self._header_lines and begin < BLOCK_BYTES:
                        begin = max(begin, _header_end(descriptor, self._header_lines))
                    for lines in read_chunk(
                        descriptor,
                        chunk.key,
                        begin,
                        chunk.end,
                        line_bytes_max=self._line_bytes_max,
                        whole=self._whole,
                    ):
                        digest.update(lines.data)
                        yield Block(chunk.key, lines.offset, lines.data)
            except OSError as error:
                # The disk with the logs has failed: neither the bytes nor the function are the cause.
                self._broken = UnreadError(f"{self._root}/{path} cannot be read, and will be retried: {error}")
                raise self._broken from error
            except UnfinishedLineError as error:
                self._broken = MovedError(f"{self._root}/{path} was truncated while it was read, or is an older copy")
                raise self._broken from error
            except HeronError as error:
                self._broken = error
                raise
            self._digests.append(digest.hexdigest())


def _header_end(descriptor: int, lines: int) -> int:
    """Return the offset after a file's header, or the end of the first block if the header is longer."""
    beginning, offset = os.pread(descriptor, BLOCK_BYTES, 0), 0
    for _ in range(lines):
        offset = beginning.find(b"\n", offset) + 1
        if not offset:
            return len(beginning)
    return offset


@contextmanager
def opened(root: str, chunk: Chunk) -> Iterator[int]:
    """Open a chunk's file for reading. Raises MovedError if the file was replaced before or during the read."""
    try:
        descriptor = open_below(root, chunk.path)
    except (OSError, UnfitFileError) as error:
        raise MovedError(f"{root}/{chunk.path or chunk.key} cannot be read: {error}") from None
    try:
        if not file_matches(chunk.head, descriptor, chunk.tail):
            raise MovedError(f"{root}/{chunk.path} was replaced by another file")
        yield descriptor
        # Checked again after reading: a file that is truncated during the read ends early, and lines would be lost.
        if not file_matches(chunk.head, descriptor, chunk.tail) or os.fstat(descriptor).st_size < chunk.end:
            raise MovedError(f"{root}/{chunk.path} was truncated while it was read")
    finally:
        os.close(descriptor)


def middle(work: Halve, root: str) -> tuple[int, int] | None:
    """Return the file and offset of the inner line start nearest to the middle; None if the unit has only one line.

    Raises MovedError if a file cannot be read.
    """
    goal, before = work.bytes // 2, 0
    best: tuple[int, int, int] | None = None
    for chunk in work.chunks:
        for offset in _starts_near(root, chunk, chunk.begin + goal - before):
            place = before + offset - chunk.begin
            if place and (best is None or abs(place - goal) < best[0]):
                best = abs(place - goal), chunk.file, offset
        before += chunk.end - chunk.begin
    return None if best is None else (best[1], best[2])


def _starts_near(root: str, chunk: Chunk, goal: int) -> Iterator[int]:
    """Yield the beginning of the chunk, and the line starts next to the offset `goal`, if they are in the chunk."""
    yield chunk.begin
    if not chunk.begin <= goal < chunk.end:
        return
    with opened(root, chunk) as descriptor:
        at = goal
        while at < chunk.end:
            piece = os.pread(descriptor, min(_LOOK_BYTES, chunk.end - at), at)
            found = piece.find(b"\n") + 1
            if found:
                if at + found < chunk.end:
                    yield at + found
                break
            if not piece:
                break
            at += len(piece)
        at = goal
        while at > chunk.begin:
            start = max(chunk.begin, at - _LOOK_BYTES)
            # Ignore the line end right before `goal`, which was found above.
            found = os.pread(descriptor, at - start, start).rfind(b"\n") + 1
            if found:
                if start + found > chunk.begin:
                    yield start + found
                return
            at = start
