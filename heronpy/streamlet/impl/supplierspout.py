"""Builder.new_source with a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from heronpy.api.topology import TopologyBuilder
from heronpy.streamlet.impl.streamletspoutbase import ElementSpout
from heronpy.streamlet.streamlet import Streamlet, checked_callable


class SupplierSpout(ElementSpout):
    """Emits what the function returns, or what it yields if it is a generator function."""

    def open_source(self, config: dict[str, Any], context: Any) -> None:
        """Pick up the function; start it if it yields."""
        function: Callable[[], Any] = config[self.SOURCE]
        if inspect.isgeneratorfunction(function):
            iterator: Iterator[Any] = function()
            self._supply: Callable[[], Any] = iterator.__next__
        else:
            self._supply = function

    def next_element(self) -> Any:
        """Ask the function."""
        return self._supply()


class SupplierStreamlet(Streamlet):
    """The streamlet of a function."""

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__()
        self._function = checked_callable(function, "a source")

    def _build_this(self, builder: TopologyBuilder, stage_names: set[str]) -> bool:
        builder.add_spout(
            self._claim_name("supplier", stage_names),
            SupplierSpout,
            par=self.get_num_partitions(),
            config={SupplierSpout.SOURCE: self._function},
        )
        return True
