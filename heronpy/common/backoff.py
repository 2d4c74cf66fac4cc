"""Exponential backoff, without a clock and without randomness. Pure.

The caller draws the jitter (a number from 0 to 1) so that decisions stay reproducible. Each delay
is twice the previous one, from `initial_s` up to `max_s`.
"""

from __future__ import annotations


def backoff_s(attempt: int, *, initial_s: float, max_s: float, jitter: float = 0.0) -> float:
    """Return the delay in seconds before retry number `attempt` (0 is the first); a `jitter` of 1 halves the delay."""
    if attempt < 0:
        raise ValueError(f"the attempt number is {attempt}; it must be zero or more")
    if not 0.0 <= jitter <= 1.0:
        raise ValueError(f"the jitter is {jitter}; it must be from 0 to 1")
    # A larger exponent would not fit into a float.
    return min(max_s, initial_s * 2.0 ** min(attempt, 500)) * (1.0 - jitter / 2.0)


class Backoff:
    """A backoff with state: call `next_s()` after each failure and `reset()` after a success."""

    __slots__ = ("attempt", "initial_s", "max_s")

    def __init__(self, initial_s: float, max_s: float) -> None:
        if initial_s < 0 or max_s < initial_s:
            raise ValueError(f"a backoff from {initial_s} s to {max_s} s is impossible; choose 0 <= initial_s <= max_s")
        self.initial_s = initial_s
        self.max_s = max_s
        #: Number of failures since the last success.
        self.attempt = 0

    def next_s(self, jitter: float = 0.0) -> float:
        """Count a failure, and return the seconds to wait."""
        delay_s = backoff_s(self.attempt, initial_s=self.initial_s, max_s=self.max_s, jitter=jitter)
        self.attempt += 1
        return delay_s

    def reset(self) -> None:
        """Start again from the first delay."""
        self.attempt = 0
