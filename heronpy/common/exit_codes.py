"""Exit codes of the processes of a topology. Pure.

Executor and scheduler use the exit code to decide whether to restart a process. The `heron` command
has other exit codes, which the command line documents.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes with which processes stop themselves, named after the reason."""

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
"""The process stopped on request."""
FAILURE = ExitCode.FAILURE
"""An internal error; restarting may help."""
USAGE = ExitCode.USAGE
"""The process was started with invalid arguments; restarting cannot help."""
STARTUP_FAILURE = ExitCode.STARTUP_FAILURE
"""User code cannot be loaded or initialised; the process is not restarted."""
USER_EXCEPTION = ExitCode.USER_EXCEPTION
"""User code raised an exception while it was running; the process is restarted within its budget."""
FENCED = ExitCode.FENCED
"""A newer incarnation of this process exists; this incarnation must not be restarted."""
LOST_PARENT = ExitCode.LOST_PARENT
"""The supervisor of this process has ended."""
FINISHED = ExitCode.FINISHED
"""The work of the process is complete; it is not restarted."""

REWIND = ExitCode.REWIND
"""A task ends itself to restart from a checkpoint; the restart is immediate and does not count against the budget."""

UNAVAILABLE = ExitCode.UNAVAILABLE
"""A required service, such as the state manager, is unreachable; restarts continue until the service is reachable."""

REFUSED = ExitCode.REFUSED
"""This host lacks resources for the program to start; the last line of the log states the reason."""

GAVE_UP = ExitCode.GAVE_UP
"""A task has announced that no later attempt can succeed; it is not restarted, and its topology has failed."""

CHILD_ENDED = ExitCode.CHILD_ENDED
"""A helper process, such as Spark's JVM, has ended; the process is restarted with a new helper."""

TERMINATED = ExitCode.TERMINATED
"""A task exited cleanly after SIGTERM (128 + 15); a preemption, unless the runtime sent the signal."""


NAMED = frozenset(ExitCode)
"""All exit codes above."""


def describe(code: int) -> str:
    """Describe an exit code in words, for logs and people."""
    meaning = f" ({ExitCode(code).name.lower().replace('_', ' ')})" if code in NAMED else ""
    return f"exit code {code}{meaning}"
