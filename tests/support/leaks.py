"""Finds processes, descriptors and sockets that a test has left behind."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import time
from pathlib import Path

import psutil

#: Seconds after the test until remaining processes and files count as leaks.
PATIENCE_S = 10.0
#: Prefix of the folder of `tests.support.control_plane`.
CONTROL_PLANE = "/tmp/heron-control-plane-"
#: Descriptors that libraries open on first use and keep open.
_HARMLESS = ("anon_inode:", "/dev/", "/proc/", "/sys/", "/memfd:")


class LeakCheck:
    """Finds leaks of a test; create it before the test."""

    def __init__(self, home: str = "", sockets: Path | None = None) -> None:
        self._home = home
        self._sockets = sockets
        self._descriptors = _descriptors()
        self._children = {child.pid for child in _children()}

    def leaks(self) -> list[str]:
        """Return children and descriptors that did not exist before the test."""
        return self._patiently(self._look)

    def leaks_of_home(self) -> list[str]:
        """Return processes with this HERON_HOME, and files in the folder of sockets."""
        return self._patiently(self.look_home)

    def kill_home(self) -> None:
        """Send SIGKILL until no process is left, because a newly forked process could write into removed folders."""
        deadline = time.monotonic() + PATIENCE_S
        while (left := self._processes()) and time.monotonic() < deadline:
            for process in left:
                with contextlib.suppress(psutil.Error):  # it may end together with a killed process
                    process.send_signal(signal.SIGKILL)
            time.sleep(0.02)

    @staticmethod
    def _patiently(look: object) -> list[str]:
        deadline = time.monotonic() + PATIENCE_S
        found: list[str] = look()  # type: ignore[operator]
        while found and time.monotonic() < deadline:
            gc.collect()  # repeatedly, because a thread that has just ended may have held garbage
            time.sleep(0.02)
            found = look()  # type: ignore[operator]
        return found

    def _look(self) -> list[str]:
        found = []
        for child in _children():
            if child.pid not in self._children:
                found.append(f"child process {_describe(child)}")
        new = _descriptors()
        found += [f"descriptor {fd} -> {target}" for fd, target in new.items() if fd not in self._descriptors]
        return found

    def _processes(self) -> list[psutil.Process]:
        """Return the processes of this home, and of homes that `heron verify` creates among the temporary files."""
        assert self._home, "it was made without a home"
        return processes_of(self._home, *([str(self._sockets)] if self._sockets is not None else []))

    def look_home(self) -> list[str]:
        """Return the current processes of the home and files in the folder of sockets."""
        found = [f"process {_describe(process)}" for process in self._processes()]
        if self._sockets is not None:
            for path in self._sockets.glob("heron-*/*/*"):
                found.append(f"file {path}")
        return found


def processes_of(*homes: str) -> list[psutil.Process]:
    """Return other processes whose HERON_HOME is one of these folders or below one."""
    folders = tuple(f"{home}/" for home in homes)
    found = []
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        try:
            if process.status() != psutil.STATUS_ZOMBIE and f"{process.environ().get('HERON_HOME')}/".startswith(
                folders
            ):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def _children() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            # multiprocessing's helper, a control plane and Azurite run until the end of the test run.
            line = " ".join(child.cmdline())
            if not any(one in line for one in ("resource_tracker", CONTROL_PLANE, "azurite-blob")):
                found.append(child)
        except psutil.Error:
            continue
    return found


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid} ({' '.join(process.cmdline()).strip() or process.name()}, {process.status()})"
    except psutil.Error:
        return str(process.pid)


def _descriptors() -> dict[int, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if not target.startswith(_HARMLESS) and "/.hypothesis/" not in target:
            found[int(name)] = target
    return found
