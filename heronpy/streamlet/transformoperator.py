"""The base class of operators that need setting up or that emit any number of elements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from heronpy.streamlet.context import Context


class TransformOperator(ABC):
    """The operator of `Streamlet.transform`. It travels to its tasks by cloudpickle."""

    @abstractmethod
    def setup(self, context: Context) -> None:
        """Called once in the task; keep the context to emit through it."""

    @abstractmethod
    def transform(self, tup: Any) -> None:
        """Called for each element; pass results on with `context.emit`."""
