"""Finds the tracker of a HERON_HOME, or starts it, for `heron ui`.

The modules that read a record and query a tracker are imported in functions: if no tracker runs, the new one starts
during these imports.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from heronpy.common.errors import ConfigError, DeadlineError, HeronError
from heronpy.common.flock import locked
from heronpy.common.folders import check_root
from heronpy.tracker.folder import LOG, RECORD, folder_of

if TYPE_CHECKING:
    from heronpy.tracker.place import Running

#: A tracker that `heron ui` has started ends after this time without a request.
IDLE_EXIT_S = 1800.0
START_S, STOP_S, LOOK_S = 15.0, 10.0, 0.02


def find(home: Path) -> Running | None:
    """Return the running tracker; None if no tracker runs or answers."""
    check_root(home, "HERON_HOME")
    folder = folder_of(home)
    return _answering(folder) if (folder / RECORD).exists() else None


def _answering(folder: Path) -> Running | None:
    from heronpy.tracker import place

    running = place.read(folder)
    return running if running is not None and answers(running) else None


def answers(running: Running) -> bool:
    """Whether the tracker accepts requests. With TLS or behind a proxy, only its listening port is checked."""
    import http.client
    from urllib.parse import urlsplit

    address = urlsplit(f"//{running.for_programs}")
    host, port = address.hostname or "127.0.0.1", address.port or 80
    connection = http.client.HTTPConnection(host, port, timeout=2.0)
    try:
        if running.address.startswith("https:"):
            connection.connect()
            return True
        connection.request("GET", "/health")
        return connection.getresponse().status in (200, 421)
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def find_or_start(home: Path, config_path: str | None) -> Running:
    """Return the running tracker, or start a new one on loopback. Raises HeronError if the tracker does not start."""
    found = find(home)
    if found is not None:
        return found
    folder = folder_of(home)
    with locked(folder / "start.lock"):  # two simultaneous commands start one tracker
        return find(home) or _start(folder, config_path)


def _start(folder: Path, config_path: str | None) -> Running:
    words = [sys.executable, "-m", "heronpy.tracker", "--idle-exit", f"{IDLE_EXIT_S:g}"]
    if config_path is not None:
        words += ["--config-path", str(Path(config_path).absolute())]
    child = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        running = _answering(folder)
        if running is not None:
            return running
        if child.poll() is not None:
            raise HeronError(f"the tracker did not start: {_last_line(folder / LOG)}")
        time.sleep(LOOK_S)
    child.terminate()
    raise DeadlineError(f"the tracker did not answer within {START_S:g} s; see {folder / LOG}")


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines else f"see {path}"


def _ended(running: Running) -> bool:
    """Wait for a process to end; return whether it has ended. A process that was not yet reaped has also ended."""
    deadline = time.monotonic() + STOP_S
    while running.process is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_S)
    return True


def stop(home: Path) -> Running | None:
    """Stop and return the running tracker; None if none runs. Raises ConfigError if `heron ui` did not start it."""
    import psutil

    from heronpy.tracker import place

    check_root(home, "HERON_HOME")
    folder = folder_of(home)
    running = place.read(folder)
    process = running.process if running is not None else None
    if running is None or process is None:
        return None
    if not running.by_ui:
        raise ConfigError(
            f"the tracker at {running.address} (pid {running.pid}) was started by 'heron tracker'; stop it there"
        )
    with contextlib.suppress(psutil.NoSuchProcess):
        process.terminate()
        if not _ended(running):
            process.kill()
            _ended(running)
    place.remove(folder, running)
    return running
