"""File locks, which a process holds until it releases them or dies, and the record of the host that uses a state.

The root folder of a state in files records the host that uses the state. If several hosts can mount the file system,
other hosts are refused, because two hosts could use the state at the same time. On any other file system the record is
replaced, because a new host means that the disk was moved or the container recreated.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from heronpy.common.disk_space import is_full_error
from heronpy.common.errors import ConfigError
from heronpy.common.flock import lock_file, try_flock
from heronpy.common.host import Host, this_host


def try_lock(file: Path) -> int:
    """Try to take the lock; returns its descriptor, or -1 if another process holds it.

    If the disk is too full to create a file, the folder of the locks is locked instead. All other processes that try to
    take this lock do the same.
    """
    try:
        descriptor = lock_file(file)
    except OSError as error:
        if not is_full_error(error):
            raise
    else:
        if descriptor >= 0:
            with suppress(OSError):  # on a full disk, the holder stays unknown
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        return descriptor
    descriptor = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    if try_flock(descriptor):
        return descriptor
    os.close(descriptor)
    return -1


def is_directory(descriptor: int) -> bool:
    """Whether the lock is on a folder, which must not be removed on release."""
    return stat.S_ISDIR(os.fstat(descriptor).st_mode)


def holder(file: Path) -> str:
    """Describe the holder of a lock, for messages."""
    with suppress(OSError, ValueError):
        return f"process {int(file.read_text())}"
    return "another process"


FILE: Final = ".host"
_LINE_MAX_BYTES: Final = 1024
#: File systems that only one kernel at a time can mount for writing; other file systems may be shared.
OF_ONE_HOST: Final = frozenset(
    """aufs bcachefs btrfs exfat ext2 ext3 ext4 f2fs fuseblk hfsplus jfs ntfs3 overlay ramfs reiserfs tmpfs ubifs vfat
    xfs zfs""".split()
)
MOUNTS: Final = "/proc/self/mountinfo"


class OtherHostError(ConfigError):
    """The state belongs to another host."""


def claim_root(root: Path) -> None:
    """Record that this host uses the state below a folder. Raises OtherHostError if another host uses it."""
    file, mine = root / FILE, this_host()
    if _recorded(file) is None:
        _record(file, mine, os.link)  # the first of two hosts wins
    found = _recorded(file)
    if found == mine:
        return
    if found is None or found.is_same(mine) or file_system_of(root) in OF_ONE_HOST:
        _record(file, mine, os.replace)
        return
    raise OtherHostError(
        f"the state below {root} belongs to host {found.name}, and file locks do not work between hosts, so host"
        f" {mine.name} does not open it; set heron.statemgr.type to zookeeper, or heron.statemgr.root to a folder of"
        f" this host; if {found.name} no longer exists, remove {file}"
    )


def _recorded(file: Path) -> Host | None:
    try:
        with open(file, "rb") as opened:
            return Host.from_text(opened.read(_LINE_MAX_BYTES).decode(errors="replace"))
    except FileNotFoundError:
        return None


def _record(file: Path, host: Host, put: Callable[[Path, Path], None]) -> None:
    draft = file.with_name(f"{FILE}.{os.getpid()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(host.to_text() + "\n")
        with suppress(FileExistsError):
            put(draft, file)
    except OSError as error:
        if not is_full_error(error):  # stopping a topology must work on a full disk
            raise
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def file_system_of(folder: Path) -> str:
    """Return the type of the file system of a folder; "" if the kernel does not report it."""
    path = os.path.realpath(folder)
    found, length = "", -1
    try:
        with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as mounts:
            for line in mounts:
                before, _, after = line.partition(" - ")
                parts = before.split()
                if len(parts) < 5 or not after:
                    continue
                point = _unescaped(parts[4])
                # If several file systems are mounted at one point, the last one is visible.
                if len(point) >= length and os.path.commonpath((path, point)) == point:
                    found, length = after.split()[0], len(point)
    except OSError:
        return ""
    return found


def _unescaped(text: str) -> str:
    """Decode a path from the mount table, which contains some characters as octal escapes."""
    for code in ("\\040", "\\011", "\\012", "\\134"):
        text = text.replace(code, chr(int(code[1:], 8)))
    return text
