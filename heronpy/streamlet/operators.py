"""The spouts of sources, the bolts of operators on single elements, and their groupings.

Each operator has one output stream with one field. Outputs are anchored to the input element. An exception in the
user's function ends the task; under ATLEAST_ONCE, the unacked elements fail and are replayed.

A source emits one element per call. Under ATLEAST_ONCE each element is emitted with an id and
kept until it is acked; failed elements are emitted again before new elements. At most `topology.max.spout.pending`
elements are kept, because the runtime does not call `next_tuple` above that limit. In the other modes nothing is
tracked. The input has ended when the source has raised StopIteration and nothing is pending or waiting for replay.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from heronpy.api import api_constants
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.component.base_component import BaseComponent
from heronpy.api.custom_grouping import ICustomGrouping
from heronpy.api.spout.spout import Spout
from heronpy.api.state.state import HashMapState
from heronpy.api.state.stateful_component import StatefulComponent
from heronpy.api.stream import Stream
from heronpy.api.topology_context import TopologyContext
from heronpy.api.tuple import Tuple
from heronpy.common.hashing import stable_hash
from heronpy.streamlet.context import OUTPUT_STREAM, ContextImpl
from heronpy.streamlet.errors import StreamletError
from heronpy.streamlet.generator import Generator
from heronpy.streamlet.transformoperator import TransformOperator

OUTPUT_FIELD = "_output_"


def part_of(config: dict[str, Any], key: str, component: BaseComponent) -> Any:
    """Return a required value from the component's configuration."""
    if config.get(key) is None:
        raise StreamletError(f"{type(component).__name__} needs {key!r} in the configuration of its component")
    return config[key]


class StreamletBoltBase:
    """Declares the output of an operator's bolt."""

    outputs: Sequence[str | Stream] = [Stream(fields=[OUTPUT_FIELD], name=OUTPUT_STREAM)]


class ElementBolt(StreamletBoltBase, Bolt):
    """A bolt that processes one element at a time; subclasses define `handle`."""

    def process(self, tup: Tuple) -> None:
        """Call `handle` for the element, then ack it."""
        self.handle(tup.values[0], tup)
        self.ack(tup)

    def handle(self, element: Any, tup: Tuple) -> None:
        """Process one element, and emit the results with `emit_element`."""
        raise NotImplementedError(f"{type(self).__name__} must define handle")

    def emit_element(self, element: Any, tup: Tuple) -> None:
        """Emit one element, anchored to the input tuple."""
        self.emit([element], stream=OUTPUT_STREAM, anchors=[tup])


class FunctionBolt(ElementBolt):
    """A bolt that applies a user function."""

    #: The key of the function in the component's configuration.
    FUNCTION = "function"

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Load the function from the configuration."""
        self.function: Callable[[Any], Any] = part_of(config, self.FUNCTION, self)


class MapBolt(FunctionBolt):
    """Emits the function's result for each element."""

    def handle(self, element: Any, tup: Tuple) -> None:
        self.emit_element(self.function(element), tup)


class FlatMapBolt(FunctionBolt):
    """Emits the elements of the function's result; a result that is not iterable is emitted as one element."""

    def handle(self, element: Any, tup: Tuple) -> None:
        result = self.function(element)
        for item in result if isinstance(result, Iterable) else (result,):
            self.emit_element(item, tup)


class FilterBolt(FunctionBolt):
    """Emits the elements for which the function returns a true value."""

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
    """Writes each element to the log of its task, at level INFO."""

    outputs = ()

    def handle(self, element: Any, tup: Tuple) -> None:
        self.logger.info("%s", element)


class PassBolt(ElementBolt):
    """Passes elements on unchanged, for a union or a repartition."""

    def handle(self, element: Any, tup: Tuple) -> None:
        self.emit_element(element, tup)


