"""Parquet files as a table, written with pyarrow (extra `parquet`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heronpy.common.errors import ConfigError
from heronpy.ingest.outputs.base import Output, Writer

if TYPE_CHECKING:
    import pyarrow as pa

#: Number of rows that are converted to columns together, and written as one row group.
BATCH_ROWS = 20_000
LINEAGE_KEY = "heronpy.unit"


class ParquetTable(Output):
    """A table of Parquet files with the columns of `schema`.

    `schema` is a pyarrow schema, or a dict from each column to the name of its type, such as "string" or "int64". A row
    is a list or tuple of the values by column, a dict, or a pyarrow RecordBatch or Table of many rows.
    """

    def __init__(self, table: str, schema: pa.Schema | Mapping[str, str]) -> None:
        super().__init__(table)
        self.schema = _schema(schema)

    def load(self) -> None:
        """Import pyarrow; see `Output`."""
        import pyarrow as pa
        import pyarrow.parquet

        pa.array([""])  # imports pandas if it is installed: 0.3 s of CPU

    def open(self, stage: Path, lineage: str) -> Writer:
        """Return a writer of a Parquet file; see `Output`."""
        return _ParquetWriter(stage, self.schema, lineage)


class _ParquetWriter(Writer):
    def __init__(self, stage: Path, schema: pa.Schema, lineage: str) -> None:
        import pyarrow.parquet as pq

        self._schema = schema
        self._names = list(schema.names)
        self._columns: list[list[Any]] = [[] for _ in self._names]
        metadata = {**(schema.metadata or {}), LINEAGE_KEY.encode(): lineage.encode()}
        self._writer = pq.ParquetWriter(stage / "part-0.parquet", schema.with_metadata(metadata))

    def write(self, row: Any) -> int:
        if hasattr(row, "schema"):
            return self._write_arrow(row)
        values: Sequence[Any]
        if isinstance(row, Mapping):
            if row.keys() != set(self._names):
                raise ValueError(f"a row has the columns {sorted(map(str, row))}, but the table has {self._names}")
            values = [row[name] for name in self._names]
        elif isinstance(row, list | tuple):
            values = row
        else:
            raise TypeError(f"a ParquetTable row must be a list, tuple, dict or RecordBatch, not {type(row).__name__}")
        if len(values) != len(self._columns):
            raise ValueError(f"a row has {len(values)} values for {len(self._columns)} columns: {row!r:.200}")
        for column, value, field in zip(self._columns, values, self._schema, strict=True):
            # Check each value now, so that the error belongs to this row and not to its group of rows.
            _check(value, field)
            column.append(value)
        if len(self._columns[0]) >= BATCH_ROWS:
            self._flush()
        return 1

    def write_many(self, rows: list[Any]) -> int:
        if not {list, tuple}.issuperset(map(type, rows)):
            return super().write_many(rows)
        for column, values in zip(self._columns, zip(*rows, strict=True), strict=True):
            column.extend(values)
        # pyarrow checks each value when it builds the columns, so a second check here would only cost time.
        if len(self._columns[0]) >= BATCH_ROWS:
            self._flush()
        return len(rows)

    def _write_arrow(self, rows: Any) -> int:
        import pyarrow as pa

        self._flush()
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        self._writer.write_table(table.cast(self._schema))
        return int(table.num_rows)

    def _flush(self) -> None:
        import pyarrow as pa

        if not self._columns[0]:
            return
        for column, field in zip(self._columns, self._schema, strict=True):
            if pa.types.is_integer(field.type) and not _WHOLE.issuperset(map(type, column)):
                for value in column:
                    _check(value, field)
        arrays = [pa.array(column, field.type) for column, field in zip(self._columns, self._schema, strict=True)]
        for array, field in zip(arrays, self._schema, strict=True):
            if array.null_count and not field.nullable:
                raise ValueError(f"column {field.name!r} has no value, but is not nullable")
        self._writer.write_batch(pa.record_batch(arrays, schema=self._schema))
        self._columns = [[] for _ in self._names]

    def prepare(self) -> None:
        self._flush()
        self._writer.close()

    def discard(self) -> None:
        self._writer.close()


#: Types of values that an integer column stores without loss.
_WHOLE = frozenset({int, type(None)})
#: Maps a column type to the types of values that always fit, so that pyarrow need not check each value.
_FITTING: dict[str, type] = {"string": str, "large_string": str, "double": float, "bool": bool, "binary": bytes}


def _check(value: Any, field: pa.Field) -> None:
    """Raise ValueError or TypeError if a value does not fit its column."""
    if value is None:
        if not field.nullable:
            raise ValueError(f"column {field.name!r} has no value, but is not nullable")
        return
    kind = str(field.type)
    if type(value) is _FITTING.get(kind) or (kind == "int64" and type(value) is int and -(1 << 63) <= value < 1 << 63):
        return
    import pyarrow as pa

    try:
        pa.scalar(value, field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        raise ValueError(f"column {field.name!r} is {kind}: {error}") from None
    if pa.types.is_integer(field.type) and value != int(value):  # pyarrow would truncate it
        raise ValueError(f"column {field.name!r} is {kind}, but {value!r} is not a whole number")


def _schema(given: pa.Schema | Mapping[str, str]) -> pa.Schema:
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError:
        raise ConfigError("ParquetTable needs pyarrow; run: pip install 'heronpy[parquet]'") from None
    if isinstance(given, pa.Schema):
        schema = given
    else:
        fields = []
        for name, kind in given.items():
            try:
                fields.append(pa.field(name, pa.type_for_alias(kind)))
            except ValueError:
                raise ConfigError(f"column {name!r} of a ParquetTable: pyarrow has no type {kind!r}") from None
        schema = pa.schema(fields)
    if not schema.names:
        raise ConfigError("a ParquetTable needs at least one column; give schema={name: type}")
    return schema
