"""The rules for emits in the runtime and the simulator: the valid tuples, and the tasks that get them. Pure.

The order of the checks is fixed, so that the same mistake gives the same error everywhere. The checks are: the stream
is declared, the values are a list with one value per field, every consumer's grouping chooses valid tasks, each value
can be serialized, and the tuple is not too large.

The tuples of one `emit_batch` are stored as columns. This module converts the columns of any library to lists of Python
values of equal length. The libraries are not imported: a column is recognised by its methods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from heronpy.common.errors import TopologyError
from heronpy.common.setting_types import InstanceSettings
from heronpy.plan.grouping import All, Chooser, Direct, Fields, Lowest, Shuffle
from heronpy.wire import codec
from heronpy.wire.arrow_values import arrow, batch_problem, schema_of

if TYPE_CHECKING:
    import pyarrow
    import pyarrow as pa


#: Types that have a length and items, but are almost certainly a mistake if given as a list of values.
_NOT_LISTS = (str, bytes, bytearray, Mapping, set, frozenset)
#: NumPy's kinds of times and durations, which are kept because they have no exact Python value.
_TIMES = ("m", "M")
_LISTS = {list, tuple}
#: Parses a declared Arrow schema; the result is cached for the process.
declared = lru_cache(maxsize=256)(schema_of)


class ArrowColumns(NamedTuple):
    """The tuples of one emit, as an Arrow record batch.

    The batch has the schema that the stream declares.
    """

    batch: pa.RecordBatch

    @property
    def size(self) -> int:
        rows: int = self.batch.num_rows
        return rows

    def part(self, low: int, high: int) -> ArrowColumns:
        """Return the tuples low .. high-1, clipped to the size, without copying."""
        return ArrowColumns(self.batch.slice(low, high - low))

    def rows(self) -> list[list[Any]]:
        """Return the Python values of each tuple."""
        return list(map(list, zip(*(column.to_pylist() for column in self.batch.columns), strict=True)))


def is_arrow(columns: Any) -> bool:
    """Whether columns are a RecordBatch or Table. Call it only for a stream with a schema: pyarrow must be loaded."""
    pa = arrow()
    return isinstance(columns, pa.RecordBatch | pa.Table)


def conform(columns: Any, schema: pa.Schema) -> ArrowColumns | str:
    """Convert a RecordBatch or Table to one batch with the schema; returns a description if there is a problem.

    The fields may be in another order; their types must match the schema.
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
    """Whether Arrow input is sent as Arrow instead of tuple by tuple.

    False for a direct stream, and for a custom grouping, a hook or the topology's own serializer, which need single
    tuples.
    """
    usual = direct_task is None and not serializes and not hooked
    return usual and all(isinstance(chooser, Shuffle | Fields | All | Lowest) for chooser in choosers)


class Columns(NamedTuple):
    """The tuples of one emit, as a list of `size` values for each field."""

    values: list[list[Any]]
    size: int

    def part(self, low: int, high: int) -> Columns:
        """Return the tuples low .. high-1, clipped to the size."""
        if low == 0 and high >= self.size:
            return self
        high = min(high, self.size)
        return Columns([column[low:high] for column in self.values], high - low)

    def rows(self) -> list[list[Any]]:
        """Return the values of each tuple."""
        if not self.values:
            return [[] for _ in range(self.size)]
        return list(map(list, zip(*self.values, strict=True)))


