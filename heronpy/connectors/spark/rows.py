"""Converts tuples to Arrow tables of one schema per sink, and finds rows that do not fit.

The user gives the schema of a sink, or it is inferred once from the first batch and then fixed for all tasks
and their successors. A row that does not fit does not fail its batch: it is
returned with the reason, and the other rows form the table.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from heronpy.common.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

_MISSING = "SparkSink needs the package pyarrow; run: pip install 'heronpy[spark]'"


def arrow() -> Any:
    """Return the module pyarrow. Raises an error that says how to install it."""
    try:
        import pyarrow
    except ImportError:
        raise ConfigError(_MISSING) from None
    return pyarrow


def encode_schema(schema: pa.Schema | dict[str, str] | None) -> str:
    """Return a schema as text for the component's configuration."""
    if schema is None:
        return ""
    if isinstance(schema, dict):
        if not schema or not all(isinstance(k, str) and isinstance(v, str) for k, v in schema.items()):
            raise ConfigError("schema must map column names to type names, such as {'name': 'string'}")
        # The types are checked when a task starts, because the specification of a topology must not need pyarrow.
        return "names:" + json.dumps(list(schema.items()))
    if not isinstance(schema, arrow().Schema):
        raise ConfigError(f"schema must be a pyarrow schema or a dict of type names, not {type(schema).__name__}")
    return "arrow:" + base64.b64encode(schema.serialize().to_pybytes()).decode()


def decode_schema(text: str) -> pa.Schema | None:
    """Return the schema from the component's configuration."""
    if not text:
        return None
    pa = arrow()
    kind, _, body = text.partition(":")
    if kind == "arrow":
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(body)))
    columns = []
    for name, type_name in json.loads(body):
        try:
            columns.append(pa.field(name, pa.type_for_alias(type_name)))
        except ValueError:
            raise ConfigError(
                f"column {name!r} has unknown type {type_name!r}; use an Arrow type name such as "
                "string, int64, double, bool, date32, timestamp[us]"
            ) from None
    return pa.schema(columns)


def parquet_problem(schema: pa.Schema, whose: str, as_rows: bool = False) -> str:
    """Return why Spark cannot read a column of Parquet files with this schema, and the fix, as a clause; "" if it can.

    `as_rows`: whether the types are those of the rows in a micro-batch.
    """
    import pyarrow.types as types

    def fix_of(kind: pa.DataType) -> str:
        if types.is_timestamp(kind) and kind.unit == "ns":
            return "use timestamp[us]"
        if types.is_time(kind) or types.is_duration(kind) or (as_rows and types.is_unsigned_integer(kind)):
            return "use int64"
        if as_rows and types.is_date64(kind):
            return "use date32"
        if types.is_float16(kind):
            return "use float"
        if types.is_null(kind):
            return "give it a type"
        if types.is_union(kind) or types.is_interval(kind):
            return "use another type"
        parts = [kind.field(place).type for place in range(kind.num_fields)] if types.is_nested(kind) else ()
        return next(filter(None, map(fix_of, parts)), "")

    for column in schema:
        fix = fix_of(column.type)
        if fix:
            return f"column {column.name!r} of {whose} is {column.type}, which Spark cannot read; {fix}"
    return ""


def row_bytes(values: Sequence[Any]) -> int:
    """Estimate the size of a row in a batch, in bytes; cheap, and never much too low."""
    total = 0
    for value in values:
        if isinstance(value, (str, bytes, bytearray)):
            total += len(value)
        elif isinstance(value, (list, tuple, set, frozenset)):
            total += row_bytes(tuple(value))
        elif isinstance(value, dict):
            total += row_bytes(tuple(value)) + row_bytes(tuple(value.values()))
        else:
            total += getattr(value, "nbytes", 8)
    return total + 8 * len(values)


class Misfit(Struct, frozen=True):
    """A row that does not fit the schema: its index in the batch, and the reason."""

    index: int
    reason: str


