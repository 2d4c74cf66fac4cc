"""A process that has imported `heron` and forks for each read-only command, which costs a tenth of the CPU of a new
interpreter.

Only commands that start no process run this way, because a process started by the fork differs from one that `heron`
starts.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

VERBS = frozenset(("doctor", "events", "exceptions", "list", "logs", "metrics", "plan", "status", "units"))
REPO = Path(__file__).resolve().parents[2]
_REQUEST_BYTES = 1 << 20


class Warm:
    """The process, until it is closed."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _REQUEST_BYTES)
        self._number = 0
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.warm"], cwd=REPO, stdin=theirs, stdout=subprocess.DEVNULL
            )

    def run(self, words: Sequence[str], env: Mapping[str, str], cwd: Path, timeout_s: float) -> tuple[int, str, str]:
        """Run a command; return its exit code and output."""
        with os.fdopen(os.memfd_create("out"), "rb") as out, os.fdopen(os.memfd_create("err"), "rb") as err:
            self._number += 1
            request = json.dumps([self._number, list(words), dict(env), str(cwd)]).encode()
            socket.send_fds(self._ours, [request], [out.fileno(), err.fileno()])
            self._ours.settimeout(timeout_s)
            try:
                number = code = 0
                while number != self._number:  # an unread answer to an interrupted test may come first
                    answer = self._ours.recv(64)
                    assert answer, "the process that runs commands has ended"
                    number, code = map(int, answer.split())
            except TimeoutError:
                self._process.kill()
                raise subprocess.TimeoutExpired(["heron", *words], timeout_s) from None
            out.seek(0)
            err.seek(0)
            return code, out.read().decode(), err.read().decode()

    def close(self) -> None:
        self._ours.close()
        self._process.wait()


#: The warm process of this pytest process, if it runs.
here: Warm | None = None


def serve(requests: socket.socket) -> None:
    """Serve until the pipe is closed. Returns in each forked child, which then runs its command."""
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, 2)
        if not request:
            sys.exit(0)
        number, words, env, cwd = json.loads(request)
        child = os.fork()
        if not child:
            for number, descriptor in enumerate(descriptors, start=1):
                os.dup2(descriptor, number)
                os.close(descriptor)
            requests.close()
            os.environ.clear()
            os.environ.update(env)
            os.chdir(cwd)
            sys.path[0], sys.argv = cwd, ["heron", *words]
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        requests.send(f"{number} {code}".encode())


def main() -> None:
    """Import the modules of the commands, and serve commands."""
    from heronpy import clusters
    from heronpy.cli import look, verbs
    from heronpy.cli.start import main as heron

    for package in (look, verbs, clusters):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    for name in ("render", "flags.arguments", "flags.complete"):
        importlib.import_module(f"heronpy.cli.{name}")
    importlib.import_module("heronpy.statemgr.localfs")
    gc.freeze()  # otherwise, the first garbage collection of each child copies all of it
    serve(socket.socket(fileno=os.dup(0)))
    code = heron()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # skip the clean-up of Python, which is most of the cost of a command


if __name__ == "__main__":
    main()
