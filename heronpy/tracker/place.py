"""Reads and writes the record of a HERON_HOME's running tracker, in the tracker's folder.

The record identifies a process by its pid and start time, so a process that reuses the pid is not mistaken for the
tracker.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

import msgspec

from heronpy.common.errors import ConfigError, HeronError
from heronpy.common.folders import open_private, read_own, replace_file
from heronpy.tracker.folder import RECORD

if TYPE_CHECKING:
    import psutil

LAST_PORT = "last-port"
_MAX_BYTES = 64 * 1024


class Running(msgspec.Struct, kw_only=True):
    """The record of a tracker that is running or has ended."""

    pid: int
    #: Start of the process as reported by psutil: seconds since 1970.
    started_at: float
    #: `http://NAME.localhost:8889`, where NAME is random; with TLS or behind a proxy `https://...`
    address: str
    release: str
    #: Whether `heron ui` started the tracker, so that `heron ui stop` may end it.
    by_ui: bool = False

    @property
    def for_programs(self) -> str:
        """Host and port for programs, which need a token there."""
        asked = urlsplit(self.address)
        return f"127.0.0.1:{asked.port}" if (asked.hostname or "").endswith(".localhost") else asked.netloc

    @property
    def process(self) -> psutil.Process | None:
        """The tracker's process; None if it has ended."""
        import psutil  # imported here, because each submit looks for a tracker, but seldom finds one

        try:
            process = psutil.Process(self.pid)
            ours = abs(process.create_time() - self.started_at) < 0.05 and process.uids().real == os.getuid()
            return process if ours and process.status() != psutil.STATUS_ZOMBIE else None
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return None


def write(folder: Path, address: str, release: str, by_ui: bool) -> Running:
    """Record this process as the running tracker."""
    import psutil

    own = psutil.Process()
    running = Running(pid=own.pid, started_at=own.create_time(), address=address, release=release, by_ui=by_ui)
    replace_file(folder / RECORD, msgspec.json.encode(running) + b"\n", durable=False)
    with open(open_private(folder / LAST_PORT, os.O_WRONLY | os.O_TRUNC), "w", encoding="ascii") as file:
        file.write(f"{urlsplit(address).port or ''}")
    return running


def last_port(folder: Path) -> int | None:
    """Return the port of the last tracker of this folder; None if unknown."""
    try:
        text = read_own(folder / LAST_PORT, _MAX_BYTES)
    except (OSError, ConfigError):
        return None
    return int(text) if text.isdigit() and 0 < int(text) < 1 << 16 else None


def read(folder: Path) -> Running | None:
    """Return the running tracker; None if no tracker runs, or if the record is damaged."""
    try:
        found = msgspec.json.decode(read_own(folder / RECORD, _MAX_BYTES), type=Running)
    except (OSError, msgspec.DecodeError, ConfigError):
        return None
    return found if found.process is not None else None


def page_of(address: str, cluster: str, role: str, environ: str, name: str) -> str:
    """Address of a topology's page, in the form that `static/js/route.js` reads."""
    return f"{address}/#/t/" + "/".join(quote(part, safe="") for part in (cluster, role, environ, name))


def page_if_running(home: Path, cluster: str, role: str, environ: str, name: str) -> str:
    """Return the address of a topology's page; empty if no tracker is running. Starts nothing, sends nothing and never
    fails.
    """
    try:
        running = read(home / "tracker")
    except (HeronError, OSError, ValueError):
        return ""
    return page_of(running.address, cluster, role, environ, name) if running is not None else ""


def remove(folder: Path, running: Running) -> None:
    """Remove the record, unless another tracker has written its own."""
    now = read(folder)
    if now is None or (now.pid, now.started_at) == (running.pid, running.started_at):
        with contextlib.suppress(FileNotFoundError):
            (folder / RECORD).unlink()