class ColumnRules:
    """Checks and converts the arguments of `emit_batch`; all errors are TopologyErrors."""

    __slots__ = ("_component", "_fields", "_schema", "_stream")

    def __init__(self, component: str, stream: str, fields: Sequence[str], schema: bytes = b"") -> None:
        self._component = component
        self._stream = stream
        self._fields = fields
        self._schema = schema

    def columns(self, columns: Any, rows: Any) -> Columns | ArrowColumns:
        """Convert columns or rows to `Columns`; Arrow data with the stream's schema stays Arrow."""
        if (columns is None) == (rows is None):
            given = "neither columns nor rows" if rows is None else "both columns and rows"
            raise TopologyError(f"component {self._component} called emit_batch with {given}; give exactly one")
        if rows is not None:
            return self._of_rows(rows)
        if self._schema:
            given = getattr(columns, "record_batch", columns)
            if is_arrow(columns if given is None else given):
                return self._of_arrow(given)
        values = [self._values(field, column) for field, column in zip(self._fields, self._by_field(columns))]
        sizes = dict(zip(self._fields, map(len, values)))
        if len(set(sizes.values())) > 1:
            told = ", ".join(f"{field} has {size}" for field, size in sizes.items())
            raise self._wrong(f"columns of different lengths: {told}")
        if not values:
            raise self._wrong("columns, but the stream declares no fields; give rows=[[], ...], one per tuple")
        return Columns(values, len(values[0]))

    def check_count(self, what: str, given: int, size: int) -> None:
        """Raise TopologyError unless `given` equals the number of tuples; `what` names the items in the error."""
        if given != size:
            raise self._wrong(f"{size} tuples with {given} {what}; give one per tuple, in the same order")

    def _of_arrow(self, columns: Any) -> ArrowColumns:
        found = conform(columns, declared(self._schema))
        if isinstance(found, str):
            raise self._wrong(found)
        return found

    def _of_rows(self, rows: Any) -> Columns:
        rows = _listed(rows)
        if not is_list(rows):
            raise self._wrong(f"rows={rows!r:.80}; give a list with a list of values for each tuple")
        width = len(self._fields)
        if not set(map(type, rows)) <= _LISTS:
            rows = list(map(_listed, rows))
        if not set(map(type, rows)) <= _LISTS or not set(map(len, rows)) <= {width}:
            for row in rows:
                if not is_list(row):
                    raise self._wrong(f"the row {row!r:.80}; give a list of values for each tuple")
                if len(row) != width:
                    raise self._wrong(f"a row of {len(row)} values; the stream declares {self._declared()}")
        if not width:
            return Columns([], len(rows))
        flat = list(chain.from_iterable(rows))
        return Columns([flat[place::width] for place in range(width)], len(rows))

    def _by_field(self, columns: Any) -> list[Any]:
        named = getattr(columns, "columns", None)
        if isinstance(columns, Mapping):
            return self._picked(columns, list(columns))
        if isinstance(named, Mapping):  # a Batch
            return self._picked(named, list(named))
        if hasattr(columns, "column_names") and hasattr(columns, "column"):  # a RecordBatch or Table
            return [columns.column(place) for place in self._places(columns.column_names)]
        if named is not None and hasattr(columns, "iloc"):  # a DataFrame
            return [columns.iloc[:, place] for place in self._places(list(named))]
        if not isinstance(columns, list | tuple):
            raise self._wrong(
                f"columns of type {type(columns).__name__}; give a dict from each field to its values, or rows="
            )
        if len(columns) != len(self._fields):
            raise self._wrong(f"{len(columns)} columns; the stream declares {self._declared()}")
        return list(columns)

    def _picked(self, columns: Mapping[Any, Any], names: list[Any]) -> list[Any]:
        return [columns[names[place]] for place in self._places(names)]

    def _places(self, names: Sequence[Any]) -> list[int]:
        """Return the index of each field's column among these names."""
        if sorted(map(repr, names)) != sorted(map(repr, self._fields)):
            raise self._wrong(
                f"the columns {', '.join(map(repr, names)) or '(none)'}; the stream declares {self._declared()}"
            )
        return [list(names).index(field) for field in self._fields]

    def _values(self, field: str, column: Any) -> list[Any]:
        """Return the values of one column; a list is returned unchanged and must not be modified."""
        if type(column) is list:
            return column
        for method in ("to_pylist", "tolist"):
            convert = getattr(column, method, None)
            if callable(convert):
                if getattr(column, "ndim", 1) != 1:
                    raise self._wrong(f"column {field!r} with {column.ndim} dimensions; give one value for each tuple")
                if not hasattr(column, "iloc") and getattr(getattr(column, "dtype", None), "kind", "") in _TIMES:
                    return list(column)
                values: list[Any] = convert()
                return values
        if not is_list(column) or hasattr(column, "columns"):
            raise self._wrong(f"column {field!r} of type {type(column).__name__}; give a list or an array of values")
        return list(column)

    def _declared(self) -> str:
        return f"{len(self._fields)}: {', '.join(self._fields) or '(none)'}"

    def _wrong(self, what: str) -> TopologyError:
        return TopologyError(f"component {self._component} emitted {what} (emit_batch on stream {self._stream!r})")


def _listed(values: Any) -> Any:
    """Convert an array to lists of Python values; other values, including NumPy's times, are returned unchanged."""
    convert = getattr(values, "tolist", None)
    if not callable(convert) or getattr(getattr(values, "dtype", None), "kind", "") in _TIMES:
        return values
    return convert()


def is_list(value: Any) -> bool:
    """Whether a value from user code can be a list of values."""
    return hasattr(value, "__len__") and hasattr(value, "__getitem__") and not isinstance(value, _NOT_LISTS)


