"""What the sources of connectors meet in a task: a delegate and a context that keep what they are told."""

from __future__ import annotations

import logging
from typing import Any

from heronpy.api.state.keyed_state import KeyedStates, PartitionedState, PartitionOwner
from heronpy.api.state.state import HashMapState

#: Partitioned states by name, as a checkpoint keeps them.
Kept = dict[str, dict[Any, Any]]


class Delegate:
    logger = logging.getLogger("test")

    def __init__(self) -> None:
        self.emitted: list[Any] = []
        self.ids: list[Any] = []
        self.ended = 0
        self.waits: list[float] = []
        self.errors: list[str] = []
        self.logged: list[str] = []

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)

    def emit(self, tup: Any, tup_id: Any = None, **_: Any) -> None:
        self.emitted.append(tup)
        self.ids.append(tup_id)

    def report_error(self, error: Exception) -> None:
        self.errors.append(str(error))

    def log(self, message: str, level: str | None = None) -> None:
        self.logged.append(message)

    def end_of_input(self) -> None:
        self.ended += 1


class Context:
    attempt = 1

    def __init__(self, index: int = 0, tasks: int = 1, state: Any = None, kept: Kept | None = None) -> None:
        self.index, self.tasks = index, tasks
        self.state = HashMapState() if state is None else state
        self.keyed_states = KeyedStates(partitions=PartitionOwner("lines", lambda: (self.index, self.tasks), False))
        for name, entries in (kept or {}).items():
            state = self.partitioned_state(name)
            for key in filter(state.owns, entries):
                state.load(key, entries[key], 0.0)

    def partitioned_state(self, name: str) -> PartitionedState:
        return self.keyed_states.partitioned(name)

    def kept(self) -> Kept:
        """What a checkpoint of this task keeps."""
        return {name: dict(state.items()) for name, state in self.keyed_states.states.items()}

    def get_state(self) -> Any:
        return self.state

    def get_component_id(self) -> str:
        return "lines"

    def get_task_id(self) -> int:
        return 10 + self.index

    def get_component_tasks(self, _: str) -> list[int]:
        return list(range(10, 10 + self.tasks))

    def register_metric(self, name: str, metric: Any, bucket: float) -> None:
        self.metric = metric

    def get_partition_index(self) -> int:
        return self.index

    def get_num_partitions(self) -> int:
        return self.tasks
