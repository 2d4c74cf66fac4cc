"""State that a stateful component keeps across failures.

The runtime saves the state object as a whole, so keys and values must be picklable.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class State:
    """Interface of a key-value state."""

    def put(self, key: Any, value: Any) -> None:
        """Set the value of `key`."""
        raise NotImplementedError(f"{type(self).__name__} must define put(key, value)")

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of `key`, or `default`."""
        raise NotImplementedError(f"{type(self).__name__} must define get(key)")

    def enumerate(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over the (key, value) pairs."""
        raise NotImplementedError(f"{type(self).__name__} must define enumerate()")

    def clear(self) -> None:
        """Remove all keys."""
        raise NotImplementedError(f"{type(self).__name__} must define clear()")


class HashMapState(dict[Any, Any], State):
    """The default state: a dictionary with the methods of `State`.

    Everything that works on a dict works here: `in`, `[]`, `len`, iteration, `update`, pickling.
    """

    def put(self, key: Any, value: Any) -> None:
        self[key] = value

    def enumerate(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over a snapshot of the (key, value) pairs, so the loop may change the state."""
        return iter(list(self.items()))
