"""Builder.new_source with a function."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from heronpy.api.topology import TopologyBuilder
from heronpy.streamlet.impl.streamletboltbase import part_of
from heronpy.streamlet.impl.streamletspoutbase import ElementSpout
from heronpy.streamlet.streamlet import Streamlet, checked_callable

#: How many elements a generator function has yielded, in the state of its task.
_TAKEN = "elements.taken"


class SupplierSpout(ElementSpout):
    """Emits what the function returns, or what it yields if it is a generator function.

    Under EFFECTIVELY_ONCE a generator function is rewound: after a failure it is run again, and what
    it yields is skipped up to the position of the checkpoint, so it must yield the same each time. A
    plain function has no position; it is simply called on.
    """

    FUNCTION = "function"
    SOURCE = FUNCTION

    def open_source(self, config: dict[str, Any], context: Any) -> None:
        """Pick up the function; start it if it yields, and skip what was emitted before."""
        function: Callable[[], Any] = part_of(config, self.FUNCTION, self)
        self._taken = 0
        self._is_rewindable = inspect.isgeneratorfunction(function)
        if not self._is_rewindable:
            self._supply: Callable[[], Any] = function
            if context.attempt:
                self.log("this source is a plain function and cannot go back to a checkpoint: after a failure, what"
                         " it gave since then is lost; make it a generator function to be exact", "warn")
            return
        iterator: Iterator[Any] = function()
        if self.state is not None:
            self._taken = int(self.state.get(_TAKEN) or 0)
            deque(islice(iterator, self._taken), maxlen=0)
        self._supply = iterator.__next__

    def next_element(self) -> Any:
        """Ask the function."""
        element = self._supply()
        self._taken += 1
        return element

    def pre_save(self, checkpoint_id: str) -> None:
        """Puts the number of elements taken into the state."""
        if self._is_rewindable and self.state is not None:
            self.state[_TAKEN] = self._taken


class SupplierStreamlet(Streamlet):
    """The streamlet of a function."""

    def __init__(self, supplier_function: Callable[[], Any]) -> None:
        super().__init__()
        self._function = checked_callable(supplier_function, "a source")

    def _build_this(self, builder: TopologyBuilder, stage_names: set[str]) -> bool:
        builder.add_spout(
            self._claim_name("supplier", stage_names),
            SupplierSpout,
            par=self.get_num_partitions(),
            config={SupplierSpout.FUNCTION: self._function},
        )
        return True
