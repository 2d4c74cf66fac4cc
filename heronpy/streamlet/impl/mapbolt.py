"""Streamlet.map: one element for each element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heronpy.api.component.component_spec import GlobalStreamId
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.streamlet.impl.streamletboltbase import ElementBolt
from heronpy.streamlet.streamlet import Streamlet, checked_callable


class MapBolt(ElementBolt):
    """Applies the user's function to each element."""

    FUNCTION = "function"

    def handle(self, element: Any, tup: Any) -> None:
        """Apply the function."""
        self.emit_element(self.function(element), tup)


class MapStreamlet(Streamlet):
    """The streamlet that `Streamlet.map` returns."""

    def __init__(self, map_function: Callable[[Any], Any], parent: Streamlet) -> None:
        super().__init__()
        self._function = checked_callable(map_function, "map")
        self._parent = parent
        self.set_num_partitions(parent.get_num_partitions())

    def _calculate_inputs(self) -> dict[GlobalStreamId, Any]:
        return {self._parent._stream_id(): Grouping.SHUFFLE}

    def _build_this(self, builder: TopologyBuilder, stage_names: set[str]) -> bool:
        builder.add_bolt(
            self._claim_name("map", stage_names),
            MapBolt,
            par=self.get_num_partitions(),
            inputs=self._calculate_inputs(),
            config={MapBolt.FUNCTION: self._function},
        )
        return True
