"""Divides the lines of a set of files among readers, and reads them.

Files are cut into blocks of a fixed size. Block b of a file belongs to its *lane* b mod 64, and a line belongs to the
block with its first byte. A lane is a partition of its file. A rule assigns each lane to a reader, regardless of
other files and of the lengths that the readers see. So each line has exactly one reader without coordination, and
lanes move with their positions when the number of readers changes. Memory is bounded by one block and one line. A
reader returns lines in the order of the files' names, and in file order within each file.
"""

from __future__ import annotations

import glob
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from itertools import count
from typing import BinaryIO, Final, NamedTuple

from heronpy.connectors.textfiles.decoding import LineDecoder, TextFileError
from heronpy.growing.chunks import BLOCK_BYTES, LINE_BYTES_MAX

#: Number of lanes of a file. It cannot change, because saved positions depend on it.
LANES: Final = 64
#: Position of a lane that was read to its end.
_END: Final = -1

#: Maps a lane of a file to the offset of its next byte, and the block size for which this offset is valid.
Positions = MutableMapping[tuple[str, int], tuple[int, int]]


class LineBlock(NamedTuple):
    """The lines of one block. `offsets` contains the offset of each line's first byte."""

    path: str
    lane: int
    lines: list[str]
    offsets: list[int]
    #: Position of its lane once the whole block is done.
    end: int

    @property
    def ref(self) -> str:
        """Return the reference to the file for `LineShare.line_at`."""
        return self.path


def absolute_patterns(paths: object) -> list[str]:
    """Return the patterns of a configuration value (one pattern or a list), made absolute.

    A task does not run in the directory where its topology was submitted.
    """
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    if not isinstance(paths, Iterable):
        raise TypeError(f"paths of text files must be a path or a list of paths, given: {paths!r}")
    paths = [os.fspath(path) for path in paths]
    if "" in paths:
        raise ValueError("a path pattern for text files is empty; name the files")
    patterns = [os.path.abspath(os.path.expanduser(os.fspath(path))) for path in paths]
    if not patterns:
        raise ValueError("paths of text files must name at least one file")
    return patterns


def find_files(patterns: list[str], may_be_gone: bool = False) -> list[str]:
    """Return the files that match the patterns, sorted and without duplicates.

    A pattern without matches is an error, unless its files were read before and may be gone.
    """
    files: set[str] = set()
    for pattern in patterns:
        if os.path.isfile(pattern):
            files.add(pattern)
            continue
        matches = [path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path)]
        if not matches and not may_be_gone:
            raise TextFileError(
                f"no file matches {pattern}; check the path, which must be readable "
                "on every machine that runs the topology"
            )
        files.update(matches)
    return sorted(files)


