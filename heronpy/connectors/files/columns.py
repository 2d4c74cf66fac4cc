"""Writes columnar files, Arrow or Parquet, from record batches or from values.

Small batches are gathered up to `GATHERED_BYTES`, so that a file has few large row groups. Gathered batches are written
before the file is closed. A file cannot be read before it is closed, because its index is at its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from heronpy.api.batch import Batch
from heronpy.api.errors import MissingLibraryError
from heronpy.common.errors import ConfigError
from heronpy.connectors.files.lines import UnfitError
from heronpy.wire.arrow_values import arrow, batch_problem, schema_problem

if TYPE_CHECKING:
    import pyarrow as pa

ARROW, PARQUET = "arrow", "parquet"
#: Bytes gathered in memory before a write; number of rows of one group in a Parquet file.
GATHERED_BYTES, GROUP_ROWS = 8 << 20, 1 << 20
#: Number of added batches that are combined into one.
SMALL_MAX = 256


def format_problem(format_name: str, schema: pa.Schema) -> str | None:
    """Return why this format cannot store this schema, as a clause ("field 'x' ..."), or None."""
    wrong = schema_problem(schema)
    if wrong or format_name == ARROW:
        return wrong
    pa = arrow()
    for field in schema:
        alone = pa.schema([field])
        try:
            with _parquet().ParquetWriter(pa.BufferOutputStream(), alone) as writer:
                writer.write_table(alone.empty_table())
        except (pa.ArrowException, ValueError):
            return (
                f"field {field.name!r} is {field.type}, which the installed pyarrow cannot write as Parquet;"
                " use format='arrow'"
            )
    return None


def _parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise MissingLibraryError(
            "format='parquet' of a FileSink needs pyarrow with Parquet; install pyarrow"
        ) from None
    return pyarrow.parquet


#: An alias, because `OpenFile` has an attribute named `bytes`.
_Line = bytes


class OpenFile(Protocol):
    """The open file to which rows are written."""

    bytes: int

    def append(self, line: _Line) -> None:
        """Add a line."""

    def stream(self) -> BinaryIO:
        """Return the file; the caller updates `bytes` and does not close the file."""


class ColumnWriter:
    """Writes rows as columns to the open file of a task."""

    def __init__(self, files: OpenFile, format_name: str, schema: pa.Schema) -> None:
        self._files, self._format, self._schema = files, format_name, schema
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_bytes = 0
        #: The batches that were added last. A batch of one row needs more than 1 KB of memory, so they are combined.
        self._small: list[pa.RecordBatch] = []
        self._writer: Any = None

    @property
    def bytes(self) -> int:
        """The total size of the open file and the gathered rows, in bytes."""
        return self._files.bytes + self._gathered_bytes

    def row(self, values: Sequence[Any]) -> None:
        """Add a tuple. Raises UnfitError if the tuple does not fit the schema."""
        self._add(self._made([[value] for value in values]))

    def batch(self, batch: Batch) -> dict[int, str]:
        """Add the tuples of a batch; return the indices of tuples that do not fit the schema, with the reasons."""
        came = batch.record_batch
        if came is not None and came.schema.equals(self._schema):
            self._add(came)
            return {}
        return self._add_fitting(list(batch.columns.values()), 0, len(batch))

    def _add_fitting(self, columns: Sequence[Sequence[Any]], first: int, count: int) -> dict[int, str]:
        """Add the rows of a range that fit the schema; a range with a row that does not fit is halved."""
        try:
            self._add(self._made([column[first : first + count] for column in columns]))
        except UnfitError as error:
            if count == 1:
                return {first: str(error)}
            half = count // 2
            found = self._add_fitting(columns, first, half)
            return found | self._add_fitting(columns, first + half, count - half)
        return {}

    def close(self) -> None:
        """Write the gathered rows and the file's footer. The owner of the file renames and closes it."""
        self._write()
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _made(self, columns: Sequence[Sequence[Any]]) -> pa.RecordBatch:
        pa, schema = arrow(), self._schema
        if len(columns) != len(schema):
            raise UnfitError(f"the row has {len(columns)} values, but the schema has {len(schema)} fields")
        arrays = []
        for column, field in zip(columns, schema, strict=True):
            try:
                arrays.append(pa.array(column, field.type))
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise UnfitError(f"the value of {field.name!r} is not {field.type} ({error})") from None
        made = pa.RecordBatch.from_arrays(arrays, schema=schema)
        wrong = batch_problem(made)
        if wrong:
            raise UnfitError(f"it {wrong}")
        return made

    def _add(self, batch: pa.RecordBatch) -> None:
        self._small.append(batch)
        self._gathered_bytes += batch.nbytes
        if len(self._small) >= SMALL_MAX:
            self._combine()
        if self._gathered_bytes >= GATHERED_BYTES:
            self._write()

    def _combine(self) -> None:
        small, self._small = self._small, []
        if small:
            self._gathered += arrow().Table.from_batches(small, self._schema).combine_chunks().to_batches()

    def _write(self) -> None:
        self._combine()
        gathered, self._gathered, self._gathered_bytes = self._gathered, [], 0
        if not gathered:
            return
        pa, file = arrow(), self._files.stream()
        if self._writer is None:
            self._writer = (
                pa.ipc.new_file(file, self._schema)
                if self._format == ARROW
                else _parquet().ParquetWriter(file, self._schema)
            )
        table = pa.Table.from_batches(gathered, self._schema).combine_chunks()
        if self._format == ARROW:
            self._writer.write_table(table)
        else:
            self._writer.write_table(table, row_group_size=GROUP_ROWS)
        self._files.bytes = file.tell()


def common_schema(component: str, given: pa.Schema | None, declared: Sequence[pa.Schema | None]) -> pa.Schema:
    """Return the schema of a sink's rows. Raises ConfigError if the schema is unknown or ambiguous.

    `given` is the sink's own schema. `declared` contains the schema of each input stream: None if it is unknown or not
    declared.
    """
    found = [schema for schema in (given, *declared) if schema is not None]
    if not found or (given is None and None in declared):
        raise ConfigError(
            f"{component} writes columns, but not all of its input streams declare an Arrow schema; declare one"
            " with Stream(schema=...), or pass a pyarrow.Schema as schema="
        )
    pa = arrow()
    if not all(isinstance(schema, pa.Schema) for schema in found):
        raise ConfigError(f"schema of {component} must be a pyarrow.Schema, not {type(given).__name__}")
    if any(not schema.equals(found[0]) for schema in found[1:]):
        raise ConfigError(
            f"{component} writes one schema to its files, but the schemas of its inputs and of schema= differ; use"
            " a separate sink for each schema, or cast the columns before the sink"
        )
    return found[0]
