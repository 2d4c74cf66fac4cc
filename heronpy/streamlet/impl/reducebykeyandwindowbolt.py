"""Streamlet.reduce_by_key_and_window: fold the values of each key in a window."""

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
    by_key,
    checked_window,
    keyed,
    window_settings,
)
from heronpy.streamlet.streamlet import Streamlet, checked_callable
from heronpy.streamlet.windowconfig import WindowConfig


class ReduceByKeyAndWindowBolt(WindowedBolt):
    """Folds the values of the keys that are routed here."""

    def processWindow(self, window_config: Any, tuples: list[Any]) -> None:
        """Emit (KeyedWindow, result) for each key of the window."""
        for key, group in by_key(tuples, "reduce_by_key_and_window").items():
            result = functools.reduce(self.function, [value for value, _ in group])
            self.emit_result(keyed(key, window_config), result, [tup for _, tup in group])


class ReduceGrouping(KeyGrouping):
    """Equal keys meet in one partition."""


class ReduceByKeyAndWindowStreamlet(Streamlet):
    """The streamlet that `Streamlet.reduce_by_key_and_window` returns.

    It begins with one partition, whatever its parent has; set_num_partitions changes that.
    """

    def __init__(
        self,
        window_config: WindowConfig,
        reduce_function: Callable[[Any, Any], Any],
        parent: Streamlet,
    ) -> None:
        super().__init__()
        self._window_config = checked_window(window_config, "reduce_by_key_and_window")
        self._function = checked_callable(reduce_function, "reduce_by_key_and_window")
        self._parent = parent

    def _calculate_inputs(self) -> dict[GlobalStreamId, Any]:
        return {self._parent._stream_id(): Grouping.custom(ReduceGrouping())}

    def _build_this(self, builder: TopologyBuilder, stage_names: set[str]) -> bool:
        builder.add_bolt(
            self._claim_name("reducebykeyandwindow", stage_names),
            ReduceByKeyAndWindowBolt,
            par=self.get_num_partitions(),
            inputs=self._calculate_inputs(),
            config={
                ReduceByKeyAndWindowBolt.FUNCTION: self._function,
                **window_settings(self._window_config),
            },
        )
        return True
