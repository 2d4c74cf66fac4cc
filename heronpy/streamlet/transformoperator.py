"""The base class of operators that are set up in their task, or that emit any number of elements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from heronpy.streamlet.context import Context

_T_contra = TypeVar("_T_contra", contravariant=True)
_U_co = TypeVar("_U_co", covariant=True)


class TransformOperator(ABC, Generic[_T_contra, _U_co]):
    """The operator of `Streamlet.transform`, which turns elements of one type into elements of another type.

    The operator is pickled with cloudpickle and sent to its tasks.
    """

    @abstractmethod
    def setup(self, context: Context) -> None:
        """Called once per task, before the first element. Store `context`: the operator emits through it."""

    @abstractmethod
    def transform(self, tup: _T_contra) -> None:
        """Called for each element. Emit results with `context.emit`."""

    def finish(self) -> None:
        """Called once, when the input has ended: emit the last results. It is never called for an endless input."""
