"""Streamlet.log: write each element into the task's log."""

from __future__ import annotations

from typing import Any

from heronpy.api.component.component_spec import GlobalStreamId
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.streamlet.impl.streamletboltbase import ElementBolt
from heronpy.streamlet.streamlet import Streamlet


class LogBolt(ElementBolt):
    """Logs elements at INFO."""

    outputs: list[Any] = []

    def handle(self, element: Any, tup: Any) -> None:
        """Log the element."""
        self.logger.info("%s", element)


class LogStreamlet(Streamlet):
    """The streamlet that `Streamlet.log` records."""

    def __init__(self, parent: Streamlet) -> None:
        super().__init__()
        self._parent = parent
        self.set_num_partitions(parent.get_num_partitions())

    def _calculate_inputs(self) -> dict[GlobalStreamId, Any]:
        return {self._parent._stream_id(): Grouping.SHUFFLE}

    def _build_this(self, builder: TopologyBuilder, stage_names: set[str]) -> bool:
        builder.add_bolt(
            self._claim_name("log", stage_names),
            LogBolt,
            par=self.get_num_partitions(),
            inputs=self._calculate_inputs(),
        )
        return True
