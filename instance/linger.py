"""How long tuples wait to be batched into a frame. Pure.

A frame costs the same whether it holds one tuple or many, because it wakes up a thread at every hop. So the rate of
frames is bounded: a task that sends rarely sends at once; one that sends often waits until `longest_s` after its last
send, and tuples emitted meanwhile travel together. A tuple waits at most `longest_s` at any rate, and there are at most
1 / `longest_s` sends a second.

A saturated task, one that has not slept since its last send, waits up to `PATIENCE` times longer, and `STEADY` times
while it stays so: its tuples are late anyway, by all that is queued, and with fewer frames they are late by less.
Otherwise frames would become small just when every core is taken, since the time for which others have the core would
count as waiting.

This is the generic cell rate algorithm (ITU-T I.371) with a tolerance of `BURST` sends: after silence, the first
`BURST` sends go out at once.
"""

from __future__ import annotations

from collections.abc import Callable

#: Sends in a row, after silence, that do not wait.
BURST = 4
#: How many times longer the tuples of a saturated task may wait.
PATIENCE = 5
#: The same between two sends of a task that stays saturated: waiting earns it the credit of silence.
STEADY = PATIENCE - BURST + 1


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

    def over(self, now: float, slept: Callable[[], bool]) -> bool:
        """Whether a busy task is to send now; `slept`: whether it has slept since its last send."""
        return now >= self.due and (now >= self.latest or slept())

    @property
    def latest(self) -> float:
        """The moment from which a busy task sends in any case."""
        return self.due + (PATIENCE - 1) * self._longest_s
