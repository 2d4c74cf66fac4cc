"""Streamlet.reduce_by_window: fold all elements of a window."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from heronpy.api.component.component_spec import GlobalStreamId
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.streamlet.impl.keygrouping import KeyGrouping
from heronpy.streamlet.impl.windowbolt import (
    WindowedBolt,
    checked_window,
    window_of,
    window_settings,
)
from heronpy.streamlet.streamlet import Streamlet, checked_callable
from heronpy.streamlet.windowconfig import WindowConfig


class ReduceByWindowBolt(WindowedBolt):
    """Folds the elements that this partition saw in a window."""

    def processWindow(self, window_config: Any, tuples: list[Any]) -> None:
        """Emit (Window, result); None is the result of a window without elements."""
        elements = [tup.values[0] for tup in tuples]
        result = functools.reduce(self.function, elements) if elements else None
        self.emit_result(window_of(window_config), result, tuples)


class ReduceGrouping(KeyGrouping):
    """Equal keys meet in one partition; for elements that are (key, value) pairs."""


class ReduceByWindowStreamlet(Streamlet):
    """The streamlet that `Streamlet.reduce_by_window` returns."""

    def __init__(
        self,
        window_config: WindowConfig,
        reduce_function: Callable[[Any, Any], Any],
        parent: Streamlet,
    ) -> None:
        super().__init__()
        self._window_config = checked_window(window_config, "reduce_by_window")
        self._function = checked_callable(reduce_function, "reduce_by_window")
        self._parent = parent
        self.set_num_partitions(parent.get_num_partitions())

    def _calculate_inputs(self) -> dict[GlobalStreamId, Any]:
        return {self._parent._stream_id(): Grouping.SHUFFLE}

    def _build_this(self, builder: TopologyBuilder, stage_names: set[str]) -> bool:
        builder.add_bolt(
            self._claim_name("reducebywindow", stage_names),
            ReduceByWindowBolt,
            par=self.get_num_partitions(),
            inputs=self._calculate_inputs(),
            config={
                ReduceByWindowBolt.FUNCTION: self._function,
                **window_settings(self._window_config),
            },
        )
        return True
