"""The parent of a scheduler: a small process that restarts the scheduler when the scheduler is killed or hangs.

Without a guardian, a topology would end with its scheduler, because the scheduler restarts all other processes.

Invariants:
- The scheduler never outlives its guardian: the kernel kills it, and its fork server then ends all processes of the
  topology on this host.
- Signals that ask the guardian to end are forwarded to the scheduler.
- A scheduler that exits on its own is restarted only if its exit code is START_OVER, or if it failed without announcing
  its end and an earlier scheduler had run.
- A scheduler is killed and replaced if its event loop has been blocked for HANG_S, or is not running START_S after the
  start of the scheduler.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from heronpy.common import exit_codes
from heronpy.common.errors import ConfigError, FencedError, HeronError, RetryableError
from heronpy.procs.exit_reason import ExitReason, describe_status
from heronpy.procs.linux import die_with_parent
from heronpy.procs.restart_policy import RestartHistory, RestartLimits, decide_restart

log = logging.getLogger("heronpy.scheduler")

#: Exit code of a scheduler that lost its fork server and with it all containers.
START_OVER = 75
LIMITS = RestartLimits(backoff_s=0.05, backoff_max_s=5.0, budget=10, window_s=300.0)

#: A scheduler that sends no heartbeat for this time is killed.
HANG_S = 10.0
#: The first heartbeat may take longer: the scheduler loads its modules, binds its predecessor's port, and calls the
#: state manager and the engine, each with its own deadline.
START_S = 120.0
#: A scheduler that has announced its end is killed after this time, because a thread may hang in a file system.
END_S = 60.0
#: Limits for failures after the first successful start, whose cause may be a temporary outage.
LATER = RestartLimits(backoff_s=1.0, backoff_max_s=60.0, budget=1000, window_s=3600.0)
#: Interval at which the guardian checks for heartbeats.
_LOOK_S = 2.0

_ASKS = (signal.SIGTERM, signal.SIGINT)
_HEARD = (*_ASKS, signal.SIGCHLD)


class _Signals:
    """The signals that this process receives.

    `signal.sigtimedwait` is not used: in a process that is stopped and continued after the timeout, the call returns
    uninitialised memory.
    """

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._before: list[Any] = [signal.signal(signum, lambda *_: None) for signum in _HEARD]
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._mask: Any = signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)
        self._poll = select.poll()
        self._poll.register(self._reader, select.POLLIN)

    def wait(self, seconds: float) -> set[int]:
        """The signals since the last call; waits up to `seconds` for the first signal."""
        if not self._poll.poll(seconds * 1000):
            return set()
        return {number for number in os.read(self._reader, 65536) if number in _HEARD}

    def asked(self, within_s: float) -> bool:
        """Wait until a signal asks this process to end; returns False if no such signal arrives in time."""
        deadline = time.monotonic() + within_s
        while not self.wait(max(0.0, deadline - time.monotonic())) & {*_ASKS}:
            if time.monotonic() >= deadline:
                return False
        return True

    def leave(self) -> None:
        """Restore the previous signal handlers in a child."""
        signal.set_wakeup_fd(-1)
        for signum, before in zip(_HEARD, self._before, strict=True):
            signal.signal(signum, before)
        os.close(self._reader)
        os.close(self._writer)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)


class Pulse:
    """The pipe through which a scheduler's event loop sends heartbeats to its guardian."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def beat(self) -> None:
        """Send a heartbeat from the event loop. After the first, the guardian expects one at least every `hang_s`."""
        self._write(b"+")

    def end(self) -> None:
        """Announce that the scheduler is ending; the guardian then expects no further heartbeats."""
        self._write(b".")

    def _write(self, sign: bytes) -> None:
        with contextlib.suppress(OSError):  # a full pipe has enough heartbeats, and a closed pipe has no reader
            os.write(self._writer, sign)

    def read(self) -> bytes:
        """Read the heartbeats since the last call; called by the guardian."""
        try:
            return os.read(self._reader, 65536)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        """Close both ends in this process."""
        os.close(self._reader)
        os.close(self._writer)


