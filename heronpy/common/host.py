"""Which host this is, so that what one host wrote is not taken for another's."""

from __future__ import annotations

import hashlib
import os
import zlib
from functools import cache

from msgspec import Struct


class Host(Struct, frozen=True):
    """A host as others can know it again."""

    name: str
    """For people; several hosts may have the same."""
    machine: str
    """Digest of what the installed system is called; "" when it has no id. Copies of an image share it."""
    boot: str
    """Digest of what this run of the kernel is called; "" when it is hidden."""

    def is_same(self, other: Host) -> bool:
        """Whether both are one host, which may have been started again since. Containers of one kernel are one host."""
        if self.boot and self.boot == other.boot:
            return True
        return bool(self.machine) and (self.machine, self.name) == (other.machine, other.name)

    def to_text(self) -> str:
        """One line for `from_text`."""
        return f"{self.machine or '-'} {self.boot or '-'} {self.name}"

    @classmethod
    def from_text(cls, text: str) -> Host | None:
        """The host of a line; None without a host, or if the line is damaged."""
        parts = text.strip().split(" ", 2)
        if len(parts) != 3:
            return None
        machine, boot, name = ("" if part == "-" else part for part in parts)
        return cls(name, machine, boot)


@cache
def this_host() -> Host:
    """The host of this process."""
    return Host(
        os.uname().nodename,
        _digest("/etc/machine-id"),
        _digest("/proc/sys/kernel/random/boot_id"),
    )


def _digest(path: str) -> str:
    """A digest of a file of one line, which may be confidential; "" without it."""
    try:
        with open(path, "rb") as file:
            content = file.read(256).strip()
    except OSError:
        return ""
    return hashlib.sha256(content).hexdigest()[:16] if content else ""


@cache
def clock_id() -> int:
    """A number of 32 bits, not 0, of the monotonic clock of this host; after a reboot it is another one."""
    with open("/proc/sys/kernel/random/boot_id", "rb") as file:
        return zlib.crc32(file.read().strip()) or 1
