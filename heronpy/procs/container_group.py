"""A container's own control group, limited to the resources that the topology requests (versions 1 and 2).

Invariants: the group is below its creator's group, so it never widens a limit; a group is removed only when it is
empty.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

_PERIOD_US = 100_000
_REMOVE_TRIES, _REMOVE_PAUSE_S = 20, 0.01


def group_name(topology_id: str, container: int) -> str:
    return f"{prefix_of(topology_id)}{container}"


def prefix_of(topology_id: str) -> str:
    """The prefix of all group names of a topology."""
    return f"heron.{topology_id}."


def enter(
    name: str,
    pid: int,
    cpu: float,
    ram_bytes: int,
    cgroup_file: str = "/proc/self/cgroup",
    root: str = "/sys/fs/cgroup",
) -> None:
    """Put a process and its future children into a group with these limits; 0 means no limit.

    Raises OSError if this user cannot write control groups on this machine.
    """
    for controller, limit in (("memory", ram_bytes), ("cpu", cpu)):
        if limit:
            parent, unified = _group_of(controller, cgroup_file, Path(root))
            if unified:
                (parent / "cgroup.subtree_control").write_text(f"+{controller}", encoding="ascii")
            (parent / name).mkdir(exist_ok=True)
            _limit(parent / name, controller, limit, unified)
            (parent / name / "cgroup.procs").write_text(str(pid), encoding="ascii")


def resize(
    name: str, cpu: float, ram_bytes: int, cgroup_file: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup"
) -> None:
    """Change the limits of an existing group. The memory limit is never lowered, because that could kill processes."""
    for controller, limit in (("memory", ram_bytes), ("cpu", cpu)):
        with suppress(OSError):
            parent, unified = _group_of(controller, cgroup_file, Path(root))
            file = parent / name / ("memory.max" if unified else "memory.limit_in_bytes")
            known = file.read_text(encoding="ascii").strip() if controller == "memory" else "0"
            if limit and (parent / name).is_dir() and known.isdigit() and int(known) < limit:
                _limit(parent / name, controller, limit, unified)


def _limit(folder: Path, controller: str, limit: float, unified: bool) -> None:
    quota = max(1000, int(limit * _PERIOD_US))
    if controller == "memory":
        texts = {"memory.max" if unified else "memory.limit_in_bytes": str(int(limit))}
    elif unified:
        texts = {"cpu.max": f"{quota} {_PERIOD_US}"}
    else:
        texts = {"cpu.cfs_period_us": str(_PERIOD_US), "cpu.cfs_quota_us": str(quota)}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="ascii")


def remove(name: str, cgroup_file: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup") -> None:
    """Remove a group, or all groups with the prefix from `prefix_of`, except groups that still have processes."""
    is_prefix = name.endswith(".")  # without this check, container 1's name would match container 10
    for controller in ("memory", "cpu"):
        with suppress(OSError):
            parent, _ = _group_of(controller, cgroup_file, Path(root))
            for folder in [
                one for one in parent.iterdir() if one.name == name or (is_prefix and one.name.startswith(name))
            ]:
                _remove(folder)


def _remove(folder: Path) -> None:
    for _ in range(_REMOVE_TRIES):
        try:
            folder.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(_REMOVE_PAUSE_S)  # its last process may be about to end


def _group_of(controller: str, cgroup_file: str, root: Path) -> tuple[Path, bool]:
    """The folder of this process's group for a controller, and whether it is version 2; OSError if there is none."""
    lines = Path(cgroup_file).read_text(encoding="utf-8").splitlines()
    groups = [tuple(line.split(":", 2)[1:]) for line in lines if line.count(":") >= 2]
    for controllers, path in groups:
        if controller in controllers.split(","):
            for base in (root / controllers, root / controller):
                # In a container with its own view of the groups, the path does not exist: its own group is the root.
                for folder in (base / path.lstrip("/"), base):
                    if folder.is_dir():
                        return folder, False
    for controllers, path in groups:
        for folder in (root / path.lstrip("/"), root) if not controllers else ():
            with suppress(OSError):
                if controller in (folder / "cgroup.controllers").read_text(encoding="ascii").split():
                    return folder, True
    raise FileNotFoundError(f"no control group of this process has the controller '{controller}'")
