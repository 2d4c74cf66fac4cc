"""When a spout at `topology.max.spout.pending` goes on: not for each tuple that is acked, but for enough of them.

Going on at once would send a frame for each message of acks, those frames would be acked one by one, and frames would
stay as small as that for as long as the load lasts. So a spout that has reached its limit waits until a quarter of
it is free, or a whole batch if that is less. Three quarters are still on their way meanwhile, so nobody waits for
the spout. The wait is bounded, because bolts may hold back tuples until more of them come. Pure.
"""

from __future__ import annotations

from typing import NamedTuple

#: The longest wait with some room, in seconds.
WAIT_MAX_S = 0.005
#: With a lower limit each tuple is worth going on: there may be as many tasks that have nothing else to do.
SMALL_LIMIT = 64
OPEN, FULL = 0.0, float("inf")


class Room(NamedTuple):
    """What a spout may emit."""

    tuples: int
    resume_at: float
    """OPEN; FULL after the limit was reached, until there is room; then the time when it goes on in any case."""


def room(limit: int, pending: int, batch: int, resume_at: float, now: float) -> Room:
    """The room of a spout with so many `pending` tuples of its `limit` (at least 1), which sends `batch` at a time.

    `resume_at` is that of the answer before, OPEN at first; `now` is in monotonic seconds.
    """
    free = limit - pending
    if free <= 0:
        return Room(0, FULL)
    enough = min(batch, limit // 4) if limit >= SMALL_LIMIT else 1
    resume_at = min(resume_at, now + WAIT_MAX_S)
    if free >= enough or now >= resume_at:
        return Room(free, OPEN)
    return Room(0, resume_at)
