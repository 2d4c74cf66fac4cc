"""The methods that the runtime provides to every spout.

The runtime may replace an object's `emit` with a faster closure that has the same signature.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from heronpy.api.component.base_component import BaseComponent
from heronpy.api.component.component_spec import HeronComponentSpec, spec_of_class
from heronpy.api.stream import Stream


class Backlog(NamedTuple):
    """The input that a spout has not emitted yet, in tuples, bytes or both. None means unknown."""

    tuples: int | None = None
    bytes: int | None = None


class BaseSpout(BaseComponent):
    """The base of all spouts: `spec` declares a spout in a topology; `emit` and `end_of_input` handle its output."""

    @classmethod
    def spec(
        cls,
        name: str | None = None,
        par: int = 1,
        config: dict[str, Any] | None = None,
        optional_outputs: Sequence[str | Stream] | None = None,
    ) -> HeronComponentSpec:
        """Declare this spout as a component of a topology.

        `par` is its number of tasks; `config` overrides the topology's configuration;
        `optional_outputs` are added to the class attribute `outputs`.
        """
        return spec_of_class(cls, name=name, is_spout=True, par=par, config=config, optional_outputs=optional_outputs)

    def emit(
        self,
        tup: Sequence[Any],
        tup_id: Any = None,
        stream: str = Stream.DEFAULT_STREAM_ID,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int] | None:
        """Emit a tuple with these values.

        With `tup_id`, the tuple is tracked: `ack` or `fail` is later called with this id. `direct_task` is the
        receiving task of a direct stream. With `need_task_ids`, the receiving task ids are returned. Raises
        TopologyError if the stream is not declared, or the values do not match its fields.
        """
        tasks: list[int] | None = self.delegate.emit(
            tup, tup_id=tup_id, stream=stream, direct_task=direct_task, need_task_ids=need_task_ids
        )
        return tasks

    def emit_batch(
        self,
        columns: Any = None,
        *,
        rows: Sequence[Sequence[Any]] | None = None,
        ids: Sequence[Any] | None = None,
        stream: str = Stream.DEFAULT_STREAM_ID,
        direct_task: int | None = None,
    ) -> None:
        """Emit many tuples, with the same effect as an `emit` for each, at a fraction of the cost.

        `columns` has the values of each field: a dict from fields to their values, a pandas DataFrame, a pyarrow
        RecordBatch or Table with these columns, or a list with one entry per field, in order. The values of a field may
        be a list, a one-dimensional NumPy array, a pandas Series or a pyarrow Array; they are emitted as Python values.
        `rows` has the values of each tuple; give exactly one of `columns` and `rows`. `ids` has the id of each tuple,
        or None for a tuple that is not tracked. All tuples are emitted, even beyond `topology.max.spout.pending`.
        Raises TopologyError as `emit` does; earlier tuples may have been emitted before the error.
        """
        self.delegate.emit_batch(columns, rows=rows, ids=ids, stream=stream, direct_task=direct_task)

    def end_of_input(self) -> None:
        """Declare that this task will emit no more tuples.

        The topology finishes when every task of every spout has declared this and all tuples are
        processed. Call it only when no emitted tuple may still need a replay.
        """
        self.delegate.end_of_input()

    def backlog(self) -> int | Backlog | None:
        """Return the input that this task has yet to emit: a number of tuples, a `Backlog`, or None.

        None means unknown. If a spout defines this method, it is called about once a second, between two calls to
        `next_tuple` or while `emit` waits, also while full queues keep `next_tuple` from being called. It must
        return quickly and emit nothing. If it raises an exception, the backlog is unknown. `heron top`,
        `heron metrics` and the tracker show the sum over the tasks.
        """
        return None
