"""What the bolts of all operators share: one output stream with one field, and its anchoring."""

from __future__ import annotations

from typing import Any

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.state.stateful_component import StatefulComponent
from heronpy.api.stream import Stream
from heronpy.streamlet.errors import StreamletError
from heronpy.streamlet.streamlet import OUTPUT_FIELD, OUTPUT_STREAM


def part_of(config: dict[str, Any], key: str, component: Any) -> Any:
    """What an operator cannot do without, from its component's configuration."""
    if config.get(key) is None:
        raise StreamletError(f"{type(component).__name__} needs {key!r} in the configuration of its component")
    return config[key]


class StreamletBoltBase:
    """Declares the output of an operator's bolt."""

    outputs = [Stream(fields=[OUTPUT_FIELD], name=OUTPUT_STREAM)]


class ElementBolt(StreamletBoltBase, Bolt, StatefulComponent):
    """A bolt that handles one element at a time and anchors whatever it emits for it.

    Subclasses define `handle(element, tup)`, and `FUNCTION` when they apply a function of the user's. Its
    exceptions are left to the runtime: one ends the task, and an unacked element is failed and replayed
    under ATLEAST_ONCE.
    """

    #: The key of the user's function in the component's configuration; "" when there is none.
    FUNCTION = ""

    def init_state(self, stateful_state: Any) -> None:
        """Single-element operators keep nothing between elements."""

    def pre_save(self, checkpoint_id: str) -> None:
        """Nothing to save."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Pick up the user's function, which travelled in the component's configuration."""
        self.function: Any = part_of(config, self.FUNCTION, self) if self.FUNCTION else None

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
