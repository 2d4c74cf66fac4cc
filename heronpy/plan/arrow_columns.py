"""The many tuples of one emit that are an Arrow record batch of the schema that their stream declares. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from heronpy.plan.grouping import All, Chooser, Fields, Lowest, Shuffle
from heronpy.wire.arrow_values import arrow, batch_problem, schema_of

if TYPE_CHECKING:
    import pyarrow as pa

#: The schema of a topology is read once in a process.
declared = lru_cache(maxsize=256)(schema_of)


class ArrowColumns(NamedTuple):
    """The tuples of a record batch of the declared schema."""

    batch: pa.RecordBatch

    @property
    def size(self) -> int:
        """The number of tuples."""
        rows: int = self.batch.num_rows
        return rows

    def part(self, low: int, high: int) -> ArrowColumns:
        """The tuples low .. high-1, as far as there are any; nothing is copied."""
        return ArrowColumns(self.batch.slice(low, high - low))

    def rows(self) -> list[list[Any]]:
        """The values by tuple, as Python values."""
        return list(map(list, zip(*(column.to_pylist() for column in self.batch.columns), strict=True)))


def is_arrow(columns: Any) -> bool:
    """Whether columns were given as a RecordBatch or Table; of a stream with a schema, which has loaded pyarrow."""
    pa = arrow()
    return isinstance(columns, pa.RecordBatch | pa.Table)


def conform(columns: Any, schema: pa.Schema) -> ArrowColumns | str:
    """The RecordBatch or Table as one batch of the schema, or what is wrong with it.

    Its fields may be in another order; their types must be those of the schema.
    """
    pa = arrow()
    names = columns.schema.names
    if sorted(names) != sorted(schema.names):
        return f"the columns {', '.join(map(repr, names)) or '(none)'}; the schema has {', '.join(schema.names)}"
    for field in schema:
        given = columns.schema.field(field.name).type
        if given != field.type:
            return f"field {field.name!r} as {given}; the schema has {field.type}; cast it"
    if isinstance(columns, pa.Table):
        batches = columns.combine_chunks().to_batches()
        if len(batches) > 1:
            return "a table that does not fit in one record batch; give it in parts"
        columns = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=columns.schema)
    arrays = [columns.column(names.index(field.name)) for field in schema]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    problem = batch_problem(batch)
    return f"a record batch that {problem}" if problem else ArrowColumns(batch)


def travels_as_arrow(choosers: Iterable[Chooser], direct_task: int | None, *, serializes: bool, hooked: bool) -> bool:
    """Whether what is given as Arrow leaves the task as Arrow, and not tuple by tuple.

    A custom grouping, a hook and the topology's own serializer look at each tuple; a direct stream has one receiver.
    """
    usual = direct_task is None and not serializes and not hooked
    return usual and all(isinstance(chooser, Shuffle | Fields | All | Lowest) for chooser in choosers)
