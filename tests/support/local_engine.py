"""Finds the processes that the engine `local` has started."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import psutil

from heronpy.engines.local.engine import MARK


def shell_of(file: Path) -> int:
    """Return the pid of a container's shell, found by the path of the container's files."""
    found: int = json.loads(file.with_suffix(".json").read_text())["pid"]
    return found


def containers(home: Path) -> dict[str, list[psutil.Process]]:
    """Return the processes of each running container, beginning with its shell."""
    found = {}
    for file in home.glob("engines/local/*/*.json"):
        with suppress(psutil.Error, OSError, ValueError):
            shell = psutil.Process(shell_of(file))
            if shell.status() != psutil.STATUS_ZOMBIE:
                found[file.stem] = [shell, *shell.children(recursive=True)]
    return found


def kill_containers(home: Path) -> None:
    """Kill all processes of containers, including containers without a shell."""
    for _ in range(10):  # a process may just have started another one
        left = [one for one in psutil.process_iter() if home in _files(one).parents]
        for one in left:
            with suppress(psutil.Error):
                one.kill()
        if not left:
            return
        psutil.wait_procs(left, 5)


def _files(process: psutil.Process) -> Path:
    """Return the path of the files of a process's container."""
    with suppress(psutil.Error, OSError):
        if process.status() != psutil.STATUS_ZOMBIE:
            return Path(process.environ().get(MARK, "/"))
    return Path("/")
