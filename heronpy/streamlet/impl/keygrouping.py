"""Routing of (key, value) elements: equal keys meet in one task.

The key is hashed by heronpy.common.hashing, which gives the same number in every process and
after every restart; builtin hash() would send one key to different tasks from different senders.
"""

from __future__ import annotations

from typing import Any

from heronpy.api.custom_grouping import ICustomGrouping
from heronpy.common.hashing import stable_hash
from heronpy.streamlet.errors import StreamletError


class KeyGrouping(ICustomGrouping):
    """Chooses the task of an element by its key."""

    def prepare(self, context: Any, component: str, stream: str, target_tasks: list[int]) -> None:
        """Remember the tasks, in an order that all senders share."""
        self._component = component
        self._target_tasks = sorted(target_tasks)

    def choose_tasks(self, values: list[Any]) -> list[int]:
        """The one task of this key."""
        key, _ = key_and_value(values[0], f"an element of {self._component!r}")
        return [self._target_tasks[stable_hash(key) % len(self._target_tasks)]]


def key_and_value(element: Any, what: str) -> tuple[Any, Any]:
    """The two parts of a (key, value) element."""
    if isinstance(element, tuple | list) and len(element) == 2:
        return element[0], element[1]
    # A str of two characters is iterable too, but it is no pair that anybody meant.
    raise StreamletError(
        f"{what} is {_shortened(element)}, but joins and reductions by key take (key, value) "
        "pairs; make one with map"
    )


def _shortened(element: Any) -> str:
    text = repr(element)
    return text if len(text) <= 80 else text[:77] + "..."
