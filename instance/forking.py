"""User code that forks: the child is not a task, so it leaves the runtime at once.

A forked child has a copy of the task's sockets, wake pipes and signal handlers, but not its threads. What it
wrote would mix with the task's output; SIGTERM would ask a loop to stop that does not run. So at the fork the
child drops them, and everything through which the loop reaches the outside: when user code returns
into the loop, or raises, the child ends. Until then the child may do anything.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import signal
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from heronpy.api.user_code import user_traceback

log = logging.getLogger("heron.instance")

#: The task's external connections; `inbox` belongs to its control thread.
_PARTS = ("link", "control", "checkpoints", "acks", "poison", "pending")
_FAILED = 1

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)

_task: Any = None
_ours = False
#: The signals that were blocked before the current fork; the interpreter's lock serializes forks.
_held: set[signal.Signals] | set[int] = set()


def watch(task: Any) -> None:
    """From now on children of this process leave the runtime; once per process."""
    global _task
    _task = task
    os.register_at_fork(before=_hold_signals, after_in_parent=_release_signals, after_in_child=_leave_runtime)


@contextmanager
def by_the_runtime() -> Iterator[None]:
    """A child that is forked in this block belongs to the runtime and is left alone."""
    global _ours
    _ours = True
    try:
        yield
    finally:
        _ours = False


class _Left:
    """Replaces the runtime in the child: code that touches it has returned from user code."""

    def __getattr__(self, name: str) -> NoReturn:
        _end()

    def __bool__(self) -> NoReturn:
        _end()


def _hold_signals() -> None:
    """A signal for a child that still has the task's handlers would be lost; it waits until it has its own."""
    global _held
    _held = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)


def _release_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _held)


def _leave_runtime() -> None:
    try:
        if not _ours:
            _let_go()
    finally:
        _release_signals()


def _let_go() -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    faulthandler.unregister(signal.SIGUSR1)
    control, link = getattr(_task, "control", None), getattr(_task, "link", None)
    if control is not None:
        # The loop reads this after each call of user code.
        control.interrupt()
    _let_go_of_files(control)
    if link is not None:
        link.sock = _Left()
    for name in _PARTS:
        if getattr(_task, name, None) is not None:
            setattr(_task, name, _Left())


def _let_go_of_files(control: Any) -> None:
    """Close the child's copies of the task's sockets and pipes; their numbers then refer to nothing."""
    mine = {control.wake_fd, control._wake_out, control._own_in, control._own_out} if control is not None else set()
    mine |= _sockets_below(_task.launch.sockets_dir)
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for number in mine:
        os.dup2(nothing, number, inheritable=False)
    os.close(nothing)


def _sockets_below(folder: str) -> set[int]:
    """Descriptors of connections to sockets in a folder."""
    found = set()
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            opened = socket.socket(fileno=number)
            try:
                address = opened.getpeername() if opened.family == socket.AF_UNIX else ""
            finally:
                opened.detach()
            if isinstance(address, str) and address.startswith(f"{folder}/"):
                found.add(number)
    return found


def _end() -> NoReturn:
    """The end of a child that user code forked and did not end itself."""
    code = 0
    try:
        error = sys.exc_info()[1]
        if isinstance(error, SystemExit):
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        elif error is not None:
            code = _FAILED
            log.error("a child that user code forked ends: %s", user_traceback(error))
        else:
            log.warning("a child that user code forked returned from it, and ends; end it there, with os._exit()")
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
