"""The shared files on which copies in progress rely, so that a removal by the same process spares them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator


class Pins:
    """Files by the checkpoint that relies on them. Safe for threads; known only in this process."""

    def __init__(self) -> None:
        self._pins: dict[int, set[str]] = {}
        self._doomed: set[str] = set()
        self._changed = threading.Condition()

    def add(self, checkpoint: int, paths: Iterable[str]) -> None:
        """Protect these files from now on. If one of them is being removed, wait for the end of the removal, so that it
        is known whether the file exists.
        """
        wanted = set(paths)
        with self._changed:
            self._changed.wait_for(lambda: not wanted & self._doomed)
            self._pins.setdefault(checkpoint, set()).update(wanted)

    def release(self, checkpoint: int) -> None:
        """Release this checkpoint and older ones, because their metadata protects the files that they need."""
        with self._changed:
            for number in [number for number in self._pins if number <= checkpoint]:
                del self._pins[number]

    @contextlib.contextmanager
    def removing(self, paths: Iterable[str]) -> Iterator[list[str]]:
        """Yield the files that may be removed within the block; a thread that pins one of these files waits."""
        with self._changed:
            doomed = set(paths).difference(*self._pins.values())
            self._doomed |= doomed
        try:
            yield sorted(doomed)
        finally:
            with self._changed:
                self._doomed -= doomed
                self._changed.notify_all()
