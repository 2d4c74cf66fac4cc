"""The base class of sources that need setting up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Generic, TypeVar

from heronpy.streamlet.context import Context

_T_co = TypeVar("_T_co", covariant=True)


class Generator(ABC, Generic[_T_co]):
    """A source of elements. It is sent to its tasks by cloudpickle; open files in `setup`."""

    #: Whether each object of the class ends; see `Builder.new_source`.
    bounded: ClassVar[bool] = False

    @abstractmethod
    def setup(self, context: Context) -> None:
        """Called once in the task, before the first `get`."""

    @abstractmethod
    def get(self) -> _T_co | None:
        """The next element, or None if none is available yet.

        Raise StopIteration when the input has ended. After an element, `get` is called again at once. After None it is
        polled, about a thousand times a second at first and then less and less often, unless it has said when to
        call it, with `wait(seconds)`, `wait_readable(fd)` or `busy()` of the context passed to `setup`.
        """

    def pre_save(self, checkpoint_id: str) -> None:
        """Called just before a checkpoint (EFFECTIVELY_ONCE): put your position into the state.

        The state is the result of `context.get_state()` in `setup`. After a failure, `setup` of a new object finds
        the position of the last complete checkpoint in the state, and must continue from there. Otherwise the source
        loses the elements between that checkpoint and the failure, or repeats all earlier elements.
        """
