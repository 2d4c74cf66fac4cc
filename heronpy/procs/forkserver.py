"""The owner's side of a fork server: starts the server, requests children, and receives their exits.

`ForkServer.start` forks, so call it before the program has any thread, zmq context, event loop or ephemeral lock.
`attach` then delivers its events to the running loop. The children belong to the server, not to the owner: their exits
arrive as events. When the server is gone, all processes that it started are gone, too (`ServerGone`). `close` kills the
remaining children and waits for the server to end.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import asdict

from heronpy.common.errors import FatalError
from heronpy.procs.fork_loop import MESSAGE_MAX_BYTES, ForkLoop

if TYPE_CHECKING:
    import asyncio

_CLOSE_MAX_S = 6.0
_SOCKET_BUFFER_BYTES = 1 << 20


class Command(Struct, frozen=True):
    """The program of a child: the function `main(argv)` of a module."""

    name: str
    module: str
    argv: tuple[str, ...] = ()
    cwd: str = ""
    #: Whether to start a new interpreter instead of a fork, for a program that must not inherit anything.
    fresh: bool = False
    python: str = ""
    env: tuple[tuple[str, str], ...] = ()
    #: Whether its output goes to a `ChildLog`, which has to distinguish records from raw output.
    sealed: bool = False
    #: Whether it runs user code, so that its runtime announces intended exit codes (`exit_notice`).
    announces: bool = False


class Ready(Struct, frozen=True):
    """The server has loaded its modules; `problems` lists modules that could not be loaded, with the reasons."""

    problems: dict[str, str]
    threads: int


class ChildSpawned(Struct, frozen=True):
    request: int
    pid: int


class ChildFailed(Struct, frozen=True):
    request: int
    error: str


class ChildExited(Struct, frozen=True):
    pid: int
    status: int
    cpu_s: float
    rss_bytes: int
    #: Whether its runtime had announced this exit code.
    announced: bool = False


class ServerGone(Struct, frozen=True):
    """The server and all its children have died."""


ServerEvent = Ready | ChildSpawned | ChildFailed | ChildExited | ServerGone
#: The types of the events by their names in the server's messages.
_EVENTS: Final[dict[str, Callable[..., ServerEvent]]] = {
    "ready": Ready, "spawned": ChildSpawned, "failed": ChildFailed, "exited": ChildExited,
}  # fmt: skip


class ForkServer:
    """One fork server; create it with `start`."""

    def __init__(self, pid: int, sock: socket.socket) -> None:
        self.pid = pid
        self._sock = sock
        self._ids = itertools.count(1)
        self._outbox: deque[tuple[bytes, int | None]] = deque()
        self._writing = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_event: Callable[[ServerEvent], None] | None = None
        self._closed = False

    @classmethod
    def start(
        cls,
        title: str,
        preload: Sequence[str] = (),
        env: dict[str, str] | None = None,
        output: int | None = None,
    ) -> ForkServer:
        """Fork the server; it imports `preload` while the caller continues.

        `output` becomes its stdout and stderr, instead of the caller's.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER_BYTES)
        owner = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            pid = os.fork()
        except OSError as error:
            raise FatalError(
                f"cannot start a process ({error.strerror}); check the limits on processes and memory"
            ) from None
        if pid == 0:
            try:
                ours.close()
                for stream in (1, 2) if output is not None else ():
                    os.dup2(output, stream)  # type: ignore[arg-type]
                os.environ.update(env or {})
                ForkLoop(theirs, title).run(preload, owner)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        theirs.close()
        ours.setblocking(False)
        return cls(pid, ours)

    def attach(self, on_event: Callable[[ServerEvent], None]) -> None:
        """Deliver events to `on_event` from the running loop."""
        import asyncio  # imported late, so that the start of the fork server does not wait for it

        self._loop = asyncio.get_running_loop()
        self._on_event = on_event
        self._loop.add_reader(self._sock.fileno(), self._readable)

    def spawn(self, command: Command, log_fd: int | None = None) -> int:
        """Request a child; returns a number. The answer is a ChildSpawned or ChildFailed with this number.

        The child's stdout and stderr are copies of `log_fd`; the caller may close its own copy immediately.
        """
        request = next(self._ids)
        message = {"op": "spawn", "id": request, **asdict(command)}
        self._post(message, None if log_fd is None else os.dup(log_fd))
        return request

    def signal(self, pid: int, signum: int, group: bool = False) -> None:
        """Send a signal to a child, and with `group` to its process group; does nothing if the child has ended."""
        self._post({"op": "signal", "pid": pid, "signum": int(signum), "group": group}, None)

    def close(self) -> None:
        """Kill every descendant and wait until the server is gone. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._detach()
        self._sock.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        deadline = time.monotonic() + _CLOSE_MAX_S
        try:
            while os.waitpid(self.pid, os.WNOHANG)[0] == 0:
                if time.monotonic() > deadline:
                    os.kill(self.pid, signal.SIGKILL)
                    os.waitpid(self.pid, 0)
                    return
                time.sleep(0.001)
        except ChildProcessError:
            return

    # ---- plumbing ---------------------------------------------------------------------------
    def _detach(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._sock.fileno())
            if self._writing:
                self._loop.remove_writer(self._sock.fileno())
        self._loop, self._writing = None, False
        for _, fd in self._outbox:
            if fd is not None:
                os.close(fd)
        self._outbox.clear()

    def _post(self, message: dict[str, Any], fd: int | None) -> None:
        if self._closed:
            if fd is not None:
                os.close(fd)
            return
        data = json.dumps(message).encode()
        if len(data) > MESSAGE_MAX_BYTES:
            if fd is not None:
                os.close(fd)
            raise FatalError(f"the command of {message.get('name')} is longer than {MESSAGE_MAX_BYTES} bytes")
        self._outbox.append((data, fd))
        self._flush()

    def _flush(self) -> None:
        while self._outbox:
            data, fd = self._outbox[0]
            try:
                if fd is None:
                    self._sock.send(data)
                else:
                    socket.send_fds(self._sock, [data], [fd])
            except BlockingIOError:
                self._watch_writable(True)
                return
            except OSError:
                pass  # The server is gone; the reader sees the end of file and reports it.
            self._outbox.popleft()
            if fd is not None:
                os.close(fd)
        self._watch_writable(False)

    def _watch_writable(self, on: bool) -> None:
        if self._loop is None or on == self._writing:
            return
        self._writing = on
        if on:
            self._loop.add_writer(self._sock.fileno(), self._flush)
        else:
            self._loop.remove_writer(self._sock.fileno())

    def _readable(self) -> None:
        while not self._closed:
            try:
                data = self._sock.recv(MESSAGE_MAX_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            assert self._on_event is not None
            if not data:
                self._detach()
                self._on_event(ServerGone())
                return
            self._on_event(_event(json.loads(data)))


def _event(message: dict[str, Any]) -> ServerEvent:
    return _EVENTS[message.pop("op")](**message)
