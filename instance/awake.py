"""Wakes the asyncio loop of a task: on a message from its control thread, a frame on its link, or a call to `set`.

The module also detects when the loop sleeps, and whether the thread of a task has slept.
"""

from __future__ import annotations

import asyncio
import resource
import selectors
from collections.abc import Callable

from .link import DataLink, drain


class Awake(asyncio.Event):
    """An event that is set when the loop has work. Call `listen` and `close` in the loop."""

    def __init__(self) -> None:
        super().__init__()
        self._wake_fd = self._link_fd = -1

    def listen(self, wake_fd: int) -> None:
        """Wait for messages: the control thread makes this descriptor readable when a message arrives."""
        self._wake_fd = wake_fd
        asyncio.get_running_loop().add_reader(wake_fd, self._on_message)

    def _on_message(self) -> None:
        drain(self._wake_fd)
        self.set()

    def watch(self, link: DataLink) -> None:
        """Wait for frames on the current link; a new link may have its predecessor's descriptor number."""
        if self._link_fd < 0 and link.sock is not None:
            self._link_fd = link.fd
            asyncio.get_running_loop().add_reader(self._link_fd, self.set)

    def unwatch(self) -> None:
        """Stop waiting for frames, because the link is lost."""
        if self._link_fd >= 0:
            asyncio.get_running_loop().remove_reader(self._link_fd)
            self._link_fd = -1

    def close(self) -> None:
        self.unwatch()
        asyncio.get_running_loop().remove_reader(self._wake_fd)


class WatchedSelector(selectors.DefaultSelector):
    """A selector that detects when the loop sleeps; a coroutine that blocks the loop prevents the detection."""

    def __init__(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        """`before` is called when no coroutine can continue; `after` when coroutines continue, even without a sleep."""
        super().__init__()
        self._before, self._after = before, after

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for events, as in `selectors`."""
        if timeout is None or timeout > 0:
            self._before()
        try:
            return super().select(timeout)
        finally:
            self._after()


class Sleeps:
    """Counts the voluntary context switches of the calling thread, with one system call per count.

    A thread that has not slept is saturated, because it always had something to do.
    """

    __slots__ = ("_before",)

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Make `any` ignore earlier waits."""
        self._before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw

    def any(self) -> bool:
        """Return whether the thread has waited for anything since `forget`; waiting for a core does not count."""
        return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw != self._before
