"""Information about the task, for a generator or a transform operator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import HasFileno, Spout
from heronpy.api.state.state import HashMapState
from heronpy.api.topology_context import TopologyContext
from heronpy.common.errors import TopologyError

#: The one output stream of each stage.
OUTPUT_STREAM = "output"


class Context(ABC):
    """The context that is passed to `Generator.setup` and `TransformOperator.setup`."""

    @abstractmethod
    def get_task_id(self) -> int:
        """Return the id of the task in the topology."""

    @abstractmethod
    def get_config(self) -> dict[str, Any]:
        """Return the configuration of the topology, overridden by that of the component."""

    @abstractmethod
    def get_stream_name(self) -> str:
        """Return the name of this operator's input stream, or of a source's output stream."""

    @abstractmethod
    def get_num_partitions(self) -> int:
        """Return the number of partitions of this operator."""

    @abstractmethod
    def get_partition_index(self) -> int:
        """Return the index of the partition that this task computes, from 0."""

    @abstractmethod
    def get_state(self) -> HashMapState:
        """Return the operator's state, which checkpoints save. Without checkpoints, it begins empty and is never
        saved."""

    @abstractmethod
    def emit(self, values: Any) -> None:
        """Emit `values` as one element of the resulting streamlet."""

    @abstractmethod
    def wait(self, seconds: float) -> None:
        """For a source: postpone the next call to `get` by this many seconds (see `Spout.wait`)."""

    @abstractmethod
    def wait_readable(self, fd: int | HasFileno) -> None:
        """For a source: postpone the next call to `get` until `fd` is readable (see `Spout.wait_readable`)."""

    @abstractmethod
    def busy(self) -> None:
        """For a source: request an immediate call to `get`, although this call found no element (see
        `Spout.busy`)."""


class ContextImpl(Context):
    """A context that reads the task's TopologyContext, and emits through a function, a spout or a bolt.

    `spout` is the spout of a source; `wait`, `wait_readable` and `busy` need it.
    """

    def __init__(
        self,
        top_context: TopologyContext,
        state: HashMapState,
        emitter: Callable[[Any], None] | Spout | Bolt,
        spout: Spout | None = None,
    ) -> None:
        self._top_context = top_context
        self._state = state
        self._emitter = emitter
        self._spout = spout

    def get_task_id(self) -> int:
        return self._top_context.get_task_id()

    def get_config(self) -> dict[str, Any]:
        return self._top_context.get_cluster_config()

    def get_stream_name(self) -> str:
        sources = self._top_context.get_this_sources() or {}
        return next((stream.id for stream in sources), OUTPUT_STREAM)

    def get_num_partitions(self) -> int:
        return len(self._tasks())

    def get_partition_index(self) -> int:
        return self._tasks().index(self.get_task_id())

    def get_state(self) -> HashMapState:
        return self._state

    def emit(self, values: Any) -> None:
        if isinstance(self._emitter, Spout | Bolt):
            self._emitter.emit([values], stream=OUTPUT_STREAM)
        else:
            self._emitter(values)

    def wait(self, seconds: float) -> None:
        self._source("wait").wait(seconds)

    def wait_readable(self, fd: int | HasFileno) -> None:
        self._source("wait_readable").wait_readable(fd)

    def busy(self) -> None:
        self._source("busy").busy()

    def _source(self, call: str) -> Spout:
        if self._spout is None:
            raise TopologyError(
                f"{call}() is for the generator of a source; an operator is called when elements arrive"
            )
        return self._spout

    def _tasks(self) -> list[int]:
        return self._top_context.get_component_tasks(self._top_context.get_component_id()) or []
