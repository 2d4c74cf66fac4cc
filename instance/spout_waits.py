"""How long a spout waits: at its limit of pending tuples, and where there is nothing to emit. Pure.

At `topology.max.spout.pending` it does not continue after each acked tuple, but after enough of them. Continuing at
once would send a frame per ack message, those frames would be acked one by one, and frames would stay small as long as
the load lasts. So a spout that has reached its limit waits until a quarter of it is free, or a whole batch if that is
less. Three quarters are still in flight meanwhile, so no bolt starves. The wait is bounded, because bolts may hold back
tuples until more of them arrive.
"""

from __future__ import annotations

from typing import NamedTuple

#: The longest wait with some room, in seconds.
WAIT_MAX_S = 0.005
#: Below this limit the spout continues after each tuple: there may be that many idle tasks waiting for one.
SMALL_LIMIT = 64
OPEN, FULL = 0.0, float("inf")
#: Pauses are this part of the silence, up to `SOON_S`.
SOON_GROWTH, SOON_S = 0.05, 0.1
#: Of a longer silence they are this part.
LATER_GROWTH = 0.02
#: While fewer tuples than the first come at a time, the shortest pause is this many times longer: to wake up for one
#: tuple costs nearly as much as to wake up for several.
SEVERAL, LONGER = 4, 2


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


def poll_pause_s(silent_s: float, shortest_s: float, longest_s: float) -> float:
    """The pause before the next call of a spout that has emitted nothing for `silent_s`; between the limits.

    While tuples keep coming, each call that emits nothing is followed by a short pause, and pauses grow with the time
    without a tuple: soon to a tenth of a second, and later slowly. So a new record waits for at most a twentieth of the
    silence before it, and no longer than `SOON_S` unless that silence was long; then for at most a fiftieth of it. A
    spout whose source is silent for good costs few wake-ups: each costs more the longer the process has slept.
    """
    grown_s = max(min(silent_s * SOON_GROWTH, SOON_S), silent_s * LATER_GROWTH)
    return min(longest_s, max(shortest_s, grown_s))
