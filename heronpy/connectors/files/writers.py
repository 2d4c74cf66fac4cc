"""Writers of rows in the formats of a file sink."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from heronpy.api.batch import Batch
from heronpy.connectors.files.columns import ColumnWriter, OpenFile
from heronpy.connectors.files.lines import line_writer, write_each
from heronpy.connectors.files.options import FileOptions


def writer_of(options: FileOptions, file: OpenFile) -> LineWriter | ColumnWriter:
    """Return a writer of rows in the format of a sink."""
    if options.schema is not None:
        return ColumnWriter(file, options.format, options.schema)
    return LineWriter(file, line_writer(options.format, options.fields))


class LineWriter:
    """Writes rows as lines to the open file of a task."""

    def __init__(self, files: OpenFile, line_of: Callable[[Sequence[Any]], bytes]) -> None:
        self._files, self._line_of = files, line_of

    @property
    def bytes(self) -> int:
        """The size of the open file in bytes."""
        return self._files.bytes

    def row(self, values: Sequence[Any]) -> None:
        """Write a tuple. Raises UnfitError if the tuple cannot be written as one line."""
        self._files.append(self._line_of(values))

    def batch(self, batch: Batch) -> dict[int, str]:
        """Write the tuples of a batch; return the indices of tuples that cannot be a line, with the reasons."""
        return write_each(self.row, batch)

    def close(self) -> None:
        """Do nothing: a file of lines needs no footer."""
