"""The kernel's count of out-of-memory kills in our control group (versions 1 and 2).

A SIGKILL that nobody here sent is an out-of-memory kill when this counter moved.
"""

from __future__ import annotations

import os
from collections.abc import Iterable


class OomCounter:
    """`moved()` tells whether the kernel killed something since the last call."""

    def __init__(self, paths: Iterable[str] | None = None) -> None:
        self._paths = list(paths) if paths is not None else counter_files()
        self._last = self._read()

    def moved(self) -> bool:
        count = self._read()
        moved = count > self._last
        self._last = count
        return moved

    def _read(self) -> int:
        return sum(_oom_kills(path) for path in self._paths)


def _oom_kills(path: str) -> int:
    try:
        with open(path, encoding="ascii") as counters:
            for line in counters:
                key, _, value = line.partition(" ")
                if key == "oom_kill":
                    return int(value)
    except (OSError, ValueError):
        return 0
    return 0


def counter_files(cgroup_file: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup") -> list[str]:
    """The files with a line `oom_kill N` that speak for this process."""
    found = []
    try:
        with open(cgroup_file, encoding="utf-8") as groups:
            lines = groups.read().splitlines()
    except OSError:
        return []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        path = path.lstrip("/")
        if not controllers:
            candidates = [os.path.join(root, path), os.path.join(root, "unified", path), root]
            name = "memory.events"
        elif "memory" in controllers.split(","):
            candidates = [os.path.join(root, controllers, path), os.path.join(root, "memory")]
            name = "memory.oom_control"
        else:
            continue
        existing = [os.path.join(c, name) for c in candidates if os.path.exists(os.path.join(c, name))]
        found += existing[:1]
    return found
