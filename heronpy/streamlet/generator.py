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

    def pre_save(self, checkpoint_id: str) -> None:  # noqa: B027 - a source need not be rewindable
        """Called just before a checkpoint (EFFECTIVELY_ONCE): put your position into the state.

        The state is what `context.get_state()` gave in `setup`; after a failure, `setup` of a new
        object finds there what the last complete checkpoint had, and must go on from it. A source
        that does not do so loses the elements between that checkpoint and the failure, or repeats
        all it gave before.
        """
