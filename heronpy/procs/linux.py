"""Kernel calls that Python's standard library lacks, and the limit of open files.

Invariant: every call is safe in a freshly forked child (starts no threads, logs nothing). On a system without `prctl`
the calls change nothing; the death of a parent is then noticed only by the end of file on a socket.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
#: Upper estimates of the number of open files of a process of the runtime: without links, and for each link.
FDS_PER_PROCESS, FDS_PER_LINK = 40, 6
#: The limit if there is no hard limit; it equals the kernel's default for a process (fs.nr_open).
FILES_MAX = 1 << 20


def die_with_parent(signum: int, parent: int) -> bool:
    """Ask the kernel to send `signum` when `parent` dies; returns False if the parent is already dead.

    The signal is bound to the *thread* that forked, so a parent must fork only from its main thread.
    """
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0)
    return os.getppid() == parent


def become_subreaper() -> bool:
    """Make this process adopt orphaned descendants, so that no process escapes by forking twice."""
    return _libc is not None and _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def set_title(title: str) -> None:
    """Show `title` in ps and top instead of the command line of the forking process."""
    if _libc is None:
        return
    raw = title.encode(errors="replace")
    _libc.prctl(_PR_SET_NAME, raw[:15], 0, 0, 0)
    try:
        with open("/proc/self/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
        start, end = int(fields[45]), int(fields[46])
    except (OSError, ValueError, IndexError):
        return
    room = end - start - 1
    if start and 0 < room < 1 << 16:
        ctypes.memmove(start, raw[:room].ljust(room + 1, b"\0"), room + 1)


def children_of(pid: int) -> list[int]:
    """The children of a single-threaded process, including unreaped ones."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as listing:
            return [int(child) for child in listing.read().split()]
    except FileNotFoundError:
        return children_by_scan(pid)
    except OSError:
        return []


def children_by_scan(parent: int) -> list[int]:
    """The children of a process; works on kernels without CONFIG_PROC_CHILDREN."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as stat:
                    if int(stat.read().rpartition(b")")[2].split()[1]) == parent:
                        found.append(int(entry))
            except (OSError, ValueError, IndexError):
                continue
    return found


def lift_files() -> int:
    """Raise the soft limit of open files to the hard limit; returns the hard limit.

    The need cannot be estimated, because each client that connects takes a descriptor, even if it stays silent.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return hard


def number_in(path: str | os.PathLike[str]) -> int | None:
    """The number that a kernel file contains; None if the file is missing or contains "max"."""
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None
