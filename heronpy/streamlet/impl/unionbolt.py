"""Streamlet.union: the elements of two streamlets as one."""

from __future__ import annotations

from typing import Any

from heronpy.api.component.component_spec import GlobalStreamId
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.streamlet.impl.streamletboltbase import ElementBolt
from heronpy.streamlet.streamlet import Streamlet


class UnionBolt(ElementBolt):
    """Passes the elements of both inputs on."""

    def handle(self, element: Any, tup: Any) -> None:
        """Pass the element on."""
        self.emit_element(element, tup)


class UnionStreamlet(Streamlet):
    """The streamlet that `Streamlet.union` returns; it has the partitions of the left one."""

    def __init__(self, left: Streamlet, right: Streamlet) -> None:
        super().__init__()
        self._left = left
        self._right = right
        self.set_num_partitions(left.get_num_partitions())

    def _calculate_inputs(self) -> dict[GlobalStreamId, Any]:
        return {self._left._stream_id(): Grouping.SHUFFLE, self._right._stream_id(): Grouping.SHUFFLE}

    def _build_this(self, builder: TopologyBuilder, stage_names: set[str]) -> bool:
        if not self._left._built or not self._right._built:
            return False
        builder.add_bolt(
            self._claim_name("union", stage_names),
            UnionBolt,
            par=self.get_num_partitions(),
            inputs=self._calculate_inputs(),
        )
        return True
