"""How often a spout that says nothing about its next call is polled. Pure.

While tuples keep coming, each call that emits nothing is followed by a short pause, and pauses grow with the time
without a tuple: soon to a tenth of a second, and later slowly. So a new record waits for at most a twentieth of the
silence before it, and no longer than `SOON_S` unless that silence was long; then for at most a fiftieth of it. A
spout whose source is silent for good costs few wake-ups: each costs more the longer the process has slept.
"""

from __future__ import annotations

#: Pauses are this part of the silence, up to `SOON_S`.
SOON_GROWTH, SOON_S = 0.05, 0.1
#: Of a longer silence they are this part.
LATER_GROWTH = 0.02
#: While fewer tuples than the first come at a time, the shortest pause is this many times longer: to wake up for one
#: tuple costs nearly as much as to wake up for several.
SEVERAL, LONGER = 4, 2


def poll_pause_s(silent_s: float, shortest_s: float, longest_s: float) -> float:
    """The pause before the next call of a spout that has emitted nothing for `silent_s`; between the limits."""
    grown_s = max(min(silent_s * SOON_GROWTH, SOON_S), silent_s * LATER_GROWTH)
    return min(longest_s, max(shortest_s, grown_s))
