"""The methods that every bolt has from the runtime.

They stay thin: the runtime may shadow `emit`, `ack` and `fail` by attributes of the object that
hold faster closures with the same signatures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heronpy.api.component.base_component import BaseComponent
from heronpy.api.component.component_spec import HeronComponentSpec, spec_of_class
from heronpy.api.stream import Stream
from heronpy.api.tuple import TupleHelper
from heronpy.common.errors import HeronError


class NotReadyError(HeronError):
    """Raised by `is_ready`: not ready yet, and this is what is waited for, such as "Spark is starting"."""


class BaseBolt(BaseComponent):
    """Declares a bolt; emits, acks and fails for it."""

    # The runtime asks this: `process` of an async bolt is a coroutine function.
    is_async = False

    @classmethod
    def spec(cls, name: str | None = None, inputs: Any = None, par: int = 1,
             config: dict[str, Any] | None = None,
             optional_outputs: Sequence[str | Stream] | None = None) -> HeronComponentSpec:
        """Declares this bolt as a component of a topology.

        `inputs` is a dict from a component spec, or from `spec["stream"]`, to a `Grouping`; or a
        list of them, which means `Grouping.SHUFFLE`. The rest is as for a spout.
        """
        spec = spec_of_class(cls, name=name, is_spout=False, par=par, inputs=inputs, config=config,
                             optional_outputs=optional_outputs)
        spec.asks_readiness = cls.is_ready is not BaseBolt.is_ready
        return spec

    def emit(self, tup: Any, stream: str = Stream.DEFAULT_STREAM_ID, anchors: Any = None,
             direct_task: int | None = None, need_task_ids: bool = False) -> Any:
        """Emits a tuple with these values.

        `anchors` are the input tuples that count as processed only when this one is. `direct_task`
        is the receiving task of a direct stream. With `need_task_ids` the receiving task ids are
        returned.
        """
        return self.delegate.emit(tup, stream=stream, anchors=anchors, direct_task=direct_task,
                                  need_task_ids=need_task_ids)

    @staticmethod
    def is_tick(tup: Any) -> bool:
        """Whether `tup` is a tick tuple."""
        return bool(tup.stream == TupleHelper.TICK_TUPLE_ID)

    def ack(self, tup: Any) -> Any:
        """Says that `tup` was processed."""
        return self.delegate.ack(tup)

    def fail(self, tup: Any) -> Any:
        """Says that `tup` could not be processed; its spout is told to replay it."""
        return self.delegate.fail(tup)

    def finish(self) -> Any:
        """Called once when all input has ended and is processed; it may emit."""

    def is_ready(self) -> bool:
        """Whether this task can take tuples; override it where something outside has to start first.

        Asked several times a second after `initialize`, before the topology's first tuple. Until each task
        of each such bolt has said True, no spout is asked for tuples and the topology is WAITING. Return at
        once, never wait in here. Instead of returning False, raise `NotReadyError("the index is loading")`:
        `heron status` and `heron submit` show the text with how long it has been so. A task that is not
        ready after `heron.instance.ready_timeout_s` fails; any other exception ends the task as one of
        `process` does. Not asked of a task that restarts while tuples flow: it may take them when it can,
        and backpressure holds the others back meanwhile.
        """
        return True
