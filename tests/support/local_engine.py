"""What the engine `local` has started, as a test sees it from outside."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import psutil


def shell_of(file: Path) -> int:
    """The shell of a container, by the path of its files."""
    found: int = json.loads(file.with_suffix(".json").read_text())["pid"]
    return found


def containers(home: Path) -> dict[str, list[psutil.Process]]:
    """The processes of each container that lives, its shell first."""
    found = {}
    for file in home.glob("engines/local/*/*.json"):
        with suppress(psutil.Error, OSError, ValueError):
            shell = psutil.Process(shell_of(file))
            if shell.status() != psutil.STATUS_ZOMBIE:
                found[file.stem] = [shell, *shell.children(recursive=True)]
    return found


def kill_containers(home: Path) -> None:
    for processes in containers(home).values():
        for one in processes:
            with suppress(psutil.Error):
                one.kill()
