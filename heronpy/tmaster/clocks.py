"""The monotonic clocks of a topology's hosts, as executors have compared them with the topology master's. Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from heronpy.common.clock_offset import KEPT_NS, Offset
from heronpy.proto import control_pb2

CLOCKS_MAX: Final = 10_000


class Clocks:
    """Times are nanoseconds; `now_ns` is of the topology master's clock, whose number is `own`.

    Invariant: the `CLOCKS_MAX` that were heard of last.
    """

    def __init__(self, own: int) -> None:
        self._own = own
        #: By number: since when, and how it differs.
        self._known: OrderedDict[int, tuple[int, Offset]] = OrderedDict()

    def take(self, told: control_pb2.ClockOffset, now_ns: int) -> None:
        """What an executor says of its host's clock. Of several on one host the most exact one counts."""
        if not told.clock or told.clock == self._own or not told.error:
            return
        new, known = Offset(told.offset, told.error), self.offset(told.clock, now_ns)
        if known is None or new.error <= known.error:
            self._known[told.clock] = now_ns, new
            self._known.move_to_end(told.clock)
            if len(self._known) > CLOCKS_MAX:
                self._known.popitem(last=False)

    def offset(self, clock: int, now_ns: int) -> Offset | None:
        """Added to a time of this clock, it is one of the topology master's; None when that was not heard lately."""
        if clock == self._own:
            return Offset(0, 0)
        at_ns, offset = self._known.get(clock, (0, None))
        age_ns = now_ns - at_ns
        return offset.aged(age_ns) if offset is not None and age_ns <= KEPT_NS else None

    def relate(self, span: control_pb2.Span, now_ns: int) -> None:
        """Write into a span whose way goes between hosts how their clocks differ, if both are known."""
        span.clock_shift = span.clock_error = 0  # only we set it
        if span.source_clock == span.clock or not span.source_clock:
            return
        source, own = self.offset(span.source_clock, now_ns), self.offset(span.clock, now_ns)
        if source is not None and own is not None:
            span.clock_shift = own.offset - source.offset
            span.clock_error = own.error + source.error
