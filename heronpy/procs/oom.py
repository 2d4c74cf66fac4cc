"""The kernel's count of out-of-memory kills in our control group (versions 1 and 2), and the group's own figures.

A SIGKILL that we did not send is an out-of-memory kill if this counter moved.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from heronpy.common.units import format_bytes

#: Limit and peak of a control group, in either version; both count the memory of all its processes.
_FIGURES = (("memory.max", "memory.peak"), ("memory.limit_in_bytes", "memory.max_usage_in_bytes"))
#: Version 1 reports "no limit" as a value close to the largest integer.
_NO_LIMIT = 1 << 60


class OomCounter:
    """`moved()` tells whether the kernel has killed a process since the last call."""

    def __init__(self, paths: Iterable[str] | None = None) -> None:
        self._paths = list(paths) if paths is not None else counter_files()
        self._last = self._read()

    def moved(self) -> bool:
        count = self._read()
        moved = count > self._last
        self._last = count
        return moved

    def figures(self) -> str:
        """Limit and peak of the control group in words; "" if there is no limit or it is unknown."""
        for folder in (Path(path).parent for path in self._paths):
            for limit_name, peak_name in _FIGURES:
                limit, peak = _number(folder / limit_name), _number(folder / peak_name)
                if limit is not None and limit < _NO_LIMIT:
                    said = f", its peak {format_bytes(peak)}" if peak is not None else ""
                    return f"the control group's limit is {format_bytes(limit)}{said}, of all its processes"
        return ""

    def _read(self) -> int:
        return sum(_oom_kills(path) for path in self._paths)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # no such file in this kernel, or "max"
        return None


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
    """The files with a line `oom_kill N` that cover this process."""
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
