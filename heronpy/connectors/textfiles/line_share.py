"""Which lines of a set of files belong to which reader, and reading them.

Files are cut into blocks of a fixed size. Block b of file f belongs to reader (f + b) mod n, and a
line belongs to the block in which its first byte lies. For files that are new to a restored reader,
a hash of the path replaces f, so it does not matter when each reader sees them. So
each line has exactly one reader without any coordination, even if readers see different lengths
of a growing file. Memory is bounded by one block and one line. Lines of one reader come in file order.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO, NamedTuple

from heronpy.common.hashing import stable_hash
from heronpy.connectors.textfiles.decoding import LineDecoder, TextFileError
from heronpy.growing.chunks import BLOCK_BYTES, LINE_BYTES_MAX


class Position(NamedTuple):
    """A reading position: the next block, or how many lines of that block are done."""

    file_index: int
    block: int
    lines_done: int


class LineBlock(NamedTuple):
    """The lines of one block. `offsets` has the offset of each line's first byte."""

    path: str
    position: Position
    lines: list[str]
    offsets: list[int]

    @property
    def ref(self) -> str:
        """What `LineShare.line_at` knows the file by."""
        return self.path


def absolute_patterns(paths: Any) -> list[str]:
    """The patterns of a configuration value (one, or a list), made absolute.

    A task runs in another directory than the one where its topology was submitted.
    """
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    if not isinstance(paths, Iterable):
        raise TypeError(f"paths of text files must be a path or a list of paths, given: {paths!r}")
    patterns = [os.path.abspath(os.path.expanduser(os.fspath(path))) for path in paths]
    if not patterns:
        raise ValueError("paths of text files must name at least one file")
    return patterns


def find_files(patterns: list[str], may_be_gone: bool = False) -> list[str]:
    """The files that the patterns match, sorted, each once.

    A pattern that matches none is an error, unless they may be gone because they were read before.
    """
    files: set[str] = set()
    for pattern in patterns:
        if os.path.isfile(pattern):
            files.add(pattern)
            continue
        matches = [path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path)]
        if not matches and not may_be_gone:
            raise TextFileError(
                f"no file matches {pattern}; check the path, it must be readable "
                "on every machine that runs the topology"
            )
        files.update(matches)
    return sorted(files)


