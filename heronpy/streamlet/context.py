"""What a generator or a transform operator may know about where it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class Context(ABC):
    """Handed to `Generator.setup` and `TransformOperator.setup`."""

    @abstractmethod
    def get_task_id(self) -> int:
        """The id of the task in the topology."""

    @abstractmethod
    def get_config(self) -> dict[str, Any]:
        """The configuration of the component, over that of the topology."""

    @abstractmethod
    def get_stream_name(self) -> str:
        """The name of the stream that feeds this operator; for a source, its own output."""

    @abstractmethod
    def get_num_partitions(self) -> int:
        """How many partitions this operator has."""

    @abstractmethod
    def get_partition_index(self) -> int:
        """Which of the partitions this one is, from 0."""

    @abstractmethod
    def get_state(self) -> Any:
        """The state kept in checkpoints; a fresh one where the topology keeps none."""

    @abstractmethod
    def emit(self, values: Any) -> None:
        """Pass `values` on as one element of the resulting streamlet."""
