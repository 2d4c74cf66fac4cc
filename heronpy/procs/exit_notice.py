"""Lets the runtime of a process with user code announce an exit code before it ends the process on purpose.

User code can end its process with any exit code (`os._exit(7)`), even one that has a meaning for the supervisor.
The fork server therefore gives such a process a pipe, and the process's runtime writes an exit code to the pipe just
before it ends the process with that code. An exit code that was not announced comes from user code.

Only the process that the fork server started announces exit codes: processes that user code forks do not, and programs
that user code starts do not get the pipe. An announcement is valid only for the exit code that it names.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Final, NoReturn

#: Passes the pipe to a new interpreter, which removes it from its environment immediately.
VARIABLE: Final = "HERON_EXIT_NOTICE"
#: A process announces at most two exit codes: that of its main thread, and that of a thread that ends the process at
#: the same time.
_READ_MAX_BYTES: Final = 64
_NONE: Final = -1
_pipe = _NONE
_owner = 0


# ---- in the process ---------------------------------------------------------------------------------
def adopt(descriptor: int) -> None:
    """Use this pipe to announce the exit codes of this process."""
    global _pipe, _owner
    _pipe, _owner = descriptor, os.getpid()


def hand_on() -> dict[str, str]:
    """Make this process's pipe inheritable; returns the environment variables that pass it to a new interpreter."""
    if _pipe == _NONE:
        return {}
    os.set_inheritable(_pipe, True)
    return {VARIABLE: str(_pipe)}


def claim() -> None:
    """Take over the pipe that `hand_on` passed to this interpreter, if any; call this before user code runs."""
    given = os.environ.pop(VARIABLE, "")
    # The variable may be left over from another process, and its number may belong to another file.
    with contextlib.suppress(OSError, ValueError):
        descriptor = int(given)
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            os.set_inheritable(descriptor, False)
            adopt(descriptor)


def announce(code: int) -> None:
    """Announce that this process is about to end with this exit code; does nothing without a pipe. Thread-safe."""
    if _pipe == _NONE or os.getpid() != _owner:
        return
    with contextlib.suppress(OSError):
        os.write(_pipe, bytes([code]))


def leave(code: int) -> NoReturn:
    """Announce the exit code, and end this process immediately."""
    announce(code)
    os._exit(code)


# ---- in the fork server -----------------------------------------------------------------------------
def open_pipe() -> tuple[int, int]:
    """Open a pipe; returns the reading end for the fork server and the writing end for the process."""
    reader, writer = os.pipe()
    # Neither end may block: a descendant of the process may keep the writing end, and may fill it.
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    return reader, writer


def was_announced(reader: int, status: int) -> bool:
    """Whether a process with this wait status had announced its exit code."""
    try:
        codes = os.read(reader, _READ_MAX_BYTES)
    except OSError:
        return False
    return os.WIFEXITED(status) and os.WEXITSTATUS(status) in codes
