"""What all sources share: their output stream, and replay of failed elements.

Under ATLEAST_ONCE each element is emitted with an id and kept until it is acked; a failed one is
emitted again before new ones. At most `topology.max.spout.pending` elements are kept, because the
runtime asks for no more. In the other modes nothing is tracked. The input has ended when the
source raised StopIteration and nothing is pending or waiting for replay.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from heronpy.api import api_constants
from heronpy.api.spout.spout import Spout
from heronpy.api.state.stateful_component import StatefulComponent
from heronpy.api.stream import Stream
from heronpy.streamlet.streamlet import OUTPUT_FIELD, OUTPUT_STREAM


class StreamletSpoutBase:
    """Declares the output of a source's spout."""

    outputs = [Stream(fields=[OUTPUT_FIELD], name=OUTPUT_STREAM)]


class ElementSpout(StreamletSpoutBase, Spout, StatefulComponent):
    """A spout that emits one element per call. Subclasses define `open_source` and `next_element`."""

    state: Any = None

    def init_state(self, stateful_state: Any) -> None:
        """Keep the state for the source's context."""
        self.state = stateful_state

    def pre_save(self, checkpoint_id: str) -> None:
        """The source writes its state itself, through its context."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Open the source."""
        mode = config.get(api_constants.TOPOLOGY_RELIABILITY_MODE)
        self._tracked = mode == api_constants.TopologyReliabilityMode.ATLEAST_ONCE
        self._next_id = 0
        self._pending: dict[int, Any] = {}
        self._replays: deque[Any] = deque()
        self._exhausted = False
        self.open_source(config, context)

    def open_source(self, config: dict[str, Any], context: Any) -> None:
        """Make the source ready for `next_element`."""
        raise NotImplementedError(f"{type(self).__name__} must define open_source")

    def next_element(self) -> Any:
        """The next element, None for none now, or StopIteration for none ever."""
        raise NotImplementedError(f"{type(self).__name__} must define next_element")

    def next_tuple(self) -> None:
        """Emit a failed element again, or a new one; announce the end of the input."""
        if self._replays:
            self._emit_element(self._replays.popleft())
            return
        if not self._exhausted:
            try:
                element = self.next_element()
            except StopIteration:
                self._exhausted = True
            else:
                if element is not None:
                    self._emit_element(element)
                return
        if not self._pending:
            self.end_of_input()

    def ack(self, tup_id: Any) -> None:
        """Forget an element that is through."""
        self._pending.pop(tup_id, None)

    def fail(self, tup_id: Any) -> None:
        """Have a failed element emitted again."""
        if tup_id in self._pending:
            self._replays.append(self._pending.pop(tup_id))

    def _emit_element(self, element: Any) -> None:
        if not self._tracked:
            self.emit([element], stream=OUTPUT_STREAM)
            return
        self._next_id += 1
        self._pending[self._next_id] = element
        self.emit([element], tup_id=self._next_id, stream=OUTPUT_STREAM)
