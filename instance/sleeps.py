"""Whether this thread has slept: one that has not is saturated, because it always had something to do."""

from __future__ import annotations

import resource


class Sleeps:
    """Counts the voluntary context switches of the thread that calls it, at a system call each."""

    __slots__ = ("_before",)

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Only what comes from now on counts."""
        self._before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw

    def any(self) -> bool:
        """Whether the thread has waited for anything since `forget`; losing its core to others is no sleep."""
        return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw != self._before
