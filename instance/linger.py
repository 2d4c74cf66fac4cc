"""How long tuples wait to be batched into a frame, and acks to be sent together. Pure.

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
#: In units of the linger of tuples: the pause between two messages of a few acks, and how long no tuple may come.
LINGERS = 2
#: The longest wait, in units of that linger, and in seconds; never less than LINGERS lingers.
LONGEST, LONGEST_S = 10, 0.01
#: Fewer acks than the first may always wait; as many as the second never do.
FEW, MANY = 8, 4096
#: The part of the pending tuples of a spout that one component may hold.
SHARE = 1 / 8
#: Weight of the newest pause between tuples in the usual one.
WEIGHT = 1 / 8
NEVER = float("-inf")


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


class AckLinger:
    """How long the acks of a bolt wait to be sent together.

    When the acks of one task may be sent.

    A message of acks costs several processes a wake-up each, and the completion that follows it as much again. Nobody
    waits to process an ack; only a spout that has reached its limit of pending tuples waits for one. So while tuples
    keep coming, which says that no spout is held up for long, acks wait up to `LONGEST_S` for others. They go out

    - when there are `room` of them: all tasks of a component together hold at most `SHARE` of what one spout may have
      pending, and where that is next to nothing acks hardly wait;
    - when no tuple has come for `LINGERS` lingers of the tuples: a spout may have stopped for want of acks;
    - at once where tuples come more rarely than that: a wait would be a wake-up of its own.

    Few acks go out each `LINGERS` lingers at most, in any case but for the first ones after silence.
    """

    __slots__ = ("_came_at", "_often", "_pause_s", "_rarely", "_silence_s", "room")

    def __init__(self, linger_s: float) -> None:
        """`linger_s`: the longest wait of a tuple, see `Linger`; 0 sends everything at once."""
        self._silence_s = LINGERS * linger_s
        self._rarely = Linger(self._silence_s)
        self._often = Linger(max(self._silence_s, min(LONGEST * linger_s, LONGEST_S)))
        #: When tuples came last, and the usual pause between two times.
        self._came_at = NEVER
        self._pause_s = 4 * self._silence_s
        #: So many acks are sent without waiting for others.
        self.room = FEW

    def limit(self, pending: float, tasks: int) -> None:
        """`pending`: how many tuples a spout may have pending, the least of all spouts; `tasks`: of this component."""
        self.room = int(max(FEW, min(MANY, pending * SHARE / max(1, tasks))))

    def came(self, now: float) -> None:
        """Tuples were processed."""
        pause_s = min(now - self._came_at, 4 * self._silence_s)
        self._pause_s += WEIGHT * (pause_s - self._pause_s)
        self._came_at = now

    def sent(self, now: float) -> None:
        """Acks were sent."""
        self._rarely.sent(now)
        self._often.sent(now)

    @property
    def due(self) -> float:
        """The moment from which they may be sent, though they are few."""
        return self.latest if self._is_rare else max(self._rarely.due, min(self._often.due, self.latest))

    @property
    def latest(self) -> float:
        """The moment at which they are sent if no tuple comes before: the tuples that come look at `due`."""
        return self._rarely.due if self._is_rare else max(self._rarely.due, self._came_at + self._silence_s)

    @property
    def _is_rare(self) -> bool:
        """Whether acks go out as if none were worth waiting for: tuples come rarely, or few may be pending."""
        return self.room <= FEW or self._pause_s >= self._silence_s
