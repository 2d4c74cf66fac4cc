"""The base class of the bolts that users write."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from heronpy.api.batch import Batch
from heronpy.api.bolt.base_bolt import BaseBolt
from heronpy.api.component.component_spec import HeronComponentSpec, Inputs
from heronpy.api.stream import Stream
from heronpy.api.tuple import Tuple
from heronpy.common.errors import TopologyError

if TYPE_CHECKING:
    from heronpy.api.topology_context import TopologyContext


class Bolt(BaseBolt):
    """Processes tuples. `outputs` lists its output fields and streams; a bolt without outputs emits nothing.

    Define `process` to get tuples one by one, or `process_batch` to get the tuples that arrived together.
    """

    @classmethod
    def spec(
        cls,
        name: str | None = None,
        inputs: Inputs | None = None,
        par: int = 1,
        config: dict[str, Any] | None = None,
        optional_outputs: Sequence[str | Stream] | None = None,
    ) -> HeronComponentSpec:
        """Declare this bolt; see `BaseBolt.spec`. Raises TopologyError if `process_batch` is a coroutine function."""
        takes_batches(cls)
        return super().spec(name=name, inputs=inputs, par=par, config=config, optional_outputs=optional_outputs)

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Called once, before any other method. `config` holds Python values (int, bool, ...)."""

    def process(self, tup: Tuple) -> Awaitable[None] | None:
        """Process one tuple: call `self.emit`, then `self.ack` or `self.fail`. Only the `process` of an AsyncBolt may
        await."""
        raise NotImplementedError(
            f"bolt {type(self).__name__} does not define process(tup); define it to handle tuples"
        )

    def process_batch(self, batch: Batch) -> None:
        """Process tuples that arrived together: call `self.emit_batch`, then `self.ack(batch)` or `self.fail(batch)`.

        Define it instead of `process`: a bolt that defines both gets single tuples. A batch contains the tuples of one
        stream: one tuple when tuples arrive one by one, up to `heron.instance.batch_tuples` under load.
        An exception fails the whole batch and restarts the task. The task then gets batches of one tuple for a while,
        to find the tuple that causes the exception.
        """
        raise NotImplementedError(
            f"bolt {type(self).__name__} does not define process_batch(batch); define it to handle batches"
        )

    def process_tick(self, tup: Tuple) -> Awaitable[None] | None:
        """Called once per tick interval, if `topology.tick.tuple.freq.secs` (or `.ms`) is set."""
        return None


_Method = TypeVar("_Method", bound=Callable[..., Any])


def or_batches(process: _Method) -> _Method:
    """Mark a `process` method as unused if its class also has `process_batch`. Overrides are not marked."""
    process.or_batches = True  # type: ignore[attr-defined]
    return process


def takes_batches(bolt_class: type) -> bool:
    """Return whether a bolt gets batches, because it defines `process_batch` but not `process`.

    Raises TopologyError if `process_batch` is a coroutine function.
    """
    method, process = getattr(bolt_class, "process_batch", None), getattr(bolt_class, "process", None)
    if method in (None, Bolt.process_batch):
        return False
    if process not in (None, Bolt.process) and not getattr(process, "or_batches", False):
        return False
    if inspect.iscoroutinefunction(method):
        raise TopologyError(
            f"{bolt_class.__name__}.process_batch is a coroutine; define it with `def`, or `async def process` in an"
            " AsyncBolt"
        )
    return callable(method)
