"""A bolt that anchors and acks automatically."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.stream import Stream
from heronpy.api.tuple import Tuple


class Output(NamedTuple):
    """A tuple that `BasicBolt.execute` yields for a stream other than the default stream."""

    values: Sequence[Any]
    stream: str = Stream.DEFAULT_STREAM_ID
    direct_task: int | None = None


class FailTuple(Exception):
    """Raised by a bolt's `execute` to fail the tuple instead of acking it."""


class BasicBolt(Bolt):
    """A bolt that anchors and acks automatically: subclasses define only `execute`.

    `execute` yields lists of values (or `Output` for a named stream). The outputs are anchored to the input tuple.
    The input tuple is acked afterwards, or failed if `execute` raises `FailTuple`.
    """

    def execute(self, tup: Tuple) -> Iterable[Sequence[Any] | Output] | None:
        """Yield the outputs of one tuple."""
        raise NotImplementedError(
            f"BasicBolt {type(self).__name__} does not define execute(tup); define it to yield output values"
        )

    def process(self, tup: Tuple) -> None:
        """Run `execute`, anchor its outputs to `tup`, and ack or fail `tup`."""
        anchors = [tup]
        try:
            for output in self.execute(tup) or ():
                if isinstance(output, Output):
                    self.emit(output.values, stream=output.stream, anchors=anchors, direct_task=output.direct_task)
                else:
                    self.emit(output, anchors=anchors)
        except FailTuple:
            self.fail(tup)
        else:
            self.ack(tup)
