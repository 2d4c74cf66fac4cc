"""Who owns an ephemeral of ZooKeeper: a process, told by its machine, its number and its start.

ZooKeeper learns of a killed process when its session ends, seconds later. On the same machine that
is known at once. Invariant: a process is called dead only when the kernel of this very machine says
so; of other machines nothing is said.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache

_FROM_STATE = 3
"""Fields of /proc/<pid>/stat count from the state, which follows the name."""


def own_token() -> str:
    """This process, as text for `is_dead`."""
    pid = os.getpid()
    return f"{_machine()}:{pid}:{_started(pid) or 0}"


def is_dead(token: str) -> bool:
    """Whether the process is one of this machine and has ended."""
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
    """For people."""
    machine, _, process = token.partition(":")
    where = "" if machine == _machine() else " of another machine"
    return f"process {process.partition(':')[0]}{where}"


@cache
def _machine() -> str:
    """This boot of this machine and, in a container, of its process numbers."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        numbers = os.readlink("/proc/self/ns/pid")
    except OSError:
        # Nobody else has this name, so nobody is called dead.
        boot, numbers = os.urandom(16).hex(), ""
    return hashlib.sha256(f"{boot} {numbers}".encode()).hexdigest()[:16]


def _started(pid: int) -> int | None:
    """When a process started, in ticks since boot; None when it has ended or is not shown."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, *rest = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if state in (b"Z", b"X"):
        return -1
    return int(rest[22 - _FROM_STATE - 1])
