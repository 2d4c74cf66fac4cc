"""Streamlet.repartition: the same elements in another number of partitions.

The user's function runs in the sending task, as a custom grouping. It is called with the element
and the number of partitions. Apache heronpy called it with a list that held the element; for
functions written to that, a function whose first parameter is named `values` still gets the list.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from heronpy.api.component.component_spec import GlobalStreamId
from heronpy.api.custom_grouping import ICustomGrouping
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.streamlet.errors import StreamletError
from heronpy.streamlet.impl.streamletboltbase import ElementBolt
from heronpy.streamlet.streamlet import Streamlet, checked_callable, checked_partitions

LIST_PARAMETER = "values"


class RepartitionCustomGrouping(ICustomGrouping):
    """Asks the user's function for the partitions of each element."""

    def __init__(self, repartition_function: Callable[[Any, int], int | Iterable[int]]) -> None:
        self._repartition_function = repartition_function
        self._takes_list = _first_parameter(repartition_function) == LIST_PARAMETER

    def prepare(self, context: Any, component: str, stream: str, target_tasks: list[int]) -> None:
        """Remember the tasks; partition i is the i-th of them."""
        self._target_tasks = sorted(target_tasks)

    def choose_tasks(self, values: list[Any]) -> list[int]:
        """The tasks of the partitions that the function names, each once."""
        count = len(self._target_tasks)
        argument = values if self._takes_list else values[0]
        chosen = self._repartition_function(argument, count)
        indices = chosen if isinstance(chosen, Iterable) else (chosen,)
        return list(dict.fromkeys(self._target_tasks[self._checked(i) % count] for i in indices))

    @staticmethod
    def _checked(index: Any) -> int:
        # numpy integers and the like have __index__; a str or float is a mistake.
        if not hasattr(index, "__index__"):
            raise StreamletError(
                f"the repartition function returned {index!r}; it must return the index of a "
                "partition or several of them"
            )
        return int(index.__index__())


class RepartitionBolt(ElementBolt):
    """Passes elements on; the routing has happened before."""

    def handle(self, element: Any, tup: Any) -> None:
        """Pass the element on."""
        self.emit_element(element, tup)


class RepartitionStreamlet(Streamlet):
    """The streamlet that `Streamlet.repartition` returns."""

    def __init__(
        self,
        num_partitions: int,
        repartition_function: Callable[[Any, int], int | Iterable[int]] | None,
        parent: Streamlet,
    ) -> None:
        super().__init__()
        if repartition_function is not None:
            checked_callable(repartition_function, "repartition")
            _check_takes_two(repartition_function)
        self._repartition_function = repartition_function
        self._parent = parent
        self.set_num_partitions(checked_partitions(num_partitions))

    def _calculate_inputs(self) -> dict[GlobalStreamId, Any]:
        grouping: Any = Grouping.SHUFFLE
        if self._repartition_function is not None:
            grouping = Grouping.custom(RepartitionCustomGrouping(self._repartition_function))
        return {self._parent._stream_id(): grouping}

    def _build_this(self, builder: TopologyBuilder, stage_names: set[str]) -> bool:
        builder.add_bolt(
            self._claim_name("repartition", stage_names),
            RepartitionBolt,
            par=self.get_num_partitions(),
            inputs=self._calculate_inputs(),
        )
        return True


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # some builtins do not tell
        return None


def _first_parameter(function: Callable[..., Any]) -> str | None:
    signature = _signature(function)
    return next(iter(signature.parameters), None) if signature else None


def _check_takes_two(function: Callable[..., Any]) -> None:
    signature = _signature(function)
    if signature is None:
        return
    try:
        signature.bind(None, 1)
    except TypeError:
        raise StreamletError(
            "a repartition function takes two arguments, the element and the number of "
            f"partitions, but {getattr(function, '__name__', function)!r} takes {signature}"
        ) from None
