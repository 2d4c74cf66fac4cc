"""The model of the disk under the checkpoint store: real files in memory, and what may go wrong with them.

Stands in for the module `os` in `heronpy.storage`. Calls take time, may fail for lack of space, and are
places where a process may die. What was not synced may be gone after the power went: a file that was not
fsynced is empty, cut or whole; a name whose folder was not fsynced is there or not.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path
from typing import Any

from tests.sim.kernel import World, active_world, spend


class Disk:
    """The folder of the checkpoint store."""

    def __init__(self, world: World, root: Path) -> None:
        self.world = world
        self.root = root
        self.rng = world.chance("disk")
        self.full = False
        #: (probability, seconds) of an fsync that takes long.
        self.slow = (0.0, 0.0)
        #: Inode to content at its last fsync, and path to inode as the folders' fsyncs left it.
        self._content: dict[int, bytes] = {}
        self._names: dict[str, int] = {}
        self.lost = 0
        #: Files that were damaged on purpose.
        self.damaged = 0

    def call(self) -> None:
        """Any call that changes something."""
        process = self.world.current
        if process is not None:
            process.operate()
            spend(self.rng.uniform(5e-6, 1e-4))

    def check_space(self) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def synced(self, descriptor: int) -> None:
        """fsync has returned."""
        state = os.fstat(descriptor)
        if stat.S_ISDIR(state.st_mode):
            folder = os.readlink(f"/proc/self/fd/{descriptor}")
            for gone in [p for p in self._names if os.path.dirname(p) == folder and not os.path.lexists(p)]:
                del self._names[gone]
            with os.scandir(folder) as entries:
                for entry in entries:
                    self._names[entry.path] = entry.inode()
        else:
            with open(f"/proc/self/fd/{descriptor}", "rb") as file:
                self._content[state.st_ino] = file.read()

    def power_cut(self) -> None:
        """Data that was not synced may be gone. The caller kills the processes."""
        present = {str(p): p.lstat() for p in sorted(self.root.rglob("*"), key=str)}
        for path, state in present.items():
            if stat.S_ISDIR(state.st_mode):
                continue
            if self._names.get(path) != state.st_ino and self.rng.random() < 0.5:
                os.unlink(path)
                self.lost += 1
            elif state.st_ino not in self._content and self.rng.random() < 0.5:
                os.truncate(path, self.rng.randint(0, state.st_size))
                self.lost += 1
        for path, inode in sorted(self._names.items()):
            if not os.path.lexists(path) and inode in self._content and self.rng.random() < 0.5:
                # A removal or a rename that had not reached the disk.
                if os.path.isdir(os.path.dirname(path)):
                    Path(path).write_bytes(self._content[inode])
                    self.lost += 1
        self.world.trace.note("disk", f"lost {self.lost}")

    def damage(self) -> str:
        """Damage a file of a checkpoint permanently: changed, cut or gone (F23)."""
        files = sorted(p for p in self.root.rglob("*") if p.is_file() and not p.name.startswith("."))
        if not files:
            return "no file"
        path = self.rng.choice(files)
        how = self.rng.choice(("changed", "cut", "gone"))
        data = bytearray(path.read_bytes())
        # A power cut brings back neither the file nor what was in it.
        if how == "gone" or not data:
            self._names.pop(str(path), None)
            path.unlink()
        else:
            place = self.rng.randrange(len(data))
            data[place] ^= 0xFF
            bad = bytes(data if how == "changed" else data[:place])
            path.write_bytes(bad)
            self._content[path.stat().st_ino] = bad
        self.damaged += 1
        return f"{path.relative_to(self.root)} is {how}"

    def clear(self) -> None:
        """An empty disk for the next run."""
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)


class StorageOs:
    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    @staticmethod
    def open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & os.O_CREAT:
            disk = _disk()
            disk.call()
            disk.check_space()
        return os.open(path, flags, mode, dir_fd=dir_fd)

    @staticmethod
    def write(descriptor: int, data: Any) -> int:
        disk = _disk()
        disk.call()
        disk.check_space()
        size = len(data)
        if size > 1 and disk.rng.random() < 0.1:
            return os.write(descriptor, data[: disk.rng.randint(1, size)])
        return os.write(descriptor, data)

    @staticmethod
    def fsync(descriptor: int) -> None:
        disk = _disk()
        disk.call()
        often, long_s = disk.slow
        if often and disk.rng.random() < often:
            spend(disk.rng.uniform(0.0, long_s))
        disk.synced(descriptor)

    @staticmethod
    def rename(source: Any, target: Any) -> None:
        _disk().call()
        os.rename(source, target)

    @staticmethod
    def link(source: Any, target: Any) -> None:
        _disk().call()
        os.link(source, target)

    @staticmethod
    def urandom(size: int) -> bytes:
        return active_world().rng.randbytes(size)

    @staticmethod
    def getpid() -> int:
        process = active_world().current
        return process.pid if process is not None else 1


def _disk() -> Disk:
    disk: Disk = active_world().disk  # type: ignore[attr-defined]
    return disk
