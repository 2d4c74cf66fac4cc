"""A work unit as `rows(unit)` sees it: some ranges of some files, read as whole lines.

It notes the line that was given out last, so that an error can be blamed on it, and the digest of what was read,
for the lineage.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import NamedTuple

from heronpy.common.errors import HeronError
from heronpy.connectors.textfiles.decoding import LineDecoder
from heronpy.growing.below import UnfitFileError, open_below
from heronpy.growing.chunks import LINE_BYTES_MAX, read_chunk
from heronpy.ingest.ledger.requests import Chunk, Halve, Line, Work
from heronpy.ingest.marks import is_marked
from heronpy.ingest.page import SuspectPage

#: How far behind a place the next line end is looked for at once.
_LOOK_BYTES = 64 * 1024


class MovedError(HeronError):
    """A file is not where the ledger has it, or cannot be read: nothing that the bytes are to blame for."""


class Block(NamedTuple):
    """Whole lines with their ends; `key` names the file, `offset` is that of the first byte."""

    key: str
    offset: int
    data: bytes


class LogUnit:
    """What an attempt processes. Read it once, by `lines()` or by `blocks()`.

    id: of the unit in its ledger. attempt: 1, then 2 ... bytes: of all ranges. tries: how often it has failed before.
    """

    def __init__(
        self,
        work: Work,
        root: str,
        decoder: LineDecoder,
        line_bytes_max: int = LINE_BYTES_MAX,
        page: SuspectPage | None = None,
    ) -> None:
        self.id = work.unit
        self.attempt = work.attempt
        self.bytes = work.bytes
        self.tries = work.tries
        self._work = work
        self._page = page
        self._root = root
        self._decoder = decoder
        self._line_bytes_max = line_bytes_max
        self._blocks = self._read()
        self._digests: list[str] = []
        # The lines of the block that is given out: their offsets, and which was the last.
        self._chunk: Chunk | None = None
        self._offsets: list[int] = []
        self._index = -1
        self._end = 0

    def __repr__(self) -> str:
        return f"LogUnit({self.id}, attempt {self.attempt}, {self.bytes} bytes)"

    def lines(self) -> Iterator[str]:
        """The lines, without their ends, in the order of each file."""
        for block in self._blocks:
            path, offset, data = block
            raw = data.split(b"\n")[: -1 if data.endswith(b"\n") else None]
            self._offsets, at = [], offset
            for one in raw:
                self._offsets.append(at)
                at += len(one) + 1
            self._end = at
            try:
                texts, _ = self._decoder.split(path, offset, data)
            except HeronError:
                texts = None
            if texts is not None and self._page is None:
                for self._index, text in enumerate(texts):
                    yield text
                continue
            # One by one: the error is that of its line.
            for self._index, one in enumerate(raw):
                if self._page is not None:
                    self._note(self._page)
                yield self._decoder.line(path, self._offsets[self._index], one)

    def blocks(self) -> Iterator[Block]:
        """Whole lines as bytes, in blocks of about 256 KiB; an error cannot be blamed on a line then."""
        for block in self._blocks:
            self._offsets = []
            yield block

    # ---- for the worker ---------------------------------------------------------------------
    @property
    def suspect(self) -> Line | None:
        """The line that was given out last, as far as it lies in the unit; None when blocks were given out."""
        if self._chunk is None or not 0 <= self._index < len(self._offsets):
            return None
        following = self._index + 1
        end = self._offsets[following] if following < len(self._offsets) else self._end
        return Line(self._chunk.file, self._offsets[self._index], min(end, self._chunk.end))

    def _note(self, page: SuspectPage) -> None:
        """Say at which line the attempt is, in case that its process dies of it."""
        line = self.suspect
        if line is not None:
            page.write(self.id, self.attempt, line.file, line.begin, line.end)

    def digests(self) -> list[str]:
        """The digest of the lines of each chunk; what `rows` has left unread is read for it."""
        for _ in self._blocks:
            pass
        return self._digests

    def _read(self) -> Iterator[Block]:
        for chunk in self._work.chunks:
            self._chunk = chunk
            digest = sha256()
            with opened(self._root, chunk) as descriptor:
                name = chunk.path or chunk.key
                for lines in read_chunk(descriptor, name, chunk.begin, chunk.end, line_bytes_max=self._line_bytes_max):
                    digest.update(lines.data)
                    yield Block(name, lines.offset, lines.data)
            self._digests.append(digest.hexdigest())


@contextmanager
def opened(root: str, chunk: Chunk) -> Iterator[int]:
    """A descriptor of the file of a chunk; MovedError when it is another one by now."""
    try:
        descriptor = open_below(root, chunk.path)
    except (OSError, UnfitFileError) as error:
        raise MovedError(f"{root}/{chunk.path or chunk.key} cannot be read: {error}") from None
    try:
        if not is_marked(chunk.head, descriptor):
            raise MovedError(f"{root}/{chunk.path} is another file by now")
        yield descriptor
    finally:
        os.close(descriptor)


def middle(work: Halve, root: str) -> tuple[int, int] | None:
    """File and offset of the line start nearest to the middle of all bytes, not the first one; None if there is none.

    MovedError when a file cannot be read.
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
    """The beginning of the chunk, and the line starts next to a place, where they are in it."""
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
            # Not the end of the line before `goal` itself: that is what was found above.
            found = os.pread(descriptor, at - start, start).rfind(b"\n") + 1
            if found:
                if start + found > chunk.begin:
                    yield start + found
                return
            at = start
