"""Rules for waits: tuples and acks wait to be sent together, and a spout waits at its limit or without input. Pure.

A frame costs the same whether it holds one tuple or many, because it wakes up a thread at every hop. So the rate of
frames is bounded: a task that sends rarely sends immediately; a task that sends often waits until `longest_s` after its
last send, and tuples emitted until then are sent together. At any rate, a tuple waits at most `longest_s`, and there
are at most 1 / `longest_s` sends a second.

A saturated task (it has not slept since its last send) waits up to `PATIENCE` times longer. While it stays saturated,
it waits twice as long between two sends, because the wait itself counts as silence. Its tuples are late anyway because
of the queue, and larger frames reduce the delay. Otherwise frames would become small just when every core is in use,
because time without a core would count as waiting.

This is the generic cell rate algorithm (ITU-T I.371) with a tolerance of `BURST` sends: after silence, the first
`BURST` sends are immediate.

At `topology.max.spout.pending` a spout does not continue after each acked tuple, but after several. Otherwise it would
send a frame per ack message, the frames would be acked one by one, and frames would stay small as long as the load
lasts. So a spout that has reached its limit waits until a quarter of the limit is free, or a whole batch if that is
less. Three quarters are still in flight during this wait, so no bolt starves. The wait is bounded, because bolts may
hold back tuples until more tuples arrive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

#: The longest wait, in seconds, of a spout that may still emit some tuples.
WAIT_MAX_S = 0.005
#: Below this limit the spout continues after each tuple, because about as many idle tasks may wait for a tuple.
SMALL_LIMIT = 64
OPEN, FULL = 0.0, float("inf")
#: A pause is this share of the silence so far, up to `SOON_S`.
SOON_GROWTH, SOON_S = 0.05, 0.1
#: A longer pause is this share of the silence so far.
LATER_GROWTH = 0.02
#: If a call emits fewer than SEVERAL tuples, the shortest pause is multiplied by LONGER, because waking up for one
#: tuple costs nearly as much as waking up for several.
SEVERAL, LONGER = 4, 2


class Room(NamedTuple):
    """How many tuples a spout may emit, and when it continues."""

    tuples: int
    resume_at: float
    """OPEN, FULL (wait until tuples are acked), or the time at which the spout continues in any case."""


def room(limit: int, pending: int, batch: int, resume_at: float, now: float) -> Room:
    """Return how many tuples a spout may emit. It has `pending` tuples, with a limit of `limit` (at least 1), and sends
    `batch` tuples together.

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
    """Return the pause before the next call to a spout that has emitted nothing for `silent_s`, within the limits.

    While tuples keep coming, each call that emits nothing is followed by a short pause, and pauses grow with the time
    without a tuple: quickly up to 0.1 s, then slowly. So a new record waits for at most a twentieth of
    the silence before it, up to `SOON_S`. After a long silence it waits for at most a fiftieth of the silence. A spout
    with a silent source wakes up rarely, because a wake-up costs more the longer the process has slept.
    """
    grown_s = max(min(silent_s * SOON_GROWTH, SOON_S), silent_s * LATER_GROWTH)
    return min(longest_s, max(shortest_s, grown_s))


#: Number of sends in a row, after silence, that do not wait.
BURST = 4
#: Factor by which tuples of a saturated task may wait longer.
PATIENCE = 5
#: In units of the linger of tuples: the pause between two messages of a few acks, and the time without a tuple.
LINGERS = 2
#: The longest wait, in units of that linger, and in seconds; never less than LINGERS lingers.
LONGEST, LONGEST_S = 10, 0.01
#: Up to the first number, acks may always wait; from the second number on, they never wait.
FEW, MANY = 8, 4096
#: The share of a spout's pending tuples that one component may hold.
SHARE = 1 / 8
#: Weight of the newest pause between tuples in the average pause.
WEIGHT = 1 / 8
NEVER = float("-inf")


class Linger:
    """Decides when the tuples of one task may be sent."""

    __slots__ = ("_longest_s", "due")

    def __init__(self, longest_s: float) -> None:
        """`longest_s` is the longest time that a tuple waits; with 0, each tuple is sent immediately."""
        self._longest_s = longest_s
        #: The time from which tuples may be sent, on the clock of `sent`.
        self.due = float("-inf")

    def sent(self, now: float) -> None:
        """Record a send: each send uses up `longest_s`, and silence earns credit for a few sends."""
        self.due = max(self.due, now - (BURST - 1) * self._longest_s) + self._longest_s

    def over(self, now: float, slept: Callable[[], bool]) -> bool:
        """Return whether a busy task must send now; `slept` returns whether it has slept since its last send."""
        return now >= self.due and (now >= self.latest or slept())

    @property
    def latest(self) -> float:
        """Return the time from which a busy task always sends."""
        return self.due + (PATIENCE - 1) * self._longest_s


class AckLinger:
    """Decides when the acks of one bolt task may be sent.

    A message of acks costs several processes a wake-up each, and so does the completion that follows. Only a spout that
    has reached its limit on pending tuples waits for an ack. So while tuples keep coming, which shows that no spout
    waits for long, acks wait up to `LONGEST_S` for further acks. They are sent

    - when there are `room` of them: all tasks of a component together hold at most `SHARE` of the tuples that one spout
    may have pending; if these are very few, acks hardly wait;
    - when no tuple has arrived for `LINGERS` lingers of the tuples: a spout may have stopped because it lacks acks;
    - immediately if tuples are rarer than that, because a wait would need an extra wake-up.

    Small groups of acks are sent at most once per `LINGERS` lingers, except the first groups after silence.
    """

    __slots__ = ("_came_at", "_often", "_pause_s", "_rarely", "_silence_s", "room")

    def __init__(self, linger_s: float) -> None:
        """`linger_s` is the longest time that a tuple waits, see `Linger`; with 0, all acks are sent immediately."""
        self._silence_s = LINGERS * linger_s
        self._rarely = Linger(self._silence_s)
        self._often = Linger(max(self._silence_s, min(LONGEST * linger_s, LONGEST_S)))
        #: The time of the latest arrival of tuples, and the average pause between arrivals.
        self._came_at = NEVER
        self._pause_s = 4 * self._silence_s
        #: Number of acks that are sent without waiting for further acks.
        self.room = FEW

    def limit(self, pending: float, tasks: int) -> None:
        """Set `room` from the smallest limit on pending tuples of any spout, and the component's number of tasks."""
        self.room = int(max(FEW, min(MANY, pending * SHARE / max(1, tasks))))

    def came(self, now: float) -> None:
        """Record that tuples were processed."""
        pause_s = min(now - self._came_at, 4 * self._silence_s)
        self._pause_s += WEIGHT * (pause_s - self._pause_s)
        self._came_at = now

    def sent(self, now: float) -> None:
        """Record that acks were sent; a large early group delays the next small group by at most one pause."""
        self._rarely.sent(now)
        self._rarely.due = min(self._rarely.due, now + self._silence_s)
        self._often.sent(now)

    @property
    def due(self) -> float:
        """Return the earliest time at which a few acks may be sent."""
        return self.latest if self._is_rare else max(self._rarely.due, min(self._often.due, self.latest))

    @property
    def latest(self) -> float:
        """Return the time at which acks are sent if no tuple arrives earlier; `due` is checked at each tuple."""
        return self._rarely.due if self._is_rare else max(self._rarely.due, self._came_at + self._silence_s)

    @property
    def _is_rare(self) -> bool:
        """True if acks are sent without waiting for further acks: tuples arrive rarely, or few may be pending."""
        return self.room <= FEW or self._pause_s >= self._silence_s
