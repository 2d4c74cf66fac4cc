"""Following an engine that reports nothing by itself: asks it at intervals."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def polling(poll_s: float, changed: Callable[[], None]) -> Iterator[None]:
    """Call `changed` every `poll_s` from another thread."""
    over = threading.Event()

    def poll() -> None:
        while not over.wait(poll_s):
            changed()

    thread = threading.Thread(target=poll, name="engine-poll", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
