"""Identifies this host, so that files from one host are not mistaken for files from another host."""

from __future__ import annotations

import hashlib
import os
import zlib
from enum import Enum
from functools import cache

from msgspec import Struct


class Host(Struct, frozen=True):
    """A host, identified so that other hosts can recognise it."""

    name: str
    """Display name; not necessarily unique."""
    machine: str
    """Digest of the id of the installed system; "" if it has no id. Copies of an image share the id."""
    boot: str
    """Digest of the id of this boot; "" if the id is hidden."""

    def is_same(self, other: Host) -> bool:
        """Whether both are the same host, possibly rebooted in between. Containers that share a kernel are one host."""
        if self.boot and self.boot == other.boot:
            return True
        return bool(self.machine) and (self.machine, self.name) == (other.machine, other.name)

    def to_text(self) -> str:
        """Encode the host as one line for `from_text`."""
        return f"{self.machine or '-'} {self.boot or '-'} {self.name}"

    @classmethod
    def from_text(cls, text: str) -> Host | None:
        """Decode a host from a line; returns None if the line is empty or damaged."""
        parts = text.strip().split(" ", 2)
        if len(parts) != 3:
            return None
        machine, boot, name = ("" if part == "-" else part for part in parts)
        return cls(name, machine, boot)


@cache
def this_host() -> Host:
    return Host(
        os.uname().nodename,
        _digest("/etc/machine-id"),
        _digest("/proc/sys/kernel/random/boot_id"),
    )


def _digest(path: str) -> str:
    """Return a digest of a one-line file, whose content may be confidential; "" if the file is missing."""
    try:
        with open(path, "rb") as file:
            content = file.read(256).strip()
    except OSError:
        return ""
    return hashlib.sha256(content).hexdigest()[:16] if content else ""


@cache
def clock_id() -> int:
    """Return a nonzero 32-bit number that identifies the monotonic clock of this host; a reboot changes it."""
    with open("/proc/sys/kernel/random/boot_id", "rb") as file:
        return zlib.crc32(file.read().strip()) or 1


class Life(Enum):
    """Whether a process is alive, as far as this process can tell."""

    LIVES = "lives"
    ENDED = "ended"
    #: The host has been rebooted since the process started.
    REBOOTED = "rebooted"
    #: The process belongs to another host or to another namespace of process ids.
    UNKNOWN = "unknown"


class KnownProcess(Struct, frozen=True):
    """A process, identified so that another process can recognise it."""

    pid: int
    started: int
    """Start time in clock ticks since the boot."""
    namespace: int
    """Namespace of the process id; see `pid_namespace`."""
    host: str
    """The host in the format of `Host.to_text`."""

    @classmethod
    def of(cls, pid: int) -> KnownProcess:
        """Identify a process on this host."""
        return cls(pid, started_at(pid), pid_namespace(), this_host().to_text())

    @property
    def host_name(self) -> str:
        """The host name to show to users; "" if unknown."""
        host = Host.from_text(self.host)
        return host.name if host is not None else ""

    def life(self) -> Life:
        """Determine whether the process is alive."""
        host, here = Host.from_text(self.host), this_host()
        if host is None or not host.is_same(here):
            return Life.UNKNOWN
        if host.boot and here.boot and host.boot != here.boot:
            return Life.REBOOTED
        if self.namespace != pid_namespace():
            return Life.UNKNOWN
        return Life.LIVES if 0 < self.started == started_at(self.pid) else Life.ENDED


def pid_namespace() -> int:
    """Return the number of this process's pid namespace, within which process ids are unique; 0 if unknown."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def started_at(pid: int) -> int:
    """Return the start time of a process in clock ticks since boot; 0 if the process does not exist."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
        return 0 if fields[0] in (b"Z", b"X") else int(fields[19])
    except (OSError, ValueError, IndexError):
        return 0
