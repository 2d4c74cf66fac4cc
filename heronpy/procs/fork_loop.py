"""The fork server's own process: loads the runtime once, then forks children on request.

It is single-threaded and has no event loop, zmq context or lock, so a fork copies no held lock. It is the parent and
subreaper of all processes that it starts.

Invariants:
- When the owner of the socket is gone (end of file) or SIGTERM arrives, every descendant is killed before the server
  exits.
- A child is sent signals only while it has not been reaped, so a signal can never reach another process with the same
  pid.
- An orphan that has left the session of its task is killed no later than the next exit of any task.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import gc
import importlib
import json
import os
import random
import select
import signal
import socket
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterable
from typing import Any

from heronpy.common import log_seal
from heronpy.procs import exit_notice, linux

MESSAGE_MAX_BYTES = 64 * 1024
_FIRST_OTHER_FD = 3
#: Signals that ask a process to end or to print its stacks.
_ASKED_BY = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
#: Descendants that survive SIGKILL for this long are stuck in the kernel.
_KILL_ALL_MAX_S = 5.0
_OPEN_FDS_MAX = 1 << 20


class ForkLoop:
    """The state of one fork server."""

    def __init__(self, sock: socket.socket, title: str) -> None:
        self._sock = sock
        self._title = title
        self._pid = os.getpid()
        self._children: dict[int, str] = {}
        #: The reading end of the pipe of each child that announces its exit.
        self._notices: dict[int, int] = {}
        self._ending = False

    # ---- life -------------------------------------------------------------------------------
    def run(self, preload: Iterable[str], owner: int) -> None:
        """Serve until the owner is gone."""
        wake_r = self._prepare(owner)
        problems = load_modules(preload)
        threads = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1
        self._tell({"op": "ready", "problems": problems, "threads": threads})
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        poll.register(wake_r, select.POLLIN)
        self._reap()
        while not self._ending:
            for fd, _ in poll.poll():
                if fd == wake_r:
                    os.read(wake_r, 4096)
                    self._reap()
                else:
                    self._receive()
        self._kill_all()

    def _prepare(self, owner: int) -> int:
        linux.become_subreaper()
        linux.set_title(f"heron: {self._title}")
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        wake_r, wake_w = os.pipe()
        os.set_blocking(wake_w, False)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        if not linux.die_with_parent(signal.SIGTERM, owner):
            os._exit(0)
        return wake_r

    def _on_term(self, *_: object) -> None:
        self._ending = True

    def _tell(self, message: dict[str, Any]) -> None:
        try:
            self._sock.send(json.dumps(message).encode())
        except OSError:
            self._ending = True

    def _receive(self) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(self._sock, MESSAGE_MAX_BYTES, 1)
        except InterruptedError:
            return
        except OSError:
            data, fds = b"", []
        try:
            if not data:
                self._ending = True
                return
            request = json.loads(data)
            if request["op"] == "spawn":
                self._spawn(request, fds[0] if fds else None)
            elif request["op"] == "signal":
                self._signal(request["pid"], request["signum"], request["group"])
        finally:
            for fd in fds:
                os.close(fd)

    # ---- children ---------------------------------------------------------------------------
    def _spawn(self, request: dict[str, Any], log_fd: int | None) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            reader, writer = exit_notice.open_pipe() if request["announces"] else (None, None)
        except OSError as error:
            self._tell({"op": "failed", "request": request["id"], "error": f"cannot open a pipe: {error.strerror}"})
            return
        # A signal to a child that still has the server's handlers would be lost; it is blocked until the child has its
        # own.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _ASKED_BY)
        try:
            pid = os.fork()
        except OSError as error:
            self._tell({"op": "failed", "request": request["id"], "error": f"cannot fork: {error.strerror}"})
            _close(reader, writer)
            return
        finally:
            if os.getpid() == self._pid:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if pid == 0:
            code = 1
            try:
                code = run_child(request, log_fd, writer, self._pid)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        _close(writer)
        self._children[pid] = request["name"]
        if reader is not None:
            self._notices[pid] = reader
        self._tell({"op": "spawned", "request": request["id"], "pid": pid})

    def _signal(self, pid: int, signum: int, group: bool) -> None:
        if pid not in self._children:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signum)
        if group:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signum)

    def _reap(self) -> None:
        died = False
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                found = None
            if found is None:
                break
            pid = found.si_pid
            known = pid in self._children
            if known:
                # Until the child is reaped, its pid cannot belong to another process group.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
            _, status, usage = os.wait4(pid, 0)
            died = True
            if known:
                del self._children[pid]
                reader = self._notices.pop(pid, None)
                announced = reader is not None and exit_notice.was_announced(reader, status)
                _close(reader)
                self._tell(
                    {
                        "op": "exited",
                        "pid": pid,
                        "status": status,
                        "cpu_s": usage.ru_utime + usage.ru_stime,
                        "rss_bytes": usage.ru_maxrss * 1024,
                        "announced": announced,
                    }
                )
        if died:
            self._kill_strays()

    def _kill_strays(self) -> None:
        """Kill adopted orphans that do not belong to a living child's session."""
        for pid in linux.children_of(self._pid):
            if pid in self._children:
                continue
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getsid(pid) not in self._children:
                    os.kill(pid, signal.SIGKILL)

    def _kill_all(self) -> None:
        """Kill every descendant. Orphans become children of this process, so the call ends when no child is left."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        deadline = time.monotonic() + _KILL_ALL_MAX_S
        while time.monotonic() < deadline:
            for pid in linux.children_of(self._pid):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return
            time.sleep(0.002)


def _close(*descriptors: int | None) -> None:
    for descriptor in descriptors:
        if descriptor is not None:
            os.close(descriptor)


def load_modules(names: Iterable[str]) -> dict[str, str]:
    """Import each module; returns the modules that could not be imported, with the reasons."""
    problems = {}
    gc.disable()  # imports create almost no garbage, and collections would take a sixth of the time
    # A BLAS thread pool in the parent makes every fork unsafe.
    before = os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:
            problems[name] = f"{type(error).__name__}: {error}"
    gc.freeze()  # so that garbage collections in children do not copy the memory of modules
    gc.enable()
    if before is None:
        del os.environ["OPENBLAS_NUM_THREADS"]
    else:
        os.environ["OPENBLAS_NUM_THREADS"] = before
    return problems


# ---- in the child ----------------------------------------------------------------------------
def run_child(request: dict[str, Any], log_fd: int | None, notice_fd: int | None, parent: int) -> int:
    """Turn this forked child into the requested process; returns its exit code.

    All inherited descriptors are closed, except the output `log_fd` and `notice_fd`, on which the exit is announced.
    """
    os.setsid()
    if not linux.die_with_parent(signal.SIGKILL, parent):
        return 1
    signal.set_wakeup_fd(-1)
    for signum in (signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP):
        signal.signal(signum, signal.SIG_DFL)
    # Stacks may be requested at any time, and the signal must not end the process before it has a handler. The
    # inherited registration is removed, because faulthandler installs no handler while it exists.
    faulthandler.unregister(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ASKED_BY)
    _arrange_files(log_fd, notice_fd)
    if notice_fd is not None:
        exit_notice.adopt(notice_fd)
    if request["sealed"]:
        log_seal.declare(1)
    linux.set_title(f"heron: {request['name']}")
    os.environ.update(request["env"])
    if request["fresh"]:
        _make_path_absolute()
    if request["cwd"]:
        os.chdir(request["cwd"])
    if request["fresh"]:
        return _exec(request)
    _forget_parent(request)
    return _run_main(request["module"], request["argv"])


def _arrange_files(log_fd: int | None, notice_fd: int | None) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    out = null if log_fd is None else log_fd
    os.dup2(out, 1)
    os.dup2(out, 2)
    first = _FIRST_OTHER_FD
    if notice_fd is not None:
        os.closerange(first, notice_fd)
        first = notice_fd + 1
    os.closerange(first, _OPEN_FDS_MAX)


def _make_path_absolute() -> None:
    """Make sys.path absolute, so that a child with another working folder finds the same modules."""
    home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    entries = [os.path.abspath(e) for e in os.environ.get("PYTHONPATH", "").split(os.pathsep) if e]
    if home not in entries:
        entries.append(home)
    os.environ["PYTHONPATH"] = os.pathsep.join(entries)


def _exec(request: dict[str, Any]) -> int:
    python = request["python"] or sys.executable
    os.environ.update(log_seal.hand_on() | exit_notice.hand_on())
    try:
        os.execv(python, [python, "-P", "-m", request["module"], *request["argv"]])
    except OSError as error:
        # The parent's stream may hold a descriptor that is closed here.
        os.write(2, f"cannot execute {python}: {error.strerror}\n".encode(errors="replace"))
        code = 1 if error.errno in (errno.EAGAIN, errno.ENOMEM) else 3
        exit_notice.announce(code)
        return code


def _forget_parent(request: dict[str, Any]) -> None:
    """Replace the streams, `__main__`, arguments and random state that a fork inherits from its parent."""
    # The parent's streams may hold closed descriptors; these are the child's own.
    sys.stdin = open(0, encoding="utf-8", closefd=False)
    sys.stdout = open(1, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]
    sys.modules["__main__"] = types.ModuleType("__main__")
    sys.argv = [request["module"], *request["argv"]]
    random.seed()
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    faulthandler.enable(file=sys.stderr)
    faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=True)


def _run_main(module: str, argv: list[str]) -> int:
    try:
        code = main_of(module)(argv)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else (0 if stop.code is None else 1)
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    return int(code or 0) & 0xFF


def main_of(module: str) -> Callable[[list[str]], int | None]:
    """The `main(argv)` of a module, or of the `__main__` of a package."""
    loaded = importlib.import_module(module)
    if hasattr(loaded, "__path__"):
        loaded = importlib.import_module(f"{module}.__main__")
    main: Callable[[list[str]], int | None] = loaded.main
    return main
