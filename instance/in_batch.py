"""Batches as a bolt that defines `process_batch` sees them: parts of one received frame. Pure.

A frame becomes one batch, or one per run of tuples of the same stream, in the order of its tuples. A batch keeps the
values as decoded, and their positions in the frame; tuple objects are created on demand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, repeat
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from heronpy.api.batch import Batch
from heronpy.wire.codec import Undecodable

from .tuples import DamagedValues, HeronTuple, InFrame, Places

if TYPE_CHECKING:
    import pyarrow

#: The values of a tuple that only serves as an anchor.
_UNSEEN: list[Any] = []
#: Name and fields of a stream.
Schema = tuple[str, list[str]]


class InBatch(Batch):
    """See the module and `Batch`; `numbers` are the positions of its tuples in the frame."""

    __slots__ = ("_made", "frame", "numbers")

    def __init__(
        self,
        frame: InFrame,
        stream: str,
        fields: Sequence[str],
        flat: list[Any] | None,
        numbers: Sequence[int],
        of: tuple[Batch, list[int]] | None = None,
        arrow: pyarrow.RecordBatch | None = None,
    ) -> None:
        super().__init__(frame.component, stream, frame.task, fields, flat, len(numbers), of, arrow)
        self.frame = frame
        self.numbers = numbers
        self._made: list[HeronTuple] | None = None

    def tuples(self) -> list[HeronTuple]:
        """Its tuples; always the same objects."""
        if self._made is None:
            self._made = list(map(HeronTuple, self._values(), repeat(self.frame), self.numbers))
        return self._made

    def _tuples(self) -> list[HeronTuple]:
        return self.tuples()

    def marks(self) -> list[HeronTuple]:
        """Its tuples as anchors; without values, unless the tuples exist already."""
        if self._made is not None:
            return self._made
        return list(map(HeronTuple, repeat(_UNSEEN), repeat(self.frame), self.numbers))

    def _part(self, places: list[int]) -> Self:
        numbers = list(map(self.numbers.__getitem__, places))
        return type(self)(self.frame, self.stream, self.fields, None, numbers, (self, places))

    def singles(self) -> list[InBatch]:
        """Each tuple as a separate batch."""
        return [self.take([place]) for place in range(self._size)]

    def places(self) -> Places:
        """The positions of its tuples in the frame, ascending, each once."""
        if isinstance(self.numbers, range):
            return np.arange(self.numbers.start, self.numbers.stop)
        return np.unique(np.array(self.numbers, dtype=np.int64))


#: The parts of a frame: batches, and single tuples whose values could not be decoded.
Part = InBatch | HeronTuple


def parts_of(
    flat: list[Any], frame: InFrame, streams: Sequence[Schema], kinds: list[int], skip: int, damaged: bool
) -> list[Part]:
    """The parts of a frame, without its first `skip` tuples.

    `kinds` has the index into `streams` of each tuple, or of all of them; with `damaged`, some values may be
    Undecodable.
    """
    parts: list[Part] = []
    low = start = 0
    runs = [(kinds[0], frame.count)] if frame.streams is None else [(k, len(list(run))) for k, run in groupby(kinds)]
    for kind, size in runs:
        name, fields = streams[kind]
        width = len(fields) or 1
        out = min(size, max(0, skip - low))
        values = flat if len(flat) == width * size and not out else flat[start + out * width : start + size * width]
        if out < size:
            whole = InBatch(frame, name, fields, values, range(low + out, low + size))
            parts += _apart(whole, values, width) if damaged else (whole,)
        low += size
        start += size * width
    return parts


def _apart(batch: InBatch, values: list[Any], width: int) -> Iterator[Part]:
    """The batch split at its damaged tuples, which come one by one in their places."""
    bad = [any(type(v) is Undecodable for v in values[n * width : n * width + width]) for n in range(len(batch))]
    for is_damaged, run in groupby(range(len(batch)), key=bad.__getitem__):
        places = list(run)
        if not is_damaged:
            yield batch.take(places)
            continue
        for place in places:
            row = values[place * width : place * width + width]
            yield HeronTuple(DamagedValues(row), batch.frame, batch.numbers[place])
