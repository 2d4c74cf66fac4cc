"""The batch as user code sees it: the tuples that arrived together of one input stream, as columns.

The runtime and the simulator each have their own subclass, as they have their own tuple: read attributes, do not
test the type.
"""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Self, overload

from heronpy.api.errors import MissingLibraryError
from heronpy.api.tuple import Tuple

if TYPE_CHECKING:
    import pandas
    import pyarrow


class Batch(Sequence[Tuple]):
    """What `process_batch` is given: at least one tuple, all of one stream and one sending task, in their order.

    `columns` are its values by field; as a sequence it holds its tuples, so `len(batch)`, `batch[3]` and
    `for tup in batch` work, and so does whatever takes a list of tuples: `ack`, `fail`, `anchors`. Tuples are made
    when they are asked for; who only reads columns does not pay for them.
    """

    __slots__ = ("_columns", "_flat", "_size", "component", "fields", "stream", "task")

    def __init__(
        self, component: str, stream: str, task: int, fields: Sequence[str], flat: list[Any], size: int
    ) -> None:
        #: The component and the stream that it comes from.
        self.component = component
        self.stream = stream
        #: The task that sent it.
        self.task = task
        #: The fields of the stream, in their order.
        self.fields = tuple(fields)
        #: The values of all tuples one after the other; one placeholder each when there are no fields.
        self._flat = flat
        self._size = size
        self._columns: dict[str, list[Any]] | None = None

    @property
    def columns(self) -> dict[str, list[Any]]:
        """The values by field, each a list with one value per tuple; the caller may change the lists."""
        if self._columns is None:
            width = len(self.fields)
            self._columns = {field: self._flat[place::width] for place, field in enumerate(self.fields)}
        return self._columns

    def rows(self) -> list[tuple[Any, ...]]:
        """The values by tuple."""
        width = len(self.fields)
        return list(zip(*[iter(self._flat)] * width, strict=True)) if width else [()] * self._size

    def take(self, places: Iterable[int]) -> Self:
        """The tuples at these places as a batch, in this order; for a filter, or to say what outputs derive from.

        `places` may be any integers from 0 to `len(batch) - 1`, also an array of NumPy, and may repeat a place.
        Raises IndexError for a place that there is not.
        """
        chosen = list(map(operator.index, places))
        if chosen and not (0 <= min(chosen) and max(chosen) < self._size):
            wrong = next(place for place in chosen if not 0 <= place < self._size)
            raise IndexError(f"take() was given place {wrong}; the batch has the places 0 to {self._size - 1}")
        width = max(1, len(self.fields))
        if width == 1:
            flat = list(map(self._flat.__getitem__, chosen))
        else:
            flat = [None] * (width * len(chosen))
            for place in range(width):
                flat[place::width] = map(self._flat[place::width].__getitem__, chosen)
        return self._part(chosen, flat)

    def to_arrow(self) -> pyarrow.RecordBatch:
        """The columns as a `pyarrow.RecordBatch`; types are inferred from the values.

        Raises MissingLibraryError without pyarrow, and what pyarrow raises for values that are of no Arrow type.
        """
        try:
            import pyarrow
        except ImportError:
            raise MissingLibraryError("Batch.to_arrow() needs pyarrow, which is not installed: add pyarrow") from None
        return pyarrow.RecordBatch.from_arrays(list(map(pyarrow.array, self.columns.values())), list(self.fields))

    def to_pandas(self) -> pandas.DataFrame:
        """The columns as a `pandas.DataFrame`; raises MissingLibraryError without pandas."""
        try:
            import pandas
        except ImportError:
            raise MissingLibraryError("Batch.to_pandas() needs pandas, which is not installed: add pandas") from None
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
        """The tuples; always the same objects."""

    @abstractmethod
    def _part(self, places: list[int], flat: list[Any]) -> Self:
        """The batch of the tuples at these places, whose values these are."""

    def _values(self) -> Iterable[list[Any]]:
        """The values of each tuple, as a list of its own."""
        width = len(self.fields)
        return map(list, zip(*[iter(self._flat)] * width, strict=True)) if width else map(list, repeat((), self._size))
