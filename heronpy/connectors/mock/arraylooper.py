"""A source that repeats the elements of an iterable for ever."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from typing import Any

from heronpy.streamlet.generator import Generator


class ArrayLooper(Generator):
    """Yields the elements of `user_iterable` in turn, waiting `sleep` seconds before each."""

    def __init__(self, user_iterable: Iterable[Any], sleep: float | None = None) -> None:
        super().__init__()
        if not isinstance(user_iterable, Iterable):
            raise RuntimeError(f"ArrayLooper must be passed an iterable, given: {user_iterable!r}")
        # A one-shot iterator can neither be repeated from the start nor travel to a task.
        self._elements = (list(user_iterable) if isinstance(user_iterable, Iterator)
                          else user_iterable)
        self._sleep = sleep
        self._cycle: Iterator[Any] = iter(())

    def setup(self, context: Any) -> None:
        """Starts from the first element."""
        self._cycle = itertools.cycle(self._elements)

    def get(self) -> Any:
        """The next element; StopIteration when the iterable is empty."""
        if self._sleep is not None:
            time.sleep(self._sleep)
        return next(self._cycle)
