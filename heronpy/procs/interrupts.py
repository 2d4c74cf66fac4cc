"""Handles Ctrl-C, SIGTERM and SIGHUP while a command runs."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: A dropped interrupt is raised again after this time, when the interrupted import has continued.
AGAIN_S = 0.01
#: Signals within this time count as one interrupt.
ONE_S = 1.0

_seen = False
_raised_at = 0.0
#: The hook for all other exceptions that Python drops.
_others = sys.unraisablehook


def interrupt(signum: int, frame: FrameType | None) -> None:
    """The handler of a signal that ends the command: raises KeyboardInterrupt, and sets the flag that `heed` reads.

    A second signal within a second is ignored, because it would interrupt the clean-up that the first signal began.
    Python drops exceptions that are raised in some situations, such as the release of a lock while a module is imported
    (see `dropped`).
    """
    global _seen, _raised_at
    now = time.monotonic()
    if not _seen or now >= _raised_at + ONE_S:
        _seen, _raised_at = True, now
        raise KeyboardInterrupt


def dropped(found: sys.UnraisableHookArgs) -> None:
    """A hook for exceptions that Python drops (`sys.unraisablehook`); an interrupt is raised again, not reported."""
    global _raised_at
    if issubclass(found.exc_type, KeyboardInterrupt):
        _raised_at -= ONE_S
        threading.Thread(target=_again, daemon=True).start()
    else:
        _others(found)


def _again() -> None:
    time.sleep(AGAIN_S)
    os.kill(os.getpid(), signal.SIGINT)


def heed() -> None:
    """Raise KeyboardInterrupt if the command was interrupted. Call it before making anything permanent."""
    if _seen:
        raise KeyboardInterrupt


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], Any] | signal.Handlers) -> Iterator[None]:
    held, hook = {}, sys.unraisablehook
    if threading.current_thread() is threading.main_thread():
        held = {signum: signal.signal(signum, handler) for signum in INTERRUPTS}
        sys.unraisablehook = dropped
    try:
        yield
    finally:
        for signum, before in held.items():
            signal.signal(signum, before)
        if held:
            sys.unraisablehook = hook


def uninterrupted() -> AbstractContextManager[None]:
    """Ignore a second Ctrl-C, which must not interrupt the clean-up after the first one."""
    return _handled(signal.SIG_IGN)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the command like Ctrl-C, with its clean-up."""
    global _seen
    with _handled(interrupt):
        try:
            yield
        finally:
            _seen = False  # a notebook continues after it
