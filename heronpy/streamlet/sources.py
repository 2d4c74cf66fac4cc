"""What runs in the tasks of sources: it emits one element per call and replays failed ones.

Under ATLEAST_ONCE each element is emitted with an id and kept until it is acked; a failed one is emitted again
before new ones. At most `topology.max.spout.pending` elements are kept, because the runtime asks for no more.
In the other modes nothing is tracked. The input has ended when the source has raised StopIteration and nothing is
pending or waiting for replay.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from heronpy.api import api_constants
from heronpy.api.spout.spout import Spout
from heronpy.api.state.state import HashMapState
from heronpy.api.state.stateful_component import StatefulComponent
from heronpy.api.stream import Stream
from heronpy.api.topology_context import TopologyContext
from heronpy.streamlet.context import OUTPUT_STREAM, ContextImpl
from heronpy.streamlet.generator import Generator
from heronpy.streamlet.operators import OUTPUT_FIELD, part_of

#: A source at its end waits for acks, which end the input; a fail that comes meanwhile is seen after this.
_ENDING_WAIT_S = 0.05
#: How many elements a generator function has yielded, in the state of its task.
_TAKEN = "elements.taken"


class StreamletSpoutBase:
    """Declares the output of a source's spout."""

    outputs: Sequence[str | Stream] = [Stream(fields=[OUTPUT_FIELD], name=OUTPUT_STREAM)]


class ElementSpout(StreamletSpoutBase, Spout, StatefulComponent):
    """A spout of single elements. Subclasses define `open_source` and `next_element`."""

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
        """The next element, or None if none is available yet; raises StopIteration when the input has ended."""
        raise NotImplementedError(f"{type(self).__name__} must define next_element")

    def next_tuple(self) -> None:
        """Emit a failed element again, or a new one; announce the end of the input."""
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
        """Forget an element that is fully processed; the last one ends the input."""
        self._pending.pop(tup_id, None)
        if self._exhausted and not self._pending and not self._replays:
            self.end_of_input()

    def fail(self, tup_id: int) -> None:
        """Have a failed element emitted again."""
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
    """Emits what a Generator gives."""

    GENERATOR = "generator"

    def open_source(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Set the generator up."""
        self._generator: Generator[Any] = part_of(config, self.GENERATOR, self)
        state = HashMapState() if self.state is None else self.state
        self._generator.setup(ContextImpl(context, state, self._emit_element, self))

    def next_element(self) -> Any:
        """Ask the generator."""
        return self._generator.get()

    def pre_save(self, checkpoint_id: str) -> None:
        """Have the generator put its position into the state."""
        # An object with only the methods of Apache's Generator lacks this one.
        save = getattr(self._generator, "pre_save", None)
        if save is not None:
            save(checkpoint_id)


class SupplierSpout(ElementSpout):
    """Emits what a function returns, or what it yields if it is a generator function.

    Under EFFECTIVELY_ONCE a generator function is rewound: after a failure it is run again, and what it yields
    is skipped up to the position of the checkpoint, so it must yield the same each time. A plain function has
    no position; it is just called again.
    """

    FUNCTION = "function"

    def open_source(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Pick up the function; start it if it yields, and skip what was emitted before."""
        function: Callable[[], Any] = part_of(config, self.FUNCTION, self)
        self._taken = 0
        self._is_rewindable = inspect.isgeneratorfunction(function)
        if not self._is_rewindable:
            self._supply = function
            if context.attempt:
                self.log(
                    "this source is a plain function and cannot go back to a checkpoint: after a failure, what"
                    " it returned since then is lost; make it a generator function to be exact",
                    "warn",
                )
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
        """Put the number of elements taken into the state."""
        if self._is_rewindable and self.state is not None:
            self.state[_TAKEN] = self._taken