class LineShare:
    """The share of one of `readers` readers."""

    def __init__(
        self,
        files: list[str],
        index: int,
        readers: int,
        *,
        encoding: str = "utf-8",
        decode_errors: str = "strict",
        skip_header: int = 0,
        block_bytes: int = BLOCK_BYTES,
        line_bytes_max: int = LINE_BYTES_MAX,
    ) -> None:
        self._files = list(files)
        #: This number of files is assigned by index, later ones by a hash of their path.
        self._placed = len(self._files)
        self._index = index
        self._readers = readers
        self._decoder = LineDecoder(encoding, decode_errors)
        self._skip_header = skip_header
        self._block_bytes = block_bytes
        self._line_bytes_max = line_bytes_max
        self._file: BinaryIO | None = None
        self._open_index = -1
        self._next = Position(0, self._first_block(0), 0)

    def seek(self, position: Position) -> None:
        """Continues from the position of a `LineBlock`."""
        self._next = position

    def to_state(self, position: Position) -> dict[str, Any]:
        """What `restore` needs to continue from a position, in plain values."""
        return {
            "files": list(self._files),
            "placed": self._placed,
            "position": list(position),
            "reader": self._index,
            "readers": self._readers,
            "block_bytes": self._block_bytes,
        }

    def restore(self, state: Mapping[str, Any], owner: str) -> None:
        """Continues from a state. Files that are new since then come after the known ones.

        Refuses a state of another share: with a different number of readers or block size, the
        lines would belong to other readers.
        """
        for key, now, what in (
            ("readers", self._readers, "tasks"),
            ("block_bytes", self._block_bytes, "bytes per block"),
        ):
            if state[key] != now:
                raise TextFileError(
                    f"{owner} has {now} {what}, but its position was saved with {state[key]}; "
                    f"restore with {state[key]} {what}"
                )
        if state["reader"] != self._index:
            raise TextFileError(
                f"{owner} is reader {self._index}, but its position is that of reader "
                f"{state['reader']}; keep the order of its tasks"
            )
        known = [str(path) for path in state["files"]]
        self._placed = int(state["placed"])
        self._files = known + sorted(set(self._files).difference(known))
        position = Position(*state["position"])
        if position.file_index < len(known):
            self._check_length(known[position.file_index], position)
        elif position.file_index < len(self._files):
            position = Position(position.file_index, self._first_block(position.file_index), 0)
        self._next = position

    def _check_length(self, path: str, position: Position) -> None:
        begin = position.block * self._block_bytes
        try:
            size = os.path.getsize(path)
        except OSError as error:
            raise _unreadable(path, begin, error) from error
        # A reader that saw the end of the file is at most one round of blocks past it.
        if begin and size <= begin - self._readers * self._block_bytes:
            raise TextFileError(
                f"{path} has become shorter than the position {begin} that was reached in it; "
                "restore the file, or start without the checkpoint"
            )

    @property
    def position(self) -> Position:
        """The position of the block that `next_block` reads next."""
        return self._next

    def next_block(self) -> LineBlock | None:
        """The next block of this share that has lines, or None at the end of the share."""
        while self._next.file_index < len(self._files):
            position = self._next
            path = self._files[position.file_index]
            file = self._open(position.file_index)
            begin = position.block * self._block_bytes
            found = self._read(file, path, begin)
            if found is None:
                following = position.file_index + 1
                self._next = Position(following, self._first_block(following), 0)
                continue
            self._next = Position(position.file_index, position.block + self._readers, 0)
            start, data = found
            if data:
                block = self._split(path, position, start, data)
                if block.lines:
                    return block
        self.close()
        return None

    def line_at(self, path: str, offset: int) -> str:
        """The line that starts at `offset`, read again."""
        try:
            with open(path, "rb") as file:
                file.seek(offset)
                data = self._complete(file, path, offset, b"")
        except OSError as error:
            raise _unreadable(path, offset, error) from error
        return self._decoder.line(path, offset, data)

    def close(self) -> None:
        """Closes the open file."""
        if self._file is not None:
            self._file.close()
        self._file = None
        self._open_index = -1

    def _first_block(self, file_index: int) -> int:
        place = file_index
        if self._placed <= file_index < len(self._files):
            place = stable_hash(self._files[file_index])
        return (self._index - place) % self._readers

    def _open(self, file_index: int) -> BinaryIO:
        if self._open_index != file_index or self._file is None:
            self.close()
            path = self._files[file_index]
            try:
                self._file = open(path, "rb")
            except OSError as error:
                raise _unreadable(path, 0, error) from error
            self._open_index = file_index
        return self._file

    def _read(self, file: BinaryIO, path: str, begin: int) -> tuple[int, bytes] | None:
        """The lines that start in the block at `begin`, and their offsets; None past the end of the file."""
        try:
            # One byte more, to see whether a line starts exactly at `begin`.
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
        """`data`, which was read from `start`, plus the rest of its last line."""
        data += file.readline(self._line_bytes_max + 1)
        line_start = data.rfind(b"\n", 0, len(data) - 1) + 1
        if len(data) - line_start > self._line_bytes_max:
            raise TextFileError(
                f"{path} has a line of more than {self._line_bytes_max} bytes at "
                f"byte {start + line_start}; is it a text file?"
            )
        return data

    def _split(self, path: str, position: Position, start: int, data: bytes) -> LineBlock:
        lines, offsets = self._decoder.split(path, start, data)
        skip = position.lines_done
        if start == 0 and position.block == 0:
            if self._skip_header > len(lines) and len(data) >= self._block_bytes:
                raise TextFileError(
                    f"the header of {path} is longer than its first {self._block_bytes} bytes; skip fewer lines"
                )
            skip = max(skip, self._skip_header)
        first = position._replace(lines_done=min(skip, len(lines)))
        return LineBlock(path, first, lines[skip:], offsets[skip:])


def _unreadable(path: str, offset: int, error: OSError) -> TextFileError:
    return TextFileError(
        f"{path} cannot be read at byte {offset} ({error.strerror or error}); check that it exists and is readable"
    )
