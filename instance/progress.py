"""What a task has done so far, as its own thread counts it."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(slots=True)
class Progress:
    """Counters that the control thread may read at any time."""

    emitted: int = 0
    executed: int = 0
    acked: int = 0
    failed: int = 0
    #: Wall time, emitted, executed, acked, failed: of one moment, replaced as a whole.
    counted: tuple[float, int, int, int, int] = (0.0, 0, 0, 0, 0)
    in_tuples: int = 0
    in_bytes: int = 0
    out_tuples: int = 0
    out_bytes: int = 0
    pending: int = 0
    #: Tuples given up: kept as dead letters, or not processed, not kept and not sent again.
    dead_letters: int = 0
    #: Dead letters of earlier processes of this task.
    letters_before: int = 0
    lost: int = 0
    turned_at: float = 0.0
    resting: bool = False
    #: A spout whose class does not override fail().
    forgets_failed: bool = False
    #: A spout whose state goes back to a checkpoint with the others.
    rewinds: bool = False
    #: With acks or checkpoints spouts send again what a link loses.
    sends_again: bool = False
    #: With acks: tuples were sent that belong to no tuple tree, so nobody sends them again.
    untracked: bool = False

    def count(self, emitted: int) -> None:
        """Take the counters at one moment; for the task's thread, between two calls of user code or within one."""
        self.emitted = emitted
        self.counted = (time.time(), emitted, self.executed, self.acked, self.failed)

    def counts(self) -> tuple[float, int, int, int, int]:
        """The counters of one moment, with that moment: now while the task rests, else when it last counted."""
        now, counted = time.time(), self.counted
        # The task replaces `counted` before each rest: the same tuple means that it is still the same rest.
        rests = self.resting and counted[0] <= now
        return (now, *counted[1:]) if rests and self.counted is counted else counted

    def loop_age_s(self) -> float:
        """Seconds since the loop last made a turn; 0 while it waits."""
        return 0.0 if self.resting else max(0.0, time.monotonic() - self.turned_at)