class TransformBolt(ElementBolt, StatefulComponent):
    """Runs a TransformOperator, which may emit any number of elements and has a state."""

    OPERATOR = "operator"

    state: HashMapState | None = None

    def init_state(self, stateful_state: HashMapState) -> None:
        """Keep the state for the operator's context. The operator itself writes to the state."""
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

    def finish(self) -> None:
        """Call the operator's `finish`, which may emit elements that the operator has kept."""
        # An object with only the methods of Apache's TransformOperator lacks this method.
        finish = getattr(self._operator, "finish", None)
        if finish is not None:
            finish()

    def _emit_for_current(self, element: Any) -> None:
        if self._current is None:
            self.emit([element], stream=OUTPUT_STREAM)
        else:
            self.emit_element(element, self._current)


class KeyGrouping(ICustomGrouping):
    """Routes (key, value) elements so that equal keys go to one task.

    The hash of a key is the same in every process and after every restart; with the built-in hash(), different senders
    would send the same key to different tasks.
    """

    def prepare(self, context: TopologyContext, component: str, stream: str, target_tasks: list[int]) -> None:
        """Store the target tasks in ascending order, so that all senders use the same order."""
        self._component = component
        self._target_tasks = sorted(target_tasks)

    def choose_tasks(self, values: Sequence[Any]) -> list[int]:
        """Return the task for the element's key."""
        key, _ = key_and_value(values[0], f"an element of {self._component!r}")
        return [self._target_tasks[stable_hash(key) % len(self._target_tasks)]]


def key_and_value(element: Any, what: str) -> tuple[Any, Any]:
    """Return the two parts of a (key, value) element."""
    # A str of two characters could also be unpacked, but does not mean a pair.
    if isinstance(element, tuple | list) and len(element) == 2:
        return element[0], element[1]
    text = repr(element)
    shown = text if len(text) <= 80 else text[:77] + "..."
    raise StreamletError(
        f"{what} is {shown}, but joins and reductions by key need (key, value) pairs; create pairs with map"
    )


class RepartitionCustomGrouping(ICustomGrouping):
    """Calls the user's function in the sending task to choose the partitions of each element.

    The function is called with the element and the number of partitions. Apache heronpy passed a list that contained
    the element; a function whose first parameter is named `values` still gets a list.
    """

    LIST_PARAMETER = "values"

    def __init__(self, repartition_function: Callable[[Any, int], int | Iterable[int]]) -> None:
        self._repartition_function = repartition_function
        signature = signature_of(repartition_function)
        first = next(iter(signature.parameters), None) if signature else None
        self._takes_list = first == self.LIST_PARAMETER

    def prepare(self, context: TopologyContext, component: str, stream: str, target_tasks: list[int]) -> None:
        """Store the target tasks; partition i belongs to the i-th task."""
        self._target_tasks = sorted(target_tasks)

    def choose_tasks(self, values: Sequence[Any]) -> list[int]:
        """Return the tasks for the partitions that the function chooses, without duplicates."""
        count = len(self._target_tasks)
        chosen = self._repartition_function(values if self._takes_list else values[0], count)
        indices = chosen if isinstance(chosen, Iterable) else (chosen,)
        return list(dict.fromkeys(self._target_tasks[self._checked(i) % count] for i in indices))

    @staticmethod
    def _checked(index: Any) -> int:
        # Types such as numpy's integers have __index__; a str or float is an error.
        if not hasattr(index, "__index__"):
            raise StreamletError(
                f"the repartition function returned {index!r}; it must return one or several partition indices"
            )
        return int(index.__index__())


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the parameters of a function; None for builtins without a signature."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


#: Longest pause in seconds of an exhausted source that waits for the last acks or for a fail.
_ENDING_WAIT_S = 0.05
#: Key, in the state of a task, of the number of elements that a generator function has yielded.
_TAKEN = "elements.taken"


class StreamletSpoutBase:
    """Declares the output of a source's spout."""

    outputs: Sequence[str | Stream] = [Stream(fields=[OUTPUT_FIELD], name=OUTPUT_STREAM)]


