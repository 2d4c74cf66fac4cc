"""Turns of processes that share one file of which SQLite lets one at a time write.

SQLite tells nobody when the file is free: who waits looks again and again. So that who has waited long is soon next,
it looks the more often the longer it waits, and who comes while others wait does not try before it has paused once.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

#: Between two looks whether it is one's turn, at first; who has waited so long pauses half as long, and so on.
TURN_S: Final = (0.0005, 0.003)
HALVED_S: Final = 0.004


def pause_s(waited_s: float, drawn_s: float) -> float:
    """The next pause of who has waited so long, from one that was drawn from `TURN_S`; not below its lower end."""
    return max(TURN_S[0], drawn_s / (1 + waited_s / HALVED_S))


class Waiters:
    """The processes that wait for a turn in a folder: a lock that all of them share, which who dies gives up.

    It only makes processes polite: what must not happen at once, SQLite keeps apart. One per connection and process.
    """

    def __init__(self, folder: Path) -> None:
        self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def is_empty(self) -> bool:
        """Whether nobody waits; not to be asked by who does."""
        if not self._lock(fcntl.LOCK_EX):
            return False
        self.leave()
        return True

    def join(self) -> None:
        """Wait, until `leave`; idempotent. Who asks at this moment keeps one out: join again at the next look."""
        self._lock(fcntl.LOCK_SH)

    def leave(self) -> None:
        """Have a turn, or give up."""
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """In a child it leaves the lock of its parent alone."""
        os.close(self._descriptor)

    def _lock(self, how: int) -> bool:
        try:
            fcntl.flock(self._descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
