"""Limits for writing checkpoints of all topologies to one store.

Both limits are kept in files of the store, so they apply to all processes of a host: a writer holds the lock of one of
N slot files while it writes, and charges its bytes to an account, which has the time at which the next byte may be
written. The kernel releases the lock of a dead holder, and an account with a time in the far future, as after a reboot,
is reset. So no writer waits for a dead process.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from heronpy.common.flock import locked, open_lock, try_flock, unlock
from heronpy.common.folders import make_folders

_ACCOUNT: Final = struct.Struct("<d")
#: Maximum debt of an account in seconds; a larger value means that the clock was reset.
DEBT_MAX_S: Final = 60.0
#: Interval in seconds at which a waiting writer checks for a slot.
SLOT_LOOK_S: Final = 0.02


class StoreLimits(Struct, frozen=True):
    """Limits of the store at `root`; 0 means no limit."""

    root: Path
    writers: int = 0
    bytes_per_s: float = 0.0

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Wait for a writer's slot, and hold the slot within the block."""
        if not self.writers:
            yield
            return
        descriptor = self._take_slot()
        try:
            yield
        finally:
            unlock(descriptor)

    def _take_slot(self) -> int:
        folder = self._folder()
        while True:
            for number in range(self.writers):
                descriptor = open_lock(folder / f"writer-{number}")
                if try_flock(descriptor):
                    return descriptor
                os.close(descriptor)
            # Do not block on one slot, because another may become free first.
            time.sleep(SLOT_LOOK_S)

    def pay(self, count: int) -> None:
        """Wait until `count` bytes may be written."""
        if self.bytes_per_s > 0:
            time.sleep(self.wait_s(count, time.monotonic()))

    def wait_s(self, count: int, now: float) -> float:
        """Charge bytes to the account; return the seconds to wait before writing them."""
        if self.bytes_per_s <= 0:
            return 0.0
        cost = count / self.bytes_per_s
        with locked(self._folder() / "account") as descriptor:
            data = os.pread(descriptor, _ACCOUNT.size, 0)
            free_at = _ACCOUNT.unpack(data)[0] if len(data) == _ACCOUNT.size else now
            # The time is invalid, in the past, or too far in the future: start now.
            if not now <= free_at <= now + DEBT_MAX_S:
                free_at = now
            # A late writer still pays, up to the limit of the account.
            os.pwrite(descriptor, _ACCOUNT.pack(min(free_at + cost, now + DEBT_MAX_S)), 0)
        return free_at - now

    def _folder(self) -> Path:
        folder = self.root / ".limits"
        make_folders(folder)
        return folder