#: Maximum bytes of a frame with one tuple, without its payload.
ENVELOPE_BYTES = 64 << 10


class EmitRules:
    """The rules for the tuples of one component.

    `serialize` is the topology's own serializer; `frame_max_bytes` is heron.stmgr.frame_max_bytes. All errors are
    TopologyErrors, except for a value that cannot be serialized, which raises LocalWireError or the serializer's error.
    """

    __slots__ = ("_allow_pickle", "_component", "_serialize", "_tuple_max_bytes")

    def __init__(
        self,
        component: str,
        settings: InstanceSettings,
        frame_max_bytes: int,
        serialize: Callable[[Any], bytes] | None = None,
    ) -> None:
        self._component = component
        self._allow_pickle = settings.allow_pickle
        self._tuple_max_bytes = min(settings.tuple_max_bytes, max(1, frame_max_bytes - ENVELOPE_BYTES))
        self._serialize = serialize

    @property
    def serializes(self) -> bool:
        """Whether every value passes through the topology's own serializer."""
        return self._serialize is not None

    def undeclared(self, stream: str, declared: Iterable[str]) -> TopologyError:
        """Return the error for an emit on a stream that the component does not declare."""
        names = ", ".join(map(repr, declared)) or "none"
        return TopologyError(
            f"component {self._component} emitted on stream {stream!r}, which it does not declare; it has {names}"
        )

    def check(self, stream: str, fields: Sequence[str], values: Any) -> None:
        """Raise TopologyError unless the values are a list with one value for each field."""
        kind = type(values)
        if kind is not list and kind is not tuple:
            self._check_kind(stream, values)
        if len(values) != len(fields):
            raise TopologyError(
                f"component {self._component} emitted {len(values)} values on stream {stream!r}, which declares "
                f"{len(fields)}: {', '.join(fields) or '(none)'}"
            )

    def targets(
        self, stream: str, choosers: Iterable[Chooser], values: Sequence[Any], direct_task: int | None
    ) -> list[int]:
        """Return the tasks that get a tuple, one entry for each copy."""
        tasks: list[int] = []
        for chooser in choosers:
            if isinstance(chooser, Direct):
                tasks.extend(self._direct(stream, chooser, direct_task))
            elif direct_task is None:
                tasks.extend(chooser.targets(values))
        if direct_task is not None and not tasks:
            raise TopologyError(
                f"component {self._component} emitted to task {direct_task} on stream {stream!r}, "
                "which has no consumer with direct grouping; declare the input with Grouping.DIRECT"
            )
        return tasks

    def freeze(self, stream: str, values: Iterable[Any], of_arrow: bool = False) -> tuple[list[Any], int]:
        """Copy the values, so that later changes do not affect a waiting batch; also returns their encoded size.

        `of_arrow` means that the values come from Arrow and need no pickle.
        """
        if self._serialize is not None:
            frozen = [self._serialize(value) for value in values]
        else:
            frozen = [codec.freeze(value, self._allow_pickle or of_arrow) for value in values]
        size = sum(map(codec.size_of, frozen))
        if size > self._tuple_max_bytes:
            raise self._too_large(stream, size)
        return frozen, size

    def check_rows(self, stream: str, batch: pyarrow.RecordBatch) -> None:
        """Raise TopologyError if a row of an Arrow record batch is too large for a tuple."""
        if batch.nbytes > self._tuple_max_bytes:
            for row in range(batch.num_rows):
                if batch.slice(row, 1).nbytes > self._tuple_max_bytes:
                    raise self._too_large(stream, batch.slice(row, 1).nbytes)

    def _too_large(self, stream: str, size: int) -> TopologyError:
        return TopologyError(
            f"component {self._component} emitted a tuple of {size} bytes on stream {stream!r}; the limit is "
            f"{self._tuple_max_bytes} (heron.instance.tuple_max_bytes, at most heron.stmgr.frame_max_bytes)"
        )

    def _check_kind(self, stream: str, values: Any) -> None:
        if not is_list(values):
            raise TopologyError(
                f"component {self._component} emitted a {type(values).__name__} on stream {stream!r}; "
                "emit a list of values, such as [value]"
            )

    def _direct(self, stream: str, chooser: Direct, direct_task: int | None) -> list[int]:
        if direct_task is None:
            raise TopologyError(
                f"component {self._component} emitted on direct stream {stream!r} without a task; pass direct_task="
            )
        return [direct_task] if direct_task in chooser.tasks else []
