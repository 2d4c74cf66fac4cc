"""The owner of a ZooKeeper ephemeral: a process, identified by machine, pid and start time.

ZooKeeper notices a killed process when its session ends, seconds later. On the same machine we know
immediately. Invariant: a process counts as dead only if the kernel of this machine says so; processes of
other machines never do.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache

_FROM_STATE = 3
"""Fields of /proc/<pid>/stat are counted from the state, which follows the name."""


def own_token() -> str:
    """This process as text, for `is_dead`."""
    pid = os.getpid()
    return f"{_machine()}:{pid}:{_started(pid) or 0}"


def is_dead(token: str) -> bool:
    """Whether the process ran on this machine and has ended."""
    machine, _, process = token.partition(":")
    if machine != _machine():
        return False
    pid, _, started = process.partition(":")
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    now = _started(int(pid))
    return now is not None and started != "0" and str(now) != started


def describe(token: str) -> str:
    """The owner, for messages."""
    machine, _, process = token.partition(":")
    where = "" if machine == _machine() else " of another machine"
    return f"process {process.partition(':')[0]}{where}"


@cache
def _machine() -> str:
    """Id of this boot of this machine and, in a container, of its pid namespace."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        numbers = os.readlink("/proc/self/ns/pid")
    except OSError:
        # A unique name, so that no process counts as dead.
        boot, numbers = os.urandom(16).hex(), ""
    return hashlib.sha256(f"{boot} {numbers}".encode()).hexdigest()[:16]


def _started(pid: int) -> int | None:
    """When a process started, in ticks since boot; None if it has ended or is hidden."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, *rest = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if state in (b"Z", b"X"):
        return -1
    return int(rest[22 - _FROM_STATE - 1])
