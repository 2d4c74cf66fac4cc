"""While a copy is in progress, prevents this process from removing the shared files that the copy uses."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator


class Pins:
    """Protected files by checkpoint, for this process only. Thread-safe."""

    def __init__(self) -> None:
        self._pins: dict[int, set[str]] = {}
        self._doomed: set[str] = set()
        self._changed = threading.Condition()

    def add(self, checkpoint: int, paths: Iterable[str]) -> None:
        """Protect these files. Wait for current removals of these files first, so that later checks are reliable."""
        wanted = set(paths)
        with self._changed:
            self._changed.wait_for(lambda: not wanted & self._doomed)
            self._pins.setdefault(checkpoint, set()).update(wanted)

    def release(self, checkpoint: int) -> None:
        """Release the files of this and older checkpoints, because the metadata now protects the files."""
        with self._changed:
            for number in [number for number in self._pins if number <= checkpoint]:
                del self._pins[number]

    @contextlib.contextmanager
    def removing(self, paths: Iterable[str]) -> Iterator[list[str]]:
        """Yield the unprotected files, which the block may remove. A thread that pins one of these files waits for the
        end of the block."""
        with self._changed:
            doomed = set(paths).difference(*self._pins.values())
            self._doomed |= doomed
        try:
            yield sorted(doomed)
        finally:
            with self._changed:
                self._doomed -= doomed
                self._changed.notify_all()
