"""The Context of generators and transform operators, over the context of their task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heronpy.api.component.base_component import BaseComponent
from heronpy.streamlet.context import Context
from heronpy.streamlet.streamlet import OUTPUT_STREAM


class ContextImpl(Context):
    """Answers from the task's TopologyContext; emits through a function, or through a spout or bolt."""

    def __init__(self, top_context: Any, state: Any, emitter: Callable[[Any], None] | BaseComponent) -> None:
        self._top_context = top_context
        self._state = state
        self._emitter = emitter

    def get_task_id(self) -> int:
        return int(self._top_context.get_task_id())

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = self._top_context.get_cluster_config()
        return config

    def get_stream_name(self) -> str:
        sources = self._top_context.get_this_sources()
        return next((str(stream.id) for stream in sources), OUTPUT_STREAM)

    def get_num_partitions(self) -> int:
        return len(self._tasks())

    def get_partition_index(self) -> int:
        return self._tasks().index(self.get_task_id())

    def get_state(self) -> Any:
        return self._state

    def emit(self, values: Any) -> None:
        if isinstance(self._emitter, BaseComponent):
            self._emitter.emit([values], stream=OUTPUT_STREAM)  # type: ignore[attr-defined]
        else:
            self._emitter(values)

    def _tasks(self) -> list[int]:
        component = self._top_context.get_component_id()
        return sorted(self._top_context.get_component_tasks(component))