class LineShare:
    """The lanes of one reader, which are read block by block."""

    def __init__(
        self,
        files: list[str],
        own: Callable[[str, int], Iterable[int]],
        positions: Positions,
        *,
        owner: str = "This reader",
        encoding: str = "utf-8",
        decode_errors: str = "strict",
        skip_header: int = 0,
        block_bytes: int = BLOCK_BYTES,
        line_bytes_max: int = LINE_BYTES_MAX,
    ) -> None:
        """`own(path, lanes)` returns this reader's lanes of a file; `positions` is kept up to date.

        Raises TextFileError, naming the `owner`, if the positions do not fit the files or the block size.
        """
        self._files = list(files)
        self._own = own
        self._positions = positions
        self._decoder = LineDecoder(encoding, decode_errors)
        self._skip_header = skip_header
        self._block_bytes = block_bytes
        self._line_bytes_max = line_bytes_max
        #: The most recently returned block, which counts as not done.
        self._given: LineBlock | None = None
        self._left: int | None = None
        self._check(owner)
        self._blocks = self._walk()

    def _check(self, owner: str) -> None:
        for (path, _), (offset, block_bytes) in self._positions.items():
            if block_bytes != self._block_bytes:
                raise TextFileError(
                    f"{owner} has {self._block_bytes} bytes per block, but its positions were saved with {block_bytes};"
                    f" restore with {block_bytes} bytes per block"
                )
            # A position at the start of a block may be beyond the end of the file; only the lane's previous block
            # certainly existed.
            reached = offset if offset % block_bytes else offset - LANES * block_bytes
            if reached >= 0 and _known_size_of(path, reached) <= reached:
                raise TextFileError(
                    f"{path} has become shorter than the saved position {reached};"
                    " restore the file, or start without the checkpoint"
                )

    def divide(self) -> None:
        """Continue with the reader's current lanes; lanes that it has begun keep their positions."""
        self.close()
        self._left = None
        self._blocks = self._walk()

    def keep(self, done: int) -> None:
        """Record that this many lines of the last block are done."""
        if self._given is not None:
            path, lane, lines, offsets, end = self._given
            self._positions[path, lane] = (offsets[done] if done < len(lines) else end, self._block_bytes)

    def next_block(self) -> LineBlock | None:
        """Return the next block of this share with lines, or None at the end. The previous block counts as done."""
        if self._given is not None:
            self.keep(len(self._given.lines))
        self._given = next(self._blocks, None)
        return self._given

    def bytes_left(self) -> int:
        """Return the number of unread bytes of this reader's lanes, for the file sizes at the first call."""
        if self._left is None:
            self._left = sum(map(self._bytes_left_of, self._files))
        return self._left

    def _bytes_left_of(self, path: str) -> int:
        size = self._block_bytes
        length = _size_of(path)
        blocks, found = -(-length // size), 0
        for offset in self._lanes_of(path, min(LANES, blocks)).values():
            mine = range(offset // size, blocks, LANES)
            found += len(mine) * size - (blocks * size - length if blocks - 1 in mine else 0)
        return found

    def _lanes_of(self, path: str, most: int = LANES) -> dict[int, int]:
        """Return the lanes of a file that this reader has to read, with their start positions."""
        size = self._block_bytes
        found = {lane: self._positions.get((path, lane), (lane * size, size))[0] for lane in self._own(path, most)}
        return {lane: offset for lane, offset in found.items() if offset != _END}

    def _walk(self) -> Iterator[LineBlock]:
        for path in self._files:
            lanes = self._lanes_of(path)
            if lanes:
                yield from self._read_file(path, lanes)

    def _read_file(self, path: str, lanes: dict[int, int]) -> Iterator[LineBlock]:
        try:
            file = open(path, "rb")
        except OSError as error:
            raise _unreadable(path, 0, error) from error
        size = self._block_bytes
        with file:
            length = os.fstat(file.fileno()).st_size
            for number in count(min(lanes.values()) // size):
                lane = number % LANES
                if lane not in lanes or number < lanes[lane] // size:
                    continue
                found = self._read(file, path, number * size)
                if found is None:
                    break
                start, data = found
                if data:
                    block = self._split(path, lane, lanes[lane], start, data, (number + LANES) * size)
                    if block.lines:
                        yield block
                if self._left is not None:
                    self._left -= min(self._left, size, max(0, length - number * size))
        for lane in range(min(number, LANES)):
            if lane in lanes:
                self._positions[path, lane] = (_END, size)

    def line_at(self, path: str, offset: int) -> str:
        """Read the line that starts at `offset` again."""
        try:
            with open(path, "rb") as file:
                file.seek(offset)
                data = self._complete(file, path, offset, b"")
        except OSError as error:
            raise _unreadable(path, offset, error) from error
        return self._decoder.line(path, offset, data)

    def close(self) -> None:
        self._blocks = iter(())

    def _read(self, file: BinaryIO, path: str, begin: int) -> tuple[int, bytes] | None:
        """Return the lines that start in the block at `begin`, and their offsets; None past the end of the file."""
        try:
            # One byte more, to detect a line that starts exactly at `begin`.
            before = 1 if begin else 0
            file.seek(begin - before)
            data = file.read(self._block_bytes + before)
            if not data:
                return None
            start = begin
            if before:
                newline = data.find(b"\n")
                if newline < 0:
                    return begin, b""
                start = begin + newline
                data = data[newline + 1 :]
            if data and not data.endswith(b"\n"):
                data = self._complete(file, path, start, data)
        except OSError as error:
            raise _unreadable(path, begin, error) from error
        return start, data

    def _complete(self, file: BinaryIO, path: str, start: int, data: bytes) -> bytes:
        """Return `data`, which begins at `start`, with the rest of its last line."""
        data += file.readline(self._line_bytes_max + 1)
        line_start = data.rfind(b"\n", 0, len(data) - 1) + 1
        if len(data) - line_start > self._line_bytes_max:
            raise TextFileError(
                f"{path} has a line of more than {self._line_bytes_max} bytes at "
                f"byte {start + line_start}; check that it is a text file"
            )
        return data

    def _split(self, path: str, lane: int, begin: int, start: int, data: bytes, end: int) -> LineBlock:
        lines, offsets = self._decoder.split(path, start, data)
        skip = bisect_left(offsets, begin)
        if start == 0:
            if self._skip_header > len(lines) and len(data) >= self._block_bytes:
                raise TextFileError(
                    f"the header of {path} is longer than its first {self._block_bytes} bytes; skip fewer lines"
                )
            skip = max(skip, self._skip_header)
        return LineBlock(path, lane, lines[skip:], offsets[skip:], end)


def read_lanes(path: str, block_bytes: int) -> dict[tuple[str, int], tuple[int, int]]:
    """Return the positions of the lanes of a file that was read to its end."""
    return {(path, lane): (_END, block_bytes) for lane in range(LANES)}


def _size_of(path: str) -> int:
    """Return the size of a file in bytes; 0 if it does not exist, because opening it reports the error."""
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _known_size_of(path: str, reached: int) -> int:
    try:
        return os.path.getsize(path)
    except OSError as error:
        raise _unreadable(path, reached, error) from error


def _unreadable(path: str, offset: int, error: OSError) -> TextFileError:
    return TextFileError(
        f"{path} cannot be read at byte {offset} ({error.strerror or error}); check that it exists and is readable"
    )
