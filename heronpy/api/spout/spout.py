"""The base class of the spouts that users write."""

from __future__ import annotations

import math
import os
import stat
from typing import TYPE_CHECKING, Any, Protocol

from heronpy.api.spout.base_spout import BaseSpout

if TYPE_CHECKING:
    from heronpy.api.topology_context import TopologyContext


class HasFileno(Protocol):
    """Anything with a file descriptor: a socket, a pipe, a subprocess's output."""

    def fileno(self) -> int:
        """Return the number of the file descriptor."""


class Spout(BaseSpout):
    """A source of tuples. `outputs` lists its output fields and streams; `next_tuple` emits tuples."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Called once, before any other method. `config` holds Python values (int, bool, ...)."""

    def close(self) -> None:
        """Called when the task ends normally. A process that is killed does not call it."""

    def next_tuple(self) -> None:
        """Emit zero or more tuples, and return soon.

        `wait`, `wait_readable` and `busy` determine when it is called again. Without them it is polled: about a
        thousand times a second while it emits, and less and less often while it emits nothing. The pause
        is at most a twentieth of the idle time, and at most `heron.instance.spout_idle_max_ms`.
        """
        raise NotImplementedError(f"spout {type(self).__name__} does not define next_tuple(); define it to emit tuples")

    def wait(self, seconds: float) -> None:
        """Postpone the next call to `next_tuple` by this many seconds.

        `seconds` is 0 or more and may be a fraction. Call it from `next_tuple`; it affects only the next call.
        Acks, fails and checkpoints are not postponed. If `wait_readable` is also called, whichever event comes first
        ends the wait. The next call may be up to `heron.instance.linger_max_us` late, if its tuples would linger that
        long anyway. The next `wait` then counts from the intended time of the late call, so that the average rate stays
        as intended. Raises ValueError unless `seconds` is finite and not negative.
        """
        if not isinstance(seconds, int | float) or not math.isfinite(seconds) or seconds < 0:
            raise ValueError(f"wait({seconds!r}): give a number of seconds that is finite and not negative")
        self.delegate.wait(float(seconds))

    def wait_readable(self, fd: int | HasFileno) -> None:
        """Postpone the next call to `next_tuple` until this file descriptor is readable.

        `fd` is the number of an open descriptor, or an object with `fileno()`, such as a socket or a pipe. A
        descriptor whose other end is closed is readable. Call it from `next_tuple`; it affects only the next call.
        The call may come earlier, for example after an emit, an ack or a fail, so read without blocking. Data that a
        library has already read into its own buffer does not make the descriptor readable: read all of that buffer
        first. Raises ValueError if `fd` is not an open descriptor, and for a regular file, which is always readable.
        """
        self.delegate.wait_readable(_descriptor(fd))

    def busy(self) -> None:
        """Request an immediate call to `next_tuple`, although this call emitted nothing.

        Call it from `next_tuple`; it affects only the next call. It does not cancel a `wait` of the same call.
        """
        self.delegate.busy()

    def ack(self, tup_id: Any) -> None:
        """Called when the tuple with this id is fully processed."""

    def fail(self, tup_id: Any) -> None:
        """Called when the tuple with this id has failed or timed out."""

    def activate(self) -> None:
        """Called when a paused topology is activated."""

    def deactivate(self) -> None:
        """Called when the topology is paused. `next_tuple` is not called again until `activate`."""


def _descriptor(fd: object) -> int:
    """Return the number of an open file descriptor that can be waited for."""
    fileno = getattr(fd, "fileno", None)
    try:
        number = fileno() if callable(fileno) else fd
        if not isinstance(number, int) or isinstance(number, bool):
            raise ValueError
        mode = os.fstat(number).st_mode
    except (OSError, OverflowError, ValueError):
        raise ValueError(
            f"wait_readable({fd!r}): give an open file descriptor, or an object with a fileno() method"
        ) from None
    if stat.S_ISREG(mode):
        raise ValueError(f"wait_readable({fd!r}): a regular file can always be read; use wait(seconds) to follow it")
    return number
