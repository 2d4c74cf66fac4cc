"""The limits of this process's control group on processes, threads and memory (versions 1 and 2)."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from heronpy.procs.linux import number_in


def pids_left(cgroup_file: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup") -> int | None:
    """The number of further processes that the group and its parents allow; None if there is no limit."""
    found = []
    for folder in _folders(cgroup_file, Path(root), "pids"):
        most, used = number_in(folder / "pids.max"), number_in(folder / "pids.current")
        if most is not None and used is not None:
            found.append(max(0, most - used))
    return min(found, default=None)


def memory_max_bytes(cgroup_file: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup") -> int | None:
    """The lowest memory limit of the group and its parents, in bytes; None if there is no limit."""
    found = []
    for folder in _folders(cgroup_file, Path(root), "memory"):
        found += [number_in(folder / name) for name in ("memory.max", "memory.limit_in_bytes")]
    return min((limit for limit in found if limit is not None), default=None)


def _folders(cgroup_file: str, root: Path, controller: str) -> list[Path]:
    """The folders of the group and its parents, in each hierarchy that has this controller."""
    try:
        lines = Path(cgroup_file).read_text(encoding="utf-8").splitlines()
    except OSError:
        return [root]
    found = [root]  # in a container with its own view of the groups, its own group is the root
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        inner = PurePosixPath(path.lstrip("/"))
        if not controllers:
            bases = [root, root / "unified"]
        elif controller in controllers.split(","):
            bases = [root / controllers, root / controller]
        else:
            continue
        found += [base / part for base in bases for part in (inner, *inner.parents)]
    return found
