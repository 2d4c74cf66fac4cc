"""The base class of operators that need setting up or that emit any number of elements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from heronpy.streamlet.context import Context

_T_contra = TypeVar("_T_contra", contravariant=True)
_U_co = TypeVar("_U_co", covariant=True)


class TransformOperator(ABC, Generic[_T_contra, _U_co]):
    """The operator of `Streamlet.transform`, from elements of one type to those of another.

    It is sent to its tasks by cloudpickle.
    """

    @abstractmethod
    def setup(self, context: Context) -> None:
        """Called once in the task; keep the context to emit through it."""

    @abstractmethod
    def transform(self, tup: _T_contra) -> None:
        """Called for each element; pass results on with `context.emit`."""

    def finish(self) -> None:
        """Called once, when the input has ended: pass the last results on. An endless input has no such call."""
