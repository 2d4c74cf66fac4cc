"""The child process that runs a user's program.

The child is started first and imports what a program needs. Meanwhile the command imports other modules and decides
what to run. The child runs nothing before it has read a complete request.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from types import TracebackType

from heronpy.launching.environment import child_environment


class Child:
    """A child process for a `with` block, which kills the process on exit."""

    def __init__(self, output: int | None = None) -> None:
        """Output of the program goes to this process's stdout, or to the descriptor `output`."""
        # -P: the current folder is not on sys.path unless the program is in it.
        argv = [sys.executable, "-P", "-m", "heronpy.cli.submit.load_topology"]
        # Ctrl-C reaches both processes. The child blocks the signal until it runs the program; until then, this process
        # kills the child.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process = subprocess.Popen(argv, env=child_environment({}), stdin=subprocess.PIPE, stdout=output)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def run(self, request: bytes, timeout_s: float) -> int:
        """Let the child carry out the request; return its exit code. Raises TimeoutExpired after `timeout_s`."""
        self._process.communicate(request, timeout_s)
        return self._process.returncode

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()
