"""The base class of sources that need setting up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from heronpy.streamlet.context import Context


class Generator(ABC):
    """A source of elements. It travels to its tasks by cloudpickle; open files in `setup`."""

    @abstractmethod
    def setup(self, context: Context) -> None:
        """Called once in the task, before the first `get`."""

    @abstractmethod
    def get(self) -> Any:
        """The next element, or None when there is none now.

        Raise StopIteration when there will never be another one: the input has ended.
        """
