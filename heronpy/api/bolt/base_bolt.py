"""The methods that the runtime provides to every bolt.

The runtime may replace an object's `emit`, `ack` and `fail` with faster closures that have the same signatures.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from typing import Any

from heronpy.api.component.base_component import BaseComponent
from heronpy.api.component.component_spec import HeronComponentSpec, Inputs, spec_of_class
from heronpy.api.stream import Stream
from heronpy.api.tuple import Tuple, TupleHelper
from heronpy.common.errors import HeronError


class NotReadyError(HeronError):
    """Raised by `is_ready` when the task is not ready; its text is the reason, such as "Spark is starting"."""


class BaseBolt(BaseComponent):
    """The base of all bolts: `spec` declares a bolt in a topology; `emit`, `ack` and `fail` handle its tuples."""

    # Read by the runtime: `process` of an async bolt is a coroutine function.
    is_async = False

    @classmethod
    def spec(
        cls,
        name: str | None = None,
        inputs: Inputs | None = None,
        par: int = 1,
        config: dict[str, Any] | None = None,
        optional_outputs: Sequence[str | Stream] | None = None,
    ) -> HeronComponentSpec:
        """Declare this bolt as a component of a topology.

        `inputs` maps each source, a component spec or `spec["stream"]`, to a `Grouping`. A list of such sources means
        `Grouping.SHUFFLE` for each. The other parameters are those of a spout's `spec`.
        """
        spec = spec_of_class(
            cls, name=name, is_spout=False, par=par, inputs=inputs, config=config, optional_outputs=optional_outputs
        )
        spec.asks_readiness = cls.is_ready is not BaseBolt.is_ready
        spec.asynchronous = cls.is_async
        return spec

    def emit(
        self,
        tup: Sequence[Any],
        stream: str = Stream.DEFAULT_STREAM_ID,
        anchors: Tuple | Sequence[Tuple] | None = None,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int] | None:
        """Emit a tuple with these values.

        `anchors` are the input tuples that count as fully processed only after the emitted tuple is processed.
        `direct_task` is the receiving task of a direct stream. With `need_task_ids`, the receiving task ids are
        returned. Raises TopologyError if the stream is not declared, or the values do not match its fields.
        """
        tasks: list[int] | None = self.delegate.emit(
            tup, stream=stream, anchors=anchors, direct_task=direct_task, need_task_ids=need_task_ids
        )
        return tasks

    def emit_batch(
        self,
        columns: Any = None,
        *,
        rows: Sequence[Sequence[Any]] | None = None,
        stream: str = Stream.DEFAULT_STREAM_ID,
        anchors: Tuple | Sequence[Tuple | Sequence[Tuple] | None] | None = None,
        direct_task: int | None = None,
    ) -> None:
        """Emit many tuples, with the same effect as an `emit` for each, at a fraction of the cost.

        `columns` has the values of each field: a dict from fields to their values, a Batch, a pandas DataFrame, a
        pyarrow RecordBatch or Table with these columns, or a list with one entry per field, in order. The values of a
        field may be a list, a one-dimensional NumPy array, a pandas Series or a pyarrow Array; they are emitted as
        Python values. `rows` has the values of each tuple; give exactly one of `columns` and `rows`.

        `anchors` is one tuple that all outputs derive from, or has one entry per output, in the same order: a tuple,
        a list of tuples or None. A batch counts as one entry per tuple, and so does `batch.take(places)`. Use
        `anchors=batch` for one output per input, `anchors=batch.take(kept)` after a filter, and `anchors=[batch]` for
        one output that derives from the whole batch. None, bool, int, float, str and bytes are the fastest types.
        Raises TopologyError as `emit` does; earlier tuples may have been emitted before the error.
        """
        self.delegate.emit_batch(columns, rows=rows, stream=stream, anchors=anchors, direct_task=direct_task)

    @staticmethod
    def is_tick(tup: Tuple) -> bool:
        """Return whether `tup` is a tick tuple."""
        return TupleHelper.is_tick(tup)

    def ack(self, tup: Tuple | Iterable[Tuple]) -> None:
        """Mark `tup`, or each tuple in a list, as processed. Tuples may be acked in any order."""
        self.delegate.ack(tup)

    def fail(self, tup: Tuple | Iterable[Tuple]) -> None:
        """Mark `tup`, or each tuple in a list, as failed. The spouts are notified and may replay their tuples."""
        self.delegate.fail(tup)

    def finish(self) -> Awaitable[None] | None:
        """Called once, after all input has been processed; may emit tuples."""
        return None

    def is_ready(self) -> bool:
        """Return whether this task is ready for tuples. Override it if the bolt must wait for an external service.

        Called several times a second after `initialize`, before the topology's first tuple. Until every task
        of such a bolt has returned True, no spout emits and the topology is WAITING. The method must not block.
        Instead of returning False, it can raise `NotReadyError("the index is loading")`: `heron status`
        and `heron submit` show the text, and how long the task has waited. A task that is not ready after
        `heron.instance.ready_timeout_s` fails. Any other exception ends the task like an exception in `process`.
        The method is not called for a task that restarts while tuples flow; backpressure then slows the spouts down.
        """
        return True
