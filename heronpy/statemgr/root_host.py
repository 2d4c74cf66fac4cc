"""Whose host a state in files is: its locks hold between the processes of one host only.

The root records the host that uses it. Another host is refused where it could use it at the same time: on a file system
that several hosts reach. On any other, a disk has moved or a container was made anew, and the record follows.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from heronpy.common.disk_space import is_full_error
from heronpy.common.errors import ConfigError
from heronpy.common.host import Host, this_host

FILE: Final = ".host"
_LINE_MAX_BYTES: Final = 1024
#: File systems that one kernel at a time can mount for writing; any other may be shared.
OF_ONE_HOST: Final = frozenset(
    """aufs bcachefs btrfs exfat ext2 ext3 ext4 f2fs fuseblk hfsplus jfs ntfs3 overlay ramfs reiserfs tmpfs ubifs vfat
    xfs zfs""".split()
)
MOUNTS: Final = "/proc/self/mountinfo"


class OtherHostError(ConfigError):
    """The state belongs to another host."""


def claim(root: Path) -> None:
    """Record that this host uses the state below a folder; OtherHostError when another host does."""
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
        f"the state below {root} belongs to host {found.name}, and locks on files do not hold between hosts, so host"
        f" {mine.name} does not open it; set heron.statemgr.type to zookeeper, or heron.statemgr.root to a folder of"
        f" this host; if {found.name} is gone for good, remove {file}"
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
    """The type of the file system that holds a folder; "" when the kernel does not say."""
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
                # Of mounts at one point the last one is on top.
                if len(point) >= length and os.path.commonpath((path, point)) == point:
                    found, length = after.split()[0], len(point)
    except OSError:
        return ""
    return found


def _unescaped(text: str) -> str:
    """A path of the mounts, where some characters are octal."""
    for code in ("\\040", "\\011", "\\012", "\\134"):
        text = text.replace(code, chr(int(code[1:], 8)))
    return text
