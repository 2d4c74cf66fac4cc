"""What the bolts of all operators share: one output stream with one field, and its anchoring."""

from __future__ import annotations

from typing import Any

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.state.stateful_component import StatefulComponent
from heronpy.api.stream import Stream
from heronpy.streamlet.streamlet import OUTPUT_FIELD, OUTPUT_STREAM


class StreamletBoltBase:
    """Declares the output of an operator's bolt."""

    outputs = [Stream(fields=[OUTPUT_FIELD], name=OUTPUT_STREAM)]


class ElementBolt(StreamletBoltBase, Bolt, StatefulComponent):
    """A bolt that handles one element at a time and anchors whatever it emits for it.

    Subclasses define `handle(element, tup)`. An exception of the user's function is left to the
    runtime: it ends the task, and an unacked element is failed and replayed under ATLEAST_ONCE.
    """

    FUNCTION = "__streamlet_function__"

    def init_state(self, stateful_state: Any) -> None:
        """Single-element operators keep nothing between elements."""

    def pre_save(self, checkpoint_id: str) -> None:
        """Nothing to save."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Pick up the user's function, which travelled in the component's configuration."""
        self.function: Any = config.get(self.FUNCTION)

    def process(self, tup: Any) -> None:
        """Handle the element and ack it."""
        self.handle(tup.values[0], tup)
        self.ack(tup)

    def handle(self, element: Any, tup: Any) -> None:
        """What the operator does with an element."""
        raise NotImplementedError(f"{type(self).__name__} must define handle")

    def emit_element(self, element: Any, tup: Any) -> None:
        """Emit one element, anchored to the tuple from which it was made."""
        self.emit([element], stream=OUTPUT_STREAM, anchors=[tup])
