"""Batches as user code sees them: tuples of one input stream that arrived together, as columns.

The runtime and the simulator each define a subclass and a tuple class. Rely on the attributes, not on the type.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Self, overload

from heronpy.api.errors import MissingLibraryError
from heronpy.api.tuple import Tuple
from heronpy.wire.arrow_values import arrow, flat_values

if TYPE_CHECKING:
    import pandas
    import pyarrow

#: Names of Python's and NumPy's boolean types, old and new.
_BOOLS = ("bool", "bool_")


class Batch(Sequence[Tuple]):
    """The argument of `process_batch`: one or more tuples from one stream and one sending task, in the order sent.

    `columns` maps each field to its values. A batch is also a sequence of tuples: `len(batch)`, `batch[3]` and
    `for tup in batch` work, and `ack`, `fail` and `anchors` accept it in place of a list of tuples. Tuple objects
    are created on demand; reading only columns creates none.
    """

    __slots__ = ("_arrow", "_columns", "_flat", "_of", "_size", "component", "fields", "schema", "stream", "task")

    def __init__(
        self,
        component: str,
        stream: str,
        task: int,
        fields: Sequence[str],
        flat: list[Any] | None,
        size: int,
        of: tuple[Batch, list[int]] | None = None,
        arrow: pyarrow.RecordBatch | None = None,
    ) -> None:
        #: The component and the stream that the batch comes from.
        self.component = component
        self.stream = stream
        #: The task that sent the batch.
        self.task = task
        #: The fields of the stream, in order.
        self.fields = tuple(fields)
        #: The values of all tuples, one after the other; one placeholder per tuple if there are no fields. In the
        #: result of `take`, None until needed.
        self._flat = flat
        self._of = of
        #: The record batch, if the values arrived as Arrow. A part of a batch gets its record batch on demand.
        self._arrow = arrow
        #: The Arrow schema of the stream; None if the stream declares no schema.
        self.schema: pyarrow.Schema | None = None if arrow is None else arrow.schema
        if of is not None:
            self.schema = of[0].schema
        self._size = size
        self._columns: dict[str, list[Any]] | None = None

    @property
    def columns(self) -> dict[str, list[Any]]:
        """Map from field to the list of its values, one per tuple. The caller may change the lists."""
        if self._columns is None and self._flat is None and self.record_batch is not None:
            values = (column.to_pylist() for column in self.record_batch.columns)
            self._columns = dict(zip(self.fields, values, strict=True))
        if self._columns is None:
            width, flat = len(self.fields), self._all_values()
            self._columns = {field: flat[place::width] for place, field in enumerate(self.fields)}
        return self._columns

    def rows(self) -> list[tuple[Any, ...]]:
        """Return the values of each tuple, as a list of Python tuples."""
        width = len(self.fields)
        return list(zip(*[iter(self._all_values())] * width, strict=True)) if width else [()] * self._size

    def take(self, places: Iterable[int]) -> Self:
        """Return the tuples at these indices, in this order, as a batch.

        Use it to filter a batch, or to choose the anchors of outputs. `places` is a sequence of indices, such as a list
        or a NumPy array; an index may be repeated. Raises IndexError for an index out of range, and TypeError for a
        boolean mask.
        """
        chosen = list(places)
        if chosen and type(chosen[0]).__name__ in _BOOLS:
            raise TypeError("take() takes indices, not a mask; give numpy.flatnonzero(mask)")
        try:
            return self._part(chosen)
        except IndexError:
            raise IndexError(f"take() got an index that is out of range for a batch of {self._size} tuples") from None

    def to_arrow(self) -> pyarrow.RecordBatch:
        """Return the columns as a `pyarrow.RecordBatch`: the batch that was sent, or one built from the values.

        The schema is that of the stream; if the stream declares none, types are inferred from the values. Raises
        MissingLibraryError without pyarrow. Raises pyarrow's error for a value that has no Arrow type or is not of the
        declared type.
        """
        if self.record_batch is not None:
            return self.record_batch
        try:
            import pyarrow
        except ImportError:
            raise MissingLibraryError("batch.to_arrow() needs pyarrow, which is missing; install pyarrow") from None
        values = self.columns.values()
        if self.schema is not None:
            arrays = [pyarrow.array(column, field.type) for column, field in zip(values, self.schema, strict=True)]
            return pyarrow.RecordBatch.from_arrays(arrays, schema=self.schema)
        return pyarrow.RecordBatch.from_arrays(list(map(pyarrow.array, values)), list(self.fields))

    @property
    def record_batch(self) -> pyarrow.RecordBatch | None:
        """The `pyarrow.RecordBatch` in which the tuples arrived; None if they arrived in another form."""
        if self._arrow is None and self._of is not None:
            source, places = self._of
            whole = source.record_batch
            if whole is not None:
                self._arrow = _taken(whole, [place % len(source) for place in places])
        return self._arrow

    def to_pandas(self) -> pandas.DataFrame:
        """Return the columns as a `pandas.DataFrame`. Raises MissingLibraryError without pandas."""
        try:
            import pandas
        except ImportError:
            raise MissingLibraryError("batch.to_pandas() needs pandas, which is missing; install pandas") from None
        return pandas.DataFrame(self.columns, index=range(self._size))

    # ---- a sequence of tuples -----------------------------------------------------------------

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, place: int) -> Tuple: ...

    @overload
    def __getitem__(self, place: slice) -> list[Tuple]: ...

    def __getitem__(self, place: int | slice) -> Tuple | list[Tuple]:
        return self._tuples()[place]

    def __repr__(self) -> str:
        return f"<Batch of {self._size} tuples of {self.component}/{self.stream} from task {self.task}>"

    # ---- the runtime's part -------------------------------------------------------------------

    @abstractmethod
    def _tuples(self) -> list[Any]:
        """The tuple objects, created on first use and then cached."""

    @abstractmethod
    def _part(self, places: list[int]) -> Self:
        """Return the tuples at these indices as a batch; a subclass passes `of=(self, places)` to its constructor."""

    def _all_values(self) -> list[Any]:
        flat = self._flat
        if flat is None and self.record_batch is not None:
            flat = self._flat = flat_values(self.record_batch)
        if flat is None:
            assert self._of is not None
            source, places = self._of
            width, values = max(1, len(self.fields)), source._all_values()
            flat = [None] * (width * self._size)
            for place in range(width):
                flat[place::width] = list(map((values[place::width] if width > 1 else values).__getitem__, places))
            self._flat, self._of = flat, None
        return flat

    def _values(self) -> Iterable[list[Any]]:
        width = len(self.fields)
        return (
            map(list, zip(*[iter(self._all_values())] * width, strict=True))
            if width
            else map(list, repeat((), self._size))
        )


def _taken(batch: pyarrow.RecordBatch, places: list[int]) -> pyarrow.RecordBatch:
    """Return the rows at these indices; consecutive rows are not copied."""
    low = int(places[0]) if places else 0
    if places == list(range(low, low + len(places))):
        return batch.slice(low, len(places))
    return batch.take(arrow().array(places, type=arrow().int64()))
