"""Streamlet.consume: hand each element to a function, and end there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heronpy.api.component.component_spec import GlobalStreamId
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.streamlet.impl.streamletboltbase import ElementBolt
from heronpy.streamlet.streamlet import Streamlet, checked_callable


class ConsumeBolt(ElementBolt):
    """Applies the user's function to each element."""

    CONSUMEFUNCTION = "consumefunction"
    FUNCTION = CONSUMEFUNCTION

    outputs: list[Any] = []

    def handle(self, element: Any, tup: Any) -> None:
        """Apply the function."""
        self.function(element)


class ConsumeStreamlet(Streamlet):
    """The streamlet that `Streamlet.consume` records."""

    def __init__(self, consume_function: Callable[[Any], Any], parent: Streamlet) -> None:
        super().__init__()
        self._function = checked_callable(consume_function, "consume")
        self._parent = parent
        self.set_num_partitions(parent.get_num_partitions())

    def _calculate_inputs(self) -> dict[GlobalStreamId, Any]:
        return {self._parent._stream_id(): Grouping.SHUFFLE}

    def _build_this(self, builder: TopologyBuilder, stage_names: set[str]) -> bool:
        builder.add_bolt(
            self._claim_name("consume", stage_names),
            ConsumeBolt,
            par=self.get_num_partitions(),
            inputs=self._calculate_inputs(),
            config={ConsumeBolt.CONSUMEFUNCTION: self._function},
        )
        return True
