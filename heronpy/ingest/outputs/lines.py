"""Lines of text as a table: one file `part-0.txt` per unit."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

from heronpy.ingest.outputs.base import Output, Writer

_BUFFER_BYTES = 256 * 1024


class LineFiles(Output):
    """A table of text files; each row is one line as text or bytes, without a line end."""

    def open(self, stage: Path, lineage: str) -> Writer:
        """Return a writer of one text file; see `Output`."""
        return _LineWriter(stage)


class _LineWriter(Writer):
    def __init__(self, stage: Path) -> None:
        self._file: BinaryIO = open(stage / "part-0.txt", "wb", buffering=_BUFFER_BYTES)

    def write(self, row: Any) -> int:
        data = row if isinstance(row, bytes) else row.encode() if isinstance(row, str) else None
        if data is None:
            raise TypeError(f"a row of LineFiles must be text or bytes, not {type(row).__name__}: {row!r:.200}")
        if b"\n" in data:
            raise ValueError(f"a row of LineFiles must be one line, but this row contains a line break: {row!r:.200}")
        self._file.write(data + b"\n")
        return 1

    def write_many(self, rows: list[Any]) -> int:
        if set(map(type, rows)) != {str}:
            return super().write_many(rows)
        text = "\n".join(rows) + "\n"
        if text.count("\n") != len(rows):
            raise ValueError("a row of LineFiles must be one line, but one of these rows contains a line break")
        self._file.write(text.encode())
        return len(rows)

    def prepare(self) -> None:
        self._file.close()

    def discard(self) -> None:
        self._file.close()
