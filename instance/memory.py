"""The address space of a task: its limit, and a reserve for its last report.

Under `heron.instance.memory_limit_bytes` an allocation that does not fit raises MemoryError. The report of this error
needs memory, too, so a block is reserved in advance and freed for the report.
"""

from __future__ import annotations

import mmap
import resource

from heronpy.common.errors import ConfigError
from heronpy.common.units import format_bytes

_RESERVE_BYTES = 8 << 20
#: Bytes that a task needs beyond the memory mapped by the runtime at its start: threads, sockets, user code.
_LEAST_ROOM_BYTES = 64 << 20

_reserve: list[mmap.mmap] = []


def limit_address_space(limit_bytes: int) -> None:
    """Set the limit. Raises ConfigError if the runtime alone would not fit."""
    if not limit_bytes:
        return
    used = _mapped_bytes()
    if used + _LEAST_ROOM_BYTES > limit_bytes:
        raise ConfigError(
            f"heron.instance.memory_limit_bytes is {format_bytes(limit_bytes)}, but the runtime"
            f" maps {format_bytes(used)} before any user code runs;"
            f" set it to {format_bytes(used + _LEAST_ROOM_BYTES)} or more"
        )
    _reserve.append(mmap.mmap(-1, _RESERVE_BYTES))
    try:
        resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))
    except (ValueError, OSError) as error:
        raise ConfigError(
            f"heron.instance.memory_limit_bytes ({format_bytes(limit_bytes)}) cannot be set: {error};"
            " it may not exceed the hard limit 'ulimit -Hv'"
        ) from None


def release_reserve() -> None:
    """Free the reserve after a MemoryError, to make memory available for its report."""
    while _reserve:
        _reserve.pop().close()


def explain(error: BaseException) -> str:
    """Return the message of an exception; for a MemoryError under a limit, add the limit and the peak of the address
    space."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    text = str(error)
    if not isinstance(error, MemoryError) or limit == resource.RLIM_INFINITY:
        return text
    figures = f"address space limit {format_bytes(limit)}, peak {format_bytes(_peak_bytes())}"
    return f"{text} ({figures})" if text else figures


def _peak_bytes() -> int:
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmPeak:"))


def _mapped_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[0]) * resource.getpagesize()
