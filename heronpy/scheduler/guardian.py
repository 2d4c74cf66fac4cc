"""The parent of the local scheduler: a tiny process that restarts the scheduler when it is killed.

Without it, the death of the one process that replaces all others would end the topology.
Invariants: the scheduler never outlives its guardian (the kernel kills it, and its fork server then
ends all processes of the topology); signals that ask the guardian to end are forwarded to the scheduler; a scheduler
that exits on its own is not restarted, unless its exit code is START_OVER.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from heronpy.common import exit_codes
from heronpy.procs.exit_reason import ExitReason, describe_status
from heronpy.procs.linux import die_with_parent
from heronpy.procs.restart_policy import RestartHistory, RestartLimits, decide_restart

log = logging.getLogger("heronpy.scheduler")

#: Exit code of a scheduler that lost its fork server and with it all containers.
START_OVER = 75
LIMITS = RestartLimits(backoff_s=0.05, backoff_max_s=5.0, budget=10, window_s=300.0)

_ASKS = (signal.SIGTERM, signal.SIGINT)


def guard(run: Callable[[], int], limits: RestartLimits = LIMITS) -> int:
    """Run `run` in a child process, again whenever it is killed; returns the exit code of the last one.

    Call it before the process has threads, sockets or locks.
    """
    before: Any = signal.pthread_sigmask(signal.SIG_BLOCK, {*_ASKS, signal.SIGCHLD})
    history = RestartHistory()
    while True:
        started = time.monotonic()
        pid = _fork(run, before)
        status, asked = _wait(pid)
        code = os.waitstatus_to_exitcode(status)
        if asked or code not in (START_OVER, *range(-64, 0)):
            return code if code >= 0 else int(exit_codes.FAILURE)
        how = "lost its processes" if code == START_OVER else f"ended by {describe_status(status)}"
        now = time.monotonic()
        reason = ExitReason.KILLED if code == -signal.SIGKILL else ExitReason.CRASHED
        decision = decide_restart(limits, history, reason, now - started, now)
        if not decision.restart:
            _say(f"the scheduler {how} and is not started again: it {decision.cause}")
            return int(exit_codes.FAILURE)
        _say(f"the scheduler {how}; it is started again")
        if signal.sigtimedwait(_ASKS, decision.pause_s) is not None:
            return int(exit_codes.OK)


def _fork(run: Callable[[], int], mask: set[signal.Signals]) -> int:
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = int(exit_codes.FAILURE)
    try:
        if die_with_parent(signal.SIGKILL, parent):
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            code = run()
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else int(exit_codes.FAILURE)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(pid: int) -> tuple[int, bool]:
    """The wait status of the child, and whether a signal to us asked it to end."""
    asked = False
    while True:
        signum = signal.sigwait({*_ASKS, signal.SIGCHLD})
        if signum != signal.SIGCHLD:
            asked = True
            os.kill(pid, signum)
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status, asked


def _say(text: str) -> None:
    """Write one line to the scheduler's log, which is set up only when needed."""
    from heronpy.common.logs import setup

    setup("scheduler")
    log.warning("%s", text)