class Watchman:
    """Decides whether a scheduler hangs. Time during which the guardian itself did not run does not count."""

    def __init__(self, hang_s: float, start_s: float, now: float) -> None:
        self._hang_s = hang_s
        #: How long the scheduler may currently be silent.
        self.patience_s = start_s
        self._alive_at = self._looked_at = now
        #: Whether the scheduler has sent a heartbeat; whether it has announced its end.
        self.lived = self.ends = False

    def hangs(self, signs: bytes, now: float) -> bool:
        """Whether the scheduler hangs, given its heartbeats since the last call (about every `_LOOK_S`)."""
        slept, self._looked_at = now - self._looked_at, now
        if signs or slept > 3 * _LOOK_S:
            self._alive_at = now
        if signs:
            self.lived, self.ends = True, self.ends or b"." in signs
            self.patience_s = END_S if self.ends else self._hang_s
        return now - self._alive_at >= self.patience_s


def guard(
    run: Callable[[Pulse], int],
    limits: RestartLimits = LIMITS,
    hang_s: float = HANG_S,
    start_s: float = START_S,
    what: str = "scheduler",
) -> int:
    """Run `run` in a child process, and again if the child is killed or hangs; returns the last child's exit code.

    `what` names the process in the log. Call this before the process has threads, sockets or locks.
    """
    signals = _Signals()
    history, later = RestartHistory(), RestartHistory()
    lived = False
    while True:
        started = time.monotonic()
        pulse = Pulse()
        pid = _fork(lambda pulse=pulse: run(pulse), signals)  # type: ignore[misc]
        watchman = Watchman(hang_s, start_s, started)
        status, asked, hung = _wait(pid, pulse, watchman, signals)
        pulse.close()
        lived = lived or watchman.lived
        code = os.waitstatus_to_exitcode(status)
        failed = lived and not watchman.ends and code > 0 and code not in (START_OVER, exit_codes.FENCED)
        if asked or (not failed and code not in (START_OVER, *range(-64, 0))):
            return code if code >= 0 else int(exit_codes.FAILURE)
        how = "lost its processes" if code == START_OVER else f"ended by {describe_status(status)}"
        if hung:
            silent = "did not answer for" if watchman.lived else "had not started after"
            how = f"{silent} {watchman.patience_s:g} s and was killed"
        now = time.monotonic()
        reason = ExitReason.KILLED if code == -signal.SIGKILL else ExitReason.CRASHED
        decision = decide_restart(LATER if failed else limits, later if failed else history, reason, now - started, now)
        if not decision.restart:
            _say(what, f"the {what} {how} and is not restarted: it {decision.cause}")
            return int(exit_codes.FAILURE)
        _say(what, f"the {what} {how}; restarting it")
        if signals.asked(decision.pause_s):
            return int(exit_codes.OK)


def _fork(run: Callable[[], int], signals: _Signals) -> int:
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    # A signal to the child before it has replaced the inherited handlers would be lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)
        return pid
    code = int(exit_codes.FAILURE)
    try:
        if die_with_parent(signal.SIGKILL, parent):
            signals.leave()
            code = run()
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else int(exit_codes.FAILURE)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(pid: int, pulse: Pulse, watchman: Watchman, signals: _Signals) -> tuple[int, bool, bool]:
    """Wait for the child; returns its wait status, whether a signal asked this process to end, and whether the child
    was killed because it hung.
    """
    asked = hung = False
    while True:
        for request in signals.wait(_LOOK_S) & {*_ASKS}:
            asked = True
            os.kill(pid, request)
        if not hung and watchman.hangs(pulse.read(), time.monotonic()):
            hung = True
            os.kill(pid, signal.SIGKILL)
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            watchman.hangs(pulse.read(), time.monotonic())
            return status, asked, hung


def refused(topology: str, error: HeronError) -> int:
    """Log why a scheduler cannot start, so that `heron submit` shows it; returns the exit code."""
    log.error("the scheduler of %s cannot start", topology)
    log.error("%s", error)
    if isinstance(error, RetryableError):
        return START_OVER
    if isinstance(error, FencedError):
        return exit_codes.FENCED
    return exit_codes.REFUSED if isinstance(error, ConfigError) else exit_codes.STARTUP_FAILURE


def _say(what: str, text: str) -> None:
    """Write one line to the guarded process's log; sets up logging only when needed."""
    from heronpy.common.logs import setup

    setup(what)
    log.warning("%s", text)
