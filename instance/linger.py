"""How long tuples wait to be batched into a frame. Pure.

A frame costs the same whether it holds one tuple or many, because it wakes up a thread at every hop. So the rate of
frames is bounded: a task that sends rarely sends at once; one that sends often waits until `longest_s` after its last
send, and tuples emitted meanwhile travel together. A tuple waits at most `longest_s` at any rate, and there are at most
1 / `longest_s` sends a second.

This is the generic cell rate algorithm (ITU-T I.371) with a tolerance of `BURST` sends: after silence, the first
`BURST` sends go out at once.
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
        """Tuples were sent: each send uses up `longest_s`, and silence earns credit for a few sends."""
        self.due = max(self.due, now - (BURST - 1) * self._longest_s) + self._longest_s
