"""How long tuples wait for company before they are sent as a frame. Pure.

A frame costs the same whether it holds one tuple or many, because it wakes up a thread at every step of its way. So
at everyday rates the number of frames is what is bounded: a task that sends rarely sends at once; one that sends
often waits until `longest_s` after its last send, and the tuples that come meanwhile travel together. A tuple
waits for at most `longest_s`, whatever the rate, and there are at most 1 / `longest_s` sends a second.

This is the generic cell rate algorithm (ITU-T I.371) with a tolerance of `BURST` sends: what comes after silence goes
out at once, several times in a row, before the bound takes hold.
"""

from __future__ import annotations

#: Sends in a row, after silence, that do not wait.
BURST = 4


class Linger:
    """When the tuples of one task may be sent."""

    __slots__ = ("_longest_s", "due")

    def __init__(self, longest_s: float) -> None:
        """`longest_s`: the longest wait of a tuple; 0 sends everything at once."""
        self._longest_s = longest_s
        #: The moment from which tuples may be sent, on the clock of `sent`.
        self.due = float("-inf")

    def sent(self, now: float) -> None:
        """Tuples were sent; each send takes its share of the time, of which silence saves up a little."""
        self.due = max(self.due, now - (BURST - 1) * self._longest_s) + self._longest_s