class ElementSpout(StreamletSpoutBase, Spout, StatefulComponent):
    """A spout that emits single elements. Subclasses define `open_source` and `next_element`."""

    state: HashMapState | None = None

    def init_state(self, stateful_state: HashMapState) -> None:
        """Keep the state for the source."""
        self.state = stateful_state

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Open the source."""
        mode = config.get(api_constants.TOPOLOGY_RELIABILITY_MODE)
        self._tracked = mode == api_constants.TopologyReliabilityMode.ATLEAST_ONCE
        self._next_id = 0
        self._pending: dict[int, Any] = {}
        self._replays: deque[Any] = deque()
        self._exhausted = False
        self.open_source(config, context)

    def open_source(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Make the source ready for `next_element`."""
        raise NotImplementedError(f"{type(self).__name__} must define open_source")

    def next_element(self) -> Any:
        """Return the next element, or None if none is available yet. Raises StopIteration at the end of the input."""
        raise NotImplementedError(f"{type(self).__name__} must define next_element")

    def next_tuple(self) -> None:
        """Emit a failed element again, or else a new element; declare the end of the input when it is reached."""
        if self._replays:
            self._emit_element(self._replays.popleft())
            return
        if not self._exhausted:
            try:
                element = self.next_element()
            except StopIteration:
                self._exhausted = True
            else:
                if element is not None:
                    self._emit_element(element)
                return
        if not self._pending:
            self.end_of_input()
        else:
            self.wait(_ENDING_WAIT_S)

    def ack(self, tup_id: int) -> None:
        """Stop tracking a fully processed element; the last element of an ended source ends the input."""
        self._pending.pop(tup_id, None)
        if self._exhausted and not self._pending and not self._replays:
            self.end_of_input()

    def fail(self, tup_id: int) -> None:
        """Queue a failed element to be emitted again."""
        if tup_id in self._pending:
            self._replays.append(self._pending.pop(tup_id))

    def _emit_element(self, element: Any) -> None:
        if not self._tracked:
            self.emit([element], stream=OUTPUT_STREAM)
            return
        self._next_id += 1
        self._pending[self._next_id] = element
        self.emit([element], tup_id=self._next_id, stream=OUTPUT_STREAM)


class GeneratorSpout(ElementSpout):
    """A spout that emits the elements of a Generator."""

    GENERATOR = "generator"

    def open_source(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Set the generator up."""
        self._generator: Generator[Any] = part_of(config, self.GENERATOR, self)
        state = HashMapState() if self.state is None else self.state
        self._generator.setup(ContextImpl(context, state, self._emit_element, self))

    def next_element(self) -> Any:
        """Return the generator's next element."""
        return self._generator.get()

    def pre_save(self, checkpoint_id: str) -> None:
        """Call the generator's `pre_save`, which saves its position to the state."""
        # An object with only the methods of Apache's Generator lacks this method.
        save = getattr(self._generator, "pre_save", None)
        if save is not None:
            save(checkpoint_id)


class SupplierSpout(ElementSpout):
    """A spout that emits the results of a function, or the elements that a generator function yields.

    Under EFFECTIVELY_ONCE a generator function is run again after a failure, and its elements are skipped up to the
    checkpoint's position. So it must yield the same elements each time. A plain function has no position; it is called
    again without skipping.
    """

    FUNCTION = "function"

    def open_source(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Load the function. Start a generator function, and skip the elements emitted before the checkpoint."""
        function: Callable[[], Any] = part_of(config, self.FUNCTION, self)
        self._taken = 0
        self._is_rewindable = inspect.isgeneratorfunction(function)
        if not self._is_rewindable:
            self._supply = function
            if context.attempt:
                self.log(
                    "this source is a plain function and cannot go back to a checkpoint: after a failure, the elements"
                    " since the checkpoint are lost; use a generator function for exact results",
                    "warn",
                )
            return
        iterator: Iterator[Any] = function()
        if self.state is not None:
            self._taken = int(self.state.get(_TAKEN) or 0)
            deque(islice(iterator, self._taken), maxlen=0)
        self._supply = iterator.__next__

    def next_element(self) -> Any:
        """Return the function's next element."""
        element = self._supply()
        self._taken += 1
        return element

    def pre_save(self, checkpoint_id: str) -> None:
        """Save the number of elements yielded so far to the state."""
        if self._is_rewindable and self.state is not None:
            self.state[_TAKEN] = self._taken
