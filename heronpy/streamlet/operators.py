"""What runs in the tasks of one-element operators, and the groupings in front of them.

Each operator has one output stream with one field. Outputs are anchored to the element that they were made
from. The runtime handles an exception of the user's function: it ends the task, and an unacked element is
failed and replayed under ATLEAST_ONCE.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.component.base_component import BaseComponent
from heronpy.api.custom_grouping import ICustomGrouping
from heronpy.api.state.state import HashMapState
from heronpy.api.state.stateful_component import StatefulComponent
from heronpy.api.stream import Stream
from heronpy.api.topology_context import TopologyContext
from heronpy.api.tuple import Tuple
from heronpy.common.hashing import stable_hash
from heronpy.streamlet.context import OUTPUT_STREAM, ContextImpl
from heronpy.streamlet.errors import StreamletError
from heronpy.streamlet.transformoperator import TransformOperator

OUTPUT_FIELD = "_output_"


def part_of(config: dict[str, Any], key: str, component: BaseComponent) -> Any:
    """A required value from the component's configuration."""
    if config.get(key) is None:
        raise StreamletError(f"{type(component).__name__} needs {key!r} in the configuration of its component")
    return config[key]


class StreamletBoltBase:
    """Declares the output of an operator's bolt."""

    outputs: Sequence[str | Stream] = [Stream(fields=[OUTPUT_FIELD], name=OUTPUT_STREAM)]


class ElementBolt(StreamletBoltBase, Bolt, StatefulComponent):
    """A bolt that handles one element at a time; subclasses define `handle`."""

    def process(self, tup: Tuple) -> None:
        """Handle the element and ack it."""
        self.handle(tup.values[0], tup)
        self.ack(tup)

    def handle(self, element: Any, tup: Tuple) -> None:
        """What the operator does with an element."""
        raise NotImplementedError(f"{type(self).__name__} must define handle")

    def emit_element(self, element: Any, tup: Tuple) -> None:
        """Emit one element, anchored to the tuple from which it was made."""
        self.emit([element], stream=OUTPUT_STREAM, anchors=[tup])


class FunctionBolt(ElementBolt):
    """Applies a function of the user's."""

    #: The key of the function in the component's configuration.
    FUNCTION = "function"

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Read the function."""
        self.function: Callable[[Any], Any] = part_of(config, self.FUNCTION, self)


class MapBolt(FunctionBolt):
    """One element for each element."""

    def handle(self, element: Any, tup: Tuple) -> None:
        self.emit_element(self.function(element), tup)


class FlatMapBolt(FunctionBolt):
    """The elements of the function's result; one that cannot be iterated over is an element itself."""

    def handle(self, element: Any, tup: Tuple) -> None:
        result = self.function(element)
        for item in result if isinstance(result, Iterable) else (result,):
            self.emit_element(item, tup)


class FilterBolt(FunctionBolt):
    """The elements for which the function is true."""

    def handle(self, element: Any, tup: Tuple) -> None:
        if self.function(element):
            self.emit_element(element, tup)


class ConsumeBolt(FunctionBolt):
    """Passes each element to the function and emits nothing."""

    CONSUMEFUNCTION = "consumefunction"
    FUNCTION = CONSUMEFUNCTION
    outputs = ()

    def handle(self, element: Any, tup: Tuple) -> None:
        self.function(element)


class LogBolt(ElementBolt):
    """Logs elements at INFO."""

    outputs = ()

    def handle(self, element: Any, tup: Tuple) -> None:
        self.logger.info("%s", element)


class PassBolt(ElementBolt):
    """Passes elements on: in a union, or after a repartition, which is only routing."""

    def handle(self, element: Any, tup: Tuple) -> None:
        self.emit_element(element, tup)


class TransformBolt(ElementBolt):
    """Runs a TransformOperator, which may emit any number of elements and has a state."""

    OPERATOR = "operator"

    state: HashMapState | None = None

    def init_state(self, stateful_state: HashMapState) -> None:
        """Keep the state for the operator's context; the operator writes to it itself."""
        self.state = stateful_state

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Set the operator up."""
        self._current: Tuple | None = None
        self._operator: TransformOperator[Any, Any] = part_of(config, self.OPERATOR, self)
        state = HashMapState() if self.state is None else self.state
        self._operator.setup(ContextImpl(context, state, self._emit_for_current))

    def handle(self, element: Any, tup: Tuple) -> None:
        self._current = tup
        try:
            self._operator.transform(element)
        finally:
            self._current = None

    def _emit_for_current(self, element: Any) -> None:
        if self._current is None:
            self.emit([element], stream=OUTPUT_STREAM)
        else:
            self.emit_element(element, self._current)


class KeyGrouping(ICustomGrouping):
    """Routes (key, value) elements: equal keys meet in one task.

    The hash of a key is the same in every process and after every restart; builtin hash() would send one key
    to different tasks from different senders.
    """

    def prepare(self, context: TopologyContext, component: str, stream: str, target_tasks: list[int]) -> None:
        """Remember the tasks, in an order that all senders share."""
        self._component = component
        self._target_tasks = sorted(target_tasks)

    def choose_tasks(self, values: Sequence[Any]) -> list[int]:
        """The one task of this key."""
        key, _ = key_and_value(values[0], f"an element of {self._component!r}")
        return [self._target_tasks[stable_hash(key) % len(self._target_tasks)]]


def key_and_value(element: Any, what: str) -> tuple[Any, Any]:
    """The two parts of a (key, value) element."""
    # A str of two characters could also be unpacked, but is not meant as a pair.
    if isinstance(element, tuple | list) and len(element) == 2:
        return element[0], element[1]
    text = repr(element)
    shown = text if len(text) <= 80 else text[:77] + "..."
    raise StreamletError(
        f"{what} is {shown}, but joins and reductions by key take (key, value) pairs; make one with map"
    )


class RepartitionCustomGrouping(ICustomGrouping):
    """Asks the user's function for the partitions of each element, in the sending task.

    The function is called with the element and the number of partitions. Apache heronpy called it with a list
    that held the element; a function whose first parameter is named `values` still gets the list.
    """

    LIST_PARAMETER = "values"

    def __init__(self, repartition_function: Callable[[Any, int], int | Iterable[int]]) -> None:
        self._repartition_function = repartition_function
        signature = signature_of(repartition_function)
        first = next(iter(signature.parameters), None) if signature else None
        self._takes_list = first == self.LIST_PARAMETER

    def prepare(self, context: TopologyContext, component: str, stream: str, target_tasks: list[int]) -> None:
        """Remember the tasks; partition i is the i-th of them."""
        self._target_tasks = sorted(target_tasks)

    def choose_tasks(self, values: Sequence[Any]) -> list[int]:
        """The tasks of the partitions that the function names, each once."""
        count = len(self._target_tasks)
        chosen = self._repartition_function(values if self._takes_list else values[0], count)
        indices = chosen if isinstance(chosen, Iterable) else (chosen,)
        return list(dict.fromkeys(self._target_tasks[self._checked(i) % count] for i in indices))

    @staticmethod
    def _checked(index: Any) -> int:
        # numpy integers and the like have __index__; a str or float is a mistake.
        if not hasattr(index, "__index__"):
            raise StreamletError(
                f"the repartition function returned {index!r}; it must return the index of a partition, or several"
            )
        return int(index.__index__())


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """The parameters of a function; None for builtins without a signature."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None
