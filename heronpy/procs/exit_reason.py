"""Determines why a process ended, from its wait status and other facts. Pure.

Each reason has its own restart budget, so that preemptions never use up the budget for crashes, and an error in user
code is reported quickly.
"""

from __future__ import annotations

import os
import signal
from enum import Enum

from msgspec import Struct

from heronpy.common import exit_codes

_SHELL_KILLED = 128 + signal.SIGKILL


class ExitReason(Enum):
    """The reasons why processes end; the values are visible to users and the topology master."""

    OK = "ok"
    FINISHED = "finished"
    STARTUP_FAILURE = "startup_failure"
    USER_EXCEPTION = "user_exception"
    OOM = "oom"
    KILLED = "killed"
    CRASHED = "crashed"
    HUNG = "hung"
    PREEMPTED = "preempted"
    REWOUND = "rewound"
    #: The process lost its supervisor, its host, or the state manager.
    LOST_HOST = "lost_host"
    FENCED = "fenced"
    OWN_BUG = "own_bug"
    SPAWN_FAILED = "spawn_failed"
    #: The process reported that no later attempt can succeed.
    GAVE_UP = "gave_up"
    #: For a container: its host is drained, or its restart was requested.
    MOVED = "moved"
    RESTARTED = "restarted"


#: Reasons after which a restart cannot help.
NEVER_RESTARTED = frozenset({ExitReason.STARTUP_FAILURE, ExitReason.FINISHED, ExitReason.GAVE_UP})
#: Reasons that are not the fault of the process: no budget is charged.
UNCOUNTED = frozenset(
    {ExitReason.PREEMPTED, ExitReason.REWOUND, ExitReason.LOST_HOST, ExitReason.MOVED, ExitReason.RESTARTED}
)
#: Reasons for a requested end.
ORDERLY = frozenset({ExitReason.PREEMPTED, ExitReason.MOVED, ExitReason.RESTARTED})
#: Reasons that may have their own budget.
COUNTED = frozenset(ExitReason) - NEVER_RESTARTED - UNCOUNTED


class ExitHints(Struct, frozen=True):
    """Facts from the supervisor in addition to the wait status."""

    #: Whether the supervisor asked it to stop or to restart.
    asked: bool = False
    #: Whether the supervisor killed it because it hung.
    hung: bool = False
    #: Whether the kernel's counter of out-of-memory kills has increased since the last check.
    oom_moved: bool = False
    #: Whether its last reported exception was a MemoryError, or its last output mentions memory.
    memory_error: bool = False
    #: Whether the details of its end include the limit and the peak of the control group.
    memory_told: bool = False
    #: Whether the supervisor stopped it because it used too much memory.
    overgrown: bool = False
    #: Whether its resident memory reached its limit.
    at_limit: bool = False
    #: Whether it runs user code (a task), so that an unannounced exit code comes from user code.
    user_code: bool = False
    #: Whether the runtime of a process that runs user code announced this exit code (`exit_notice`).
    announced: bool = False


def classify(status: int, hints: ExitHints) -> ExitReason:
    """Why a process with this wait status (as returned by os.wait) ended."""
    if hints.hung:
        return ExitReason.HUNG
    if hints.overgrown:
        return ExitReason.OOM
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return _by_signal(-code, hints)
    if by_user_code(status, hints):
        if hints.asked:
            return ExitReason.PREEMPTED
        return ExitReason.OOM if hints.memory_error else ExitReason.CRASHED
    if code in (exit_codes.STARTUP_FAILURE, exit_codes.USAGE):
        return ExitReason.STARTUP_FAILURE
    if code == exit_codes.GAVE_UP:
        return ExitReason.GAVE_UP
    if code == exit_codes.REWIND:
        return ExitReason.REWOUND
    if code == exit_codes.UNAVAILABLE:
        return ExitReason.LOST_HOST
    # heronpy's daemons exit cleanly only when a signal asks them to; user code may exit by itself.
    if hints.asked or code == exit_codes.TERMINATED or (code == exit_codes.OK and not hints.user_code):
        return ExitReason.PREEMPTED
    if hints.memory_error or code == _SHELL_KILLED:
        return ExitReason.OOM
    if code == exit_codes.OK:
        return ExitReason.OK
    return _by_code(code, hints)


def _by_signal(signum: int, hints: ExitHints) -> ExitReason:
    if hints.asked:
        return ExitReason.PREEMPTED
    if signum == signal.SIGKILL:
        return ExitReason.OOM if hints.oom_moved or hints.at_limit else ExitReason.KILLED
    if signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        return ExitReason.PREEMPTED
    # Libraries abort when they cannot allocate memory.
    return ExitReason.OOM if hints.memory_error else ExitReason.CRASHED


def _by_code(code: int, hints: ExitHints) -> ExitReason:
    if code == exit_codes.FINISHED:
        return ExitReason.FINISHED
    if code == exit_codes.USER_EXCEPTION:
        return ExitReason.USER_EXCEPTION
    if code == exit_codes.FENCED:
        return ExitReason.FENCED
    if code == exit_codes.LOST_PARENT:
        return ExitReason.LOST_HOST
    if code == exit_codes.CHILD_ENDED:
        return ExitReason.CRASHED
    return ExitReason.OWN_BUG


def by_user_code(status: int, hints: ExitHints) -> bool:
    """Whether user code ended its process with an exit code, such as `os._exit(7)`, whatever the code means in heronpy.

    Three codes have the same meaning for every program: 0, 1 (an uncaught error), and a shell's code for SIGKILL.
    """
    return (
        hints.user_code
        and not hints.announced
        and os.waitstatus_to_exitcode(status) > exit_codes.FAILURE
        and os.waitstatus_to_exitcode(status) != _SHELL_KILLED
    )


def describe_end(status: int, hints: ExitHints) -> str:
    """Like `describe_status`, but without an exit code's meaning in heronpy if user code chose the code."""
    code = os.waitstatus_to_exitcode(status)
    if by_user_code(status, hints) or (code == exit_codes.OK and hints.user_code and not hints.announced):
        return f"user code ended the process with exit code {code}"
    return describe_status(status)


def detail_of(status: int, hints: ExitHints, words: str) -> str:
    """How a process ended, with its exception or the last line of its log."""
    how = describe_end(status, hints)
    if not words:
        return how
    if how != describe_status(status):
        return f"{how}; its last output: {words}"
    code = os.waitstatus_to_exitcode(status)
    name, _, given = words.partition(":")
    if code == exit_codes.USER_EXCEPTION and name == "SystemExit":
        return f"user code called sys.exit({given.strip()})"
    # The reason already explains an exit code of heronpy.
    return words if code in exit_codes.NAMED else f"{how}: {words}"


def describe_status(status: int) -> str:
    """Describe a wait status, such as "signal SIGSEGV" or "exit code 4 (user exception)"."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return exit_codes.describe(code)
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
