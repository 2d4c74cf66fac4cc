"""A small disk: a tmpfs over one folder that can be filled and emptied.

The disk is mounted in a private mount namespace of this process and its children, so other processes do not see it, and
it vanishes with these processes. Linux only; needs root, or a kernel that allows users to create namespaces.
"""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from types import TracebackType

from heronpy.common.folders import make_folders
from heronpy.loadtest.errors import LabError

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_REC, _MS_PRIVATE, _MNT_DETACH = 1 << 14, 1 << 18, 2
_FILLER = "filler"

_libc = ctypes.CDLL(None, use_errno=True)
_private = False


def _call(what: str, *arguments: object) -> None:
    """Make a system call. Raises LabError if it does not return 0."""
    if getattr(_libc, what)(*arguments):
        reason = os.strerror(ctypes.get_errno())
        raise LabError(
            f"{what} failed ({reason}): a small disk needs root, or a kernel that allows users to create namespaces"
        )


def enter_private_mounts() -> None:
    """Make mounts of this process private to it and its children."""
    global _private
    if _private:
        return
    user, group = os.getuid(), os.getgid()
    _call("unshare", _CLONE_NEWNS | (_CLONE_NEWUSER if user else 0))
    if user:
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")
    _call("mount", b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
    _private = True


class SmallDisk:
    """While entered, the folder is on a disk of the given size."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        self.folder = folder
        self._size = size_bytes

    def __enter__(self) -> SmallDisk:
        enter_private_mounts()
        make_folders(self.folder)
        options = f"size={self._size},mode=0700".encode()
        _call("mount", b"tmpfs", os.fsencode(self.folder), b"tmpfs", 0, options)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # Detach the mount, because processes may still write logs for a moment.
        _call("umount2", os.fsencode(self.folder), _MNT_DETACH)

    def fill(self) -> None:
        """Fill all free space."""
        filler = os.open(self.folder / _FILLER, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            for size in (1 << 20, 1 << 12, 1):
                _write_all(filler, bytes(size))
        finally:
            os.close(filler)

    def empty(self) -> None:
        (self.folder / _FILLER).unlink(missing_ok=True)


def _write_all(file: int, block: bytes) -> None:
    while True:
        try:
            os.write(file, block)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            return
