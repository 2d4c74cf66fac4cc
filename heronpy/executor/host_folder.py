"""The folders of one submission of a container on its host, and the folders of dead predecessors.

`<home>/containers/<topology id>.<container>.<submission>@<host>/` holds everything except the sockets, whose paths must
be short, and the packages, which all containers of the host share. Each folder has a lock that the container's first
process holds; a folder with a free lock has no living owner. Locks do not work across hosts, so the names of folders
contain a digest of their host; if hosts share a home, each host examines only its own folders.

Invariants: every folder is private to this user (mode 0700, not a link); a folder is not removed while its owner may be
alive.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from heronpy.common.errors import ConfigError, DeadlineError
from heronpy.common.flock import try_flock
from heronpy.common.folders import check_root, open_private
from heronpy.common.host import Host, this_host
from heronpy.net.private import check_private, make_private
from heronpy.plan.launch import sockets_dir

log = logging.getLogger("heronpy.executor")

_LOCK: Final = "lock"
#: How long to wait for the lock, which is held only while folders are made and removed.
LOCK_WAIT_S: Final = 60.0
#: Number of attempts to remove a folder, because a file system may still show a file of a process that has just ended.
_REMOVE_TRIES: Final = 5
_FIX: Final = "set heron.engine.home to a folder that you can write to on every host"


def home_of(given: str) -> Path:
    """This user's folder on this host: the operator's folder `given`, or a folder below the folder for temporary files.

    A missing folder is created. Raises ConfigError if another user could replace the content.
    """
    home = Path(given) if given else Path(tempfile.gettempdir()) / f"heron-{os.getuid()}"
    if not home.is_absolute():
        raise ConfigError(f"heron.engine.home is {given!r} but must be an absolute path")
    check_root(home.parent, "the folder above heron.engine.home", sticky=True)
    try:
        make_private(home)
    except OSError as error:
        raise ConfigError(f"host folder {home} cannot be created: {error.strerror}; {_FIX}") from None
    return home


class HostFolder:
    """The folders of one submission. While this object is open, other processes do not remove them."""

    def __init__(self, home: Path, topology_id: str, container: int, submission: int) -> None:
        self._all = home / "containers"
        name = f"{topology_id}.{container}.{submission}"
        self.path = self._all / f"{name}@{_host()}"
        self.packages = home / "packages"
        self.sockets = _sockets_of(name)
        self._lock = -1

    def open(self) -> None:
        """Create the folders, and remove those of dead predecessors on this host; raises ConfigError if that fails."""
        try:
            self._open()
        except OSError as error:
            what = f"{error.filename or self.path} cannot be created or used: {error.strerror}"
            raise ConfigError(f"{what}; {_FIX}") from None

    def _open(self) -> None:
        for folder in (self._all, self.packages):
            make_private(folder)
        with self._making():
            self._sweep()
            try:
                os.mkdir(self.path, 0o700)
            except FileExistsError:
                raise ConfigError(f"{self.path} exists, because another process runs this submission") from None
            descriptor = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(descriptor, this_host().to_text().encode())
            self._lock = descriptor
            check_root(self.sockets.parent.parent, "the folder for temporary files", sticky=True)
            for folder in (self.sockets.parent, self.sockets):
                make_private(folder)

    def _sweep(self) -> None:
        for folder in sorted(self._all.iterdir()):
            name, _, host = folder.name.rpartition("@")
            if host != _host() or folder.is_symlink() or not folder.is_dir():
                continue
            descriptor = _take_over(folder)
            if descriptor is None:
                continue
            try:
                log.info("removing the files of an ended container in %s", folder)
                _remove(_sockets_of(name))
                _remove(folder)
            finally:
                os.close(descriptor)

    @contextmanager
    def _making(self) -> Iterator[None]:
        """Hold this host's lock for creating and removing folders."""
        descriptor = open_private(self._all / ".lock", os.O_RDWR)
        deadline = time.monotonic() + LOCK_WAIT_S
        try:
            while not try_flock(descriptor):
                if time.monotonic() > deadline:
                    raise DeadlineError(
                        f"{self._all}/.lock has been locked for {LOCK_WAIT_S:g} s; look for a stopped process"
                    )
                time.sleep(0.02)
            yield
        finally:
            os.close(descriptor)

    def close(self) -> list[str]:
        """Remove everything except the packages; returns the paths that could not be removed. Idempotent."""
        if self._lock < 0:
            return []
        left = []
        for folder in (self.sockets, self.path):
            try:
                _remove(folder)
            except OSError as error:
                left.append(f"{folder} ({error.strerror})")
        os.close(self._lock)
        self._lock = -1
        with contextlib.suppress(OSError):  # other containers may need it
            os.rmdir(self.sockets.parent)
        return left


def _host() -> str:
    """An id of this host that survives a reboot."""
    here = this_host()
    return hashlib.sha256(f"{here.machine or here.boot} {here.name}".encode()).hexdigest()[:8]


def _sockets_of(name: str) -> Path:
    return sockets_dir(name)


def _take_over(folder: Path) -> int | None:
    """Lock a folder whose owner on this host is dead; returns None for all other folders."""
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        # The owner ended before it created the lock (only one process creates folders at a time), or a removal was
        # interrupted.
        check_private(folder)
        return os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    owner = Host.from_text(os.pread(descriptor, 256, 0).decode(errors="replace"))
    if (owner is None or owner.is_same(this_host())) and try_flock(descriptor):
        return descriptor
    os.close(descriptor)
    return None


def _remove(folder: Path) -> None:
    """Remove a folder, even if another process is also removing it; raises OSError if that fails."""
    for left in reversed(range(_REMOVE_TRIES)):
        try:
            shutil.rmtree(folder)
        except OSError:
            if not os.path.lexists(folder):
                return
            if not left:
                raise
            time.sleep(0.05)
        else:
            return
