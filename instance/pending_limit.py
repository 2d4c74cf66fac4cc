"""When a spout at `topology.max.spout.pending` continues: not after each acked tuple, but after enough of them. Pure.

Continuing at once would send a frame per ack message, those frames would be acked one by one, and frames would stay
small as long as the load lasts. So a spout that has reached its limit waits until a quarter of it is free, or a whole
batch if that is less. Three quarters are still in flight meanwhile, so no bolt starves. The wait is bounded, because
bolts may hold back tuples until more of them arrive.
"""

from __future__ import annotations

from typing import NamedTuple

#: The longest wait with some room, in seconds.
WAIT_MAX_S = 0.005
#: Below this limit the spout continues after each tuple: there may be that many idle tasks waiting for one.
SMALL_LIMIT = 64
OPEN, FULL = 0.0, float("inf")


class Room(NamedTuple):
    """What a spout may emit."""

    tuples: int
    resume_at: float
    """OPEN; FULL once the limit is reached, until there is room; then the time when it continues in any case."""


def room(limit: int, pending: int, batch: int, resume_at: float, now: float) -> Room:
    """The room of a spout with `pending` tuples out of `limit` (at least 1), which sends `batch` at a time.

    `resume_at` is from the previous answer, OPEN at first; `now` is in monotonic seconds.
    """
    free = limit - pending
    if free <= 0:
        return Room(0, FULL)
    enough = min(batch, limit // 4) if limit >= SMALL_LIMIT else 1
    resume_at = min(resume_at, now + WAIT_MAX_S)
    if free >= enough or now >= resume_at:
        return Room(free, OPEN)
    return Room(0, resume_at)