class RowShape:
    """Turns rows into tables of one schema."""

    def __init__(self, fields: Sequence[str], schema: pa.Schema | None, shared: Agreement | None = None) -> None:
        """`shared`: the agreement of the sink's tasks on an inferred schema; not needed with `schema`."""
        self.fields = list(fields)
        self._schema = schema
        self._shared = shared
        self._fixed = schema is not None

    @property
    def schema(self) -> pa.Schema | None:
        """The schema; None until it is final."""
        return self._schema if self._fixed else None

    def table(self, rows: Sequence[Sequence[Any]]) -> tuple[pa.Table, list[Misfit]]:
        """Return a table of all rows that fit, in order, and the misfits."""
        pa = arrow()
        if not self._fixed:
            self._infer(rows)
        assert self._schema is not None
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self._schema)
        arrays: list[Any] = []
        misfits: dict[int, Misfit] = {}
        for field, values in zip(self._schema, columns, strict=True):
            try:
                arrays.append(_column(pa, field, values))
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                if not self._find_misfits(field, values, misfits):
                    raise
        if misfits:
            good = [row for index, row in enumerate(rows) if index not in misfits]
            table, more = self.table(good)
            assert not more, "a row that fits alone also fits in a batch"
            return table, [misfits[index] for index in sorted(misfits)]
        return pa.Table.from_arrays(arrays, schema=self._schema), []

    def table_of(self, columns: Sequence[Sequence[Any]]) -> pa.Table | None:
        """Return a table of these columns; None if some values do not fit (`table` then finds the rows that fit)."""
        pa, schema = arrow(), self.schema
        assert schema is not None
        try:
            arrays = [_column(pa, field, values) for field, values in zip(schema, columns, strict=True)]
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return None
        return pa.Table.from_arrays(arrays, schema=schema)

    def settle(self, types: Sequence[pa.DataType]) -> None:
        """Set the column types of an unknown schema, unless another task has already set them."""
        agreed = self._agreed()
        self._schema = agreed or self._agree(arrow().schema(list(zip(self.fields, types, strict=True))))
        self._fixed = True

    def cast(self, batch: pa.RecordBatch) -> pa.Table | None:
        """Convert an Arrow batch with one column per field to a table; return None if a row does not fit.

        A type is converted to another type of the same kind if no value changes; `table` handles all other cases.
        """
        pa, schema = arrow(), self.schema
        assert schema is not None
        arrays = []
        for field, column in zip(schema, batch.columns, strict=True):
            if column.type != field.type:
                if not _is_kin(pa.types, column.type, field.type):
                    return None
                try:
                    column = column.cast(field.type)
                except pa.ArrowException:
                    return None
            if not field.nullable and column.null_count:
                return None
            arrays.append(column)
        return pa.Table.from_arrays(arrays, schema=schema)

    def _find_misfits(self, field: pa.Field, values: Sequence[Any], misfits: dict[int, Misfit]) -> bool:
        """Convert the values of a column one by one to find those that do not fit; return whether there are any."""
        pa = arrow()
        found = False
        for index, value in enumerate(values):
            try:
                _column(pa, field, (value,))
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                reason = f"column {field.name!r} must be {field.type}, but {value!r:.100} is not ({error})"
                misfits.setdefault(index, Misfit(index, reason))
                found = True
        return found

    def _infer(self, rows: Sequence[Sequence[Any]]) -> None:
        pa = arrow()
        agreed = self._agreed()
        if agreed is None:
            known = self._schema
            columns = list(zip(*rows, strict=True)) if rows else [()] * len(self.fields)
            types = [
                known.field(i).type if known and known.field(i).type != pa.null() else _infer_type(pa, values)
                for i, values in enumerate(columns)
            ]
            self._schema = pa.schema(list(zip(self.fields, types, strict=True)))
            if pa.null() in types:
                return  # The column has no values yet: the first value decides its type.
            agreed = self._agree(self._schema)
        self._schema, self._fixed = agreed, True

    def _agreed(self) -> pa.Schema | None:
        pa = arrow()
        assert self._shared is not None
        data = self._shared.agreed()
        if data is None:
            return None
        schema = pa.ipc.read_schema(pa.py_buffer(data))
        return schema if schema.names == self.fields else None

    def _agree(self, schema: pa.Schema) -> pa.Schema:
        """Offer a schema to the other tasks. The first offer wins."""
        data = schema.serialize().to_pybytes()
        assert self._shared is not None
        if not self._shared.offer(data):
            agreed = self._agreed()
            if agreed is not None:
                return agreed
            self._shared.replace(data)
        return schema


class Agreement(Protocol):
    """The schema on which the tasks of a sink agree: the first offer wins."""

    def agreed(self) -> bytes | None:
        """Return the agreed schema; None if no schema has been offered."""

    def offer(self, data: bytes) -> bool:
        """Offer a schema; return whether it is the agreed schema."""

    def replace(self, data: bytes) -> None:
        """Replace an agreed schema that has other columns."""


def _column(pa: Any, field: pa.Field, values: Sequence[Any]) -> Any:
    array = pa.array(values, type=field.type, from_pandas=False)
    is_mixed = pa.types.is_integer(field.type) and not {int, type(None)}.issuperset(map(type, values))
    # Arrow would truncate fractions silently.
    if is_mixed and any(value is not None and value != int(value) for value in values):
        raise ValueError("an integer column got a value with a fraction")
    if not field.nullable and array.null_count:
        raise ValueError("a column without nulls got a null")
    return array


def _is_kin(types: Any, given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a column of type `wanted` accepts a Python value of type `given`."""
    if types.is_floating(wanted):
        return bool(types.is_floating(given) and given.bit_width <= wanted.bit_width)
    kinds = (
        (types.is_integer,),
        (types.is_string, types.is_large_string),
        (types.is_binary, types.is_large_binary),
        (types.is_decimal,),
    )
    return any(any(is_a(given) for is_a in kind) and any(is_a(wanted) for is_a in kind) for kind in kinds)


def _infer_type(pa: Any, values: Sequence[Any]) -> Any:
    try:
        return pa.array(values).type
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        # Mixed values: the first value decides the type, and values of other types are misfits.
        for value in values:
            try:
                found = pa.array([value]).type
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                continue
            if found != pa.null():
                return found
        return pa.null()
