"""Exit codes of the processes of a topology. Pure.

Executor and scheduler decide from these whether to start a process again.  They are not the exit
codes of the `heron` command, which the command line documents for itself.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Why a process exited by itself."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    STARTUP_FAILURE = 3
    USER_EXCEPTION = 4
    FENCED = 5
    LOST_PARENT = 6
    FINISHED = 7
    REWIND = 8
    UNAVAILABLE = 9
    REFUSED = 10
    GAVE_UP = 11
    CHILD_ENDED = 12
    TERMINATED = 143


OK = ExitCode.OK
"""The process was asked to stop and did."""
FAILURE = ExitCode.FAILURE
"""An internal error; restarting may help."""
USAGE = ExitCode.USAGE
"""The process was started with wrong arguments; restarting cannot help."""
STARTUP_FAILURE = ExitCode.STARTUP_FAILURE
"""User code cannot be loaded or initialised; never restarted."""
USER_EXCEPTION = ExitCode.USER_EXCEPTION
"""User code raised while it ran; restarted within its budget."""
FENCED = ExitCode.FENCED
"""A newer incarnation of this process exists; this one must not come back."""
LOST_PARENT = ExitCode.LOST_PARENT
"""The process that supervised this one is gone."""
FINISHED = ExitCode.FINISHED
"""The work of the process is complete; there is nothing to restart."""

REWIND = ExitCode.REWIND
"""A task ends itself to restart from a checkpoint; restarted immediately, at no cost to its budget."""

UNAVAILABLE = ExitCode.UNAVAILABLE
"""Something that the process needs is unreachable, such as the state manager; restarted for as long as that lasts."""

REFUSED = ExitCode.REFUSED
"""This host cannot hold what the process should start; the last line of its log is the sentence for the user."""

GAVE_UP = ExitCode.GAVE_UP
"""A task has announced that no later attempt can succeed; it is not restarted, and its topology has failed."""

CHILD_ENDED = ExitCode.CHILD_ENDED
"""A helper process, such as Spark's JVM, has ended; the process is restarted with a new one."""

TERMINATED = ExitCode.TERMINATED
"""A task exited cleanly after SIGTERM (128 + 15, as shells report it); unless the runtime sent it, a preemption."""


NAMED = frozenset(ExitCode)
"""All exit codes above."""


def describe(code: int) -> str:
    """The code in words, for logs and people."""
    meaning = f" ({ExitCode(code).name.lower().replace('_', ' ')})" if code in NAMED else ""
    return f"exit code {code}{meaning}"
