"""Which processes share a monotonic clock: those of one running kernel."""

from __future__ import annotations

import zlib
from functools import cache


@cache
def clock_id() -> int:
    """A number of 32 bits, not 0, of the monotonic clock of this host; after a reboot it is another one."""
    with open("/proc/sys/kernel/random/boot_id", "rb") as file:
        return zlib.crc32(file.read().strip()) or 1
