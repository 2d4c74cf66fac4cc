"""Runs the executor and all its descendants below the container's first process.

The first process adopts and reaps orphaned descendants (as subreaper, or as process 1 of a container). Invariants: the
end of the executor is reported once, when no descendant of this process is left; the child dies with this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Sequence

from heronpy.executor.echo import ECHO_FD
from heronpy.procs.linux import children_by_scan

log = logging.getLogger("heronpy.executor")

#: Descriptor of the pipe for the executor's heartbeats.
SIGNS_FD = 3
#: Signals whose handlers Python or this process has changed.
_SIGNALS = tuple(getattr(signal, f"SIG{name}") for name in ("TERM", "INT", "HUP", "USR1", "CHLD", "PIPE", "XFSZ"))
#: Time for killed processes to end. It is exceeded only if the kernel waits for a device.
GONE_S = 10.0


class ExecutorChild:
    """The executor and all its descendants. Requires a running asyncio loop in the main thread."""

    def __init__(self, on_sign: Callable[[], None], on_ended: Callable[[int], None]) -> None:
        self._on_sign = on_sign
        self._on_ended = on_ended
        self._loop = asyncio.get_running_loop()
        self.pid = 0
        self._signs = -1

    def start(self, argv: Sequence[str], environ: dict[str, str], output: int, echo: int = -1) -> None:
        """Start the executor in a new session; `echo`, if given, becomes its ECHO_FD.

        Raises OSError if the program does not exist, or if no further process can be started.
        """
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.pid = os.posix_spawn(
                argv[0],
                list(argv),
                environ,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, null, 0),
                    (os.POSIX_SPAWN_DUP2, output, 1),
                    (os.POSIX_SPAWN_DUP2, output, 2),
                    (os.POSIX_SPAWN_DUP2, writer, SIGNS_FD),
                    *([(os.POSIX_SPAWN_DUP2, echo, ECHO_FD)] if echo >= 0 else []),
                ],
                setsid=True,
                setsigmask=[],
                setsigdef=_SIGNALS,
            )
        except BaseException:
            os.close(reader)
            raise
        finally:
            os.close(writer)
            os.close(null)
        self._signs = reader
        self._loop.add_reader(reader, self._read_signs)
        # Installed only now, because the preparation itself starts programs and waits for them to end.
        self._loop.add_signal_handler(signal.SIGCHLD, self._reap)
        self._loop.call_soon(self._reap)

    def stop(self) -> None:
        """Ask the executor to end, which stops its own processes in order."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
                os.kill(self.pid, signal.SIGCONT)

    @staticmethod
    def kill() -> None:
        """Kill all descendants of this process, including processes that have left its session."""
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _read_signs(self) -> None:
        with contextlib.suppress(BlockingIOError):
            if os.read(self._signs, 4096):
                self._on_sign()
                return
            self._forget_signs()  # no process has the other end open any longer

    def _forget_signs(self) -> None:
        if self._signs >= 0:
            self._loop.remove_reader(self._signs)
            os.close(self._signs)
            self._signs = -1

    def _reap(self) -> None:
        for pid, status in _reaped():
            if pid == self.pid:
                self.pid = 0
                self._forget_signs()
                self.kill_all()
                self._on_ended(status)

    def kill_all(self) -> list[int]:
        """Kill and reap all descendants of this process; returns the pids of processes that did not end."""
        deadline = time.monotonic() + GONE_S
        while left := descendants(os.getpid()):
            self.kill()
            for _ in _reaped():
                pass
            if time.monotonic() > deadline:
                return left
            time.sleep(0.005)
        return []

    def close(self) -> None:
        """Kill and reap the remaining processes. Call this only when no code waits for a child. Idempotent."""
        self._loop.remove_signal_handler(signal.SIGCHLD)
        self.pid = 0
        self._forget_signs()
        for pid in self.kill_all():
            log.error("process %d in the container was killed but has not ended", pid)


def descendants(pid: int) -> list[int]:
    """All living descendants of a process, including zombies that their parents have not reaped yet."""
    found, todo = [], _children(pid)
    while todo:
        one = todo.pop()
        found.append(one)
        todo += _children(one)
    return found


def _children(pid: int) -> list[int]:
    found = []
    with contextlib.suppress(OSError):  # it has ended
        for thread in os.listdir(f"/proc/{pid}/task"):
            try:
                with open(f"/proc/{pid}/task/{thread}/children", "rb") as listing:
                    found += [int(child) for child in listing.read().split()]
            except FileNotFoundError:
                if os.path.isdir(f"/proc/{pid}/task/{thread}"):
                    return children_by_scan(pid)
    return found


def _reaped() -> list[tuple[int, int]]:
    found = []
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            found.append((pid, status))
    return found
