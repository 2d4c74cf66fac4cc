"""A source that repeats the elements of an iterable endlessly."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from typing import Any

from heronpy.streamlet.context import Context
from heronpy.streamlet.generator import Generator

#: Key of the state with the position of the next element.
_PLACE = "elements.place"


class ArrayLooper(Generator[Any]):
    """Yields the elements of `user_iterable` in turn, `sleep` seconds apart.

    Under EFFECTIVELY_ONCE its position in the iterable is part of the checkpoint.
    """

    def __init__(self, user_iterable: Iterable[Any], sleep: float | None = None) -> None:
        super().__init__()
        if not isinstance(user_iterable, Iterable):
            raise RuntimeError(f"ArrayLooper needs an iterable, not {user_iterable!r}")
        # A one-shot iterator cannot be restarted or sent to a task.
        self._elements = list(user_iterable) if isinstance(user_iterable, Iterator) else user_iterable
        self._sleep = sleep
        self._round: Iterator[Any] = iter(())
        self._place = 0
        self._state: Any = None
        self._context: Context | None = None

    def setup(self, context: Context | None) -> None:
        """Start from the first element, or from the restored position."""
        self._context = context
        self._state = None if context is None else context.get_state()
        self._place = int((self._state or {}).get(_PLACE) or 0)
        self._round = itertools.islice(self._elements, self._place, None)

    def get(self) -> Any:
        """Return the next element. Raises StopIteration if the iterable is empty."""
        if self._sleep and self._context is not None:
            self._context.wait(self._sleep)
        elif self._sleep:
            time.sleep(self._sleep)
        try:
            element = next(self._round)
        except StopIteration:
            self._round, self._place = iter(self._elements), 0
            element = next(self._round)
        self._place += 1
        return element

    def pre_save(self, checkpoint_id: str) -> None:
        """Put the position of the next element into the state."""
        if self._state is not None:
            self._state[_PLACE] = self._place
