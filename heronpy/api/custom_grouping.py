"""The interface of the custom groupings that users write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heronpy.api.topology_context import TopologyContext


class ICustomGrouping:
    """Chooses the tasks that receive a tuple. It runs in the emitting task."""

    def prepare(self, context: TopologyContext, component: str, stream: str, target_tasks: list[int]) -> None:
        """Called before the first tuple and again when the target tasks change.

        `component` and `stream` name the source; `target_tasks` are the task ids to choose from.
        """

    def choose_tasks(self, values: Sequence[Any]) -> list[int]:
        """Return the members of `target_tasks` that receive the tuple with these values."""
        raise NotImplementedError(f"{type(self).__name__} must define choose_tasks(values)")
