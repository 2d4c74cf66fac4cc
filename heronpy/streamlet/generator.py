"""The base class of sources that are set up in their task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Generic, TypeVar

from heronpy.streamlet.context import Context

_T_co = TypeVar("_T_co", covariant=True)


class Generator(ABC, Generic[_T_co]):
    """A source of elements. The object is pickled with cloudpickle and sent to its tasks, so open files in `setup`."""

    #: True if every object of the class is a source that ends; see `Builder.new_source`.
    bounded: ClassVar[bool] = False

    @abstractmethod
    def setup(self, context: Context) -> None:
        """Called once in the task, before the first `get`."""

    @abstractmethod
    def get(self) -> _T_co | None:
        """Return the next element, or None if no element is available yet.

        Raise StopIteration when the input has ended. After an element, `get` is called again immediately. After None,
        `get` is polled, about a thousand times a second at first and then less and less often. `wait(seconds)`,
        `wait_readable(fd)` and `busy()` of the context passed to `setup` change the time of the next call.
        """

    def pre_save(self, checkpoint_id: str) -> None:
        """Called just before a checkpoint (EFFECTIVELY_ONCE). Save this source's position to the state, which
        `context.get_state()` returns in `setup`. After a failure, `setup` of a new object finds the position of the
        last complete checkpoint in the state, and must continue from it. Otherwise the source loses the elements
        between that checkpoint and the failure, or repeats all earlier elements.
        """
