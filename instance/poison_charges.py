"""Decides which tuple is charged when a task ends, and the consequence. Pure.

A tuple that a spout sends again has a new number, and after a rewind it may have another place, so only its content
identifies it after a restart. Other tuples may have the same content and be innocent. Therefore a charge is never
permanent: it is cleared when a tuple with the same content passes, or after some time. Of the tuples with a guilty
content, only `term` tuples are skipped before one is tried again. The term doubles each time that the retry fails, so n
tuples that all kill their task end it about log2(n) times, and a tuple that was charged wrongly costs one dead letter.

An end is charged to a content and not to (source task, number, attempt). All three are known when the tuple is marked,
but all change when the tuple is sent again. Under ATLEAST_ONCE, all tuples that had reached a killed process fail.
Spouts send them again with new roots, which are above all earlier roots. Tuples that had not arrived yet also have
higher roots, unless they were overtaken. So a number never shows that a tuple is the charged tuple, and rarely that it
is not. Under EFFECTIVELY_ONCE, numbers begin again with the attempt. The same spout tuples arrive, but in another
order, and a shuffle grouping may send them to other tasks. The evidence is about content: several ends in a row with
this content in progress, and no tuple with this content that passed in between. So the content is charged.

An exception is better evidence than an end of the process: it identifies the tuple. So an exception is charged to one
tuple at a time, and the next tuple with that content has all its tries. Under ATLEAST_ONCE, a tuple that is sent again
has a higher root than all tuples that had arrived when it failed. So a tuple with a lower root is another tuple, and
the charge is used up when a tuple is abandoned. Under EFFECTIVELY_ONCE, the same tuples arrive again first, so the term
grows by one for each set of tries of one tuple. If user code raises for every tuple, because a dependency is down, a
task that gets equal tuples pauses as often as one that gets distinct tuples.

Invariants: there are at most `CHARGES_MAX` charges, and the oldest are dropped first; no tuple is left out if its
content has passed since it was charged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from heronpy.procs.exit_reason import ExitReason

#: Maximum number of contents that are kept.
CHARGES_MAX = 256
WHY_MAX_CHARS = 16 * 1024
#: Seconds without a failed try after which a charge lapses.
LAPSE_S = 3600.0
TERM_MAX = 1 << 16

#: Reasons for an end that the tuple in progress may have caused. A kill from outside
#: (KILLED, PREEMPTED), a rewind and the loss of the host are not caused by a tuple.
_BY_TUPLE = frozenset(
    {
        ExitReason.CRASHED,
        ExitReason.HUNG,
        ExitReason.OOM,
        ExitReason.USER_EXCEPTION,
        ExitReason.OWN_BUG,
        ExitReason.OK,
    }
)
#: Reasons for which a process may itself have recorded the reason and charged the tuple.
_MAY_BE_TOLD = frozenset({ExitReason.USER_EXCEPTION, ExitReason.OOM})


def may_blame(after: ExitReason | None, told: bool) -> bool:
    """Return whether the tuple in progress may have ended the process for the reason `after`."""
    return after in _BY_TUPLE and not (told and after in _MAY_BE_TOLD)


class Charge(Struct):
    """The record of all tuples with the same content."""

    tries: int = 0
    why: str = ""
    #: True if the tuple ends the process, or must not be given to user code again: look for it before it is processed.
    deadly: bool = False
    #: Number of dead letters with this content.
    letters: int = 0
    #: Number of tuples that each process skips before it tries one again.
    term: int = 1
    #: Monotonic seconds of the last charge.
    at: float = 0.0
    #: Maps a spout task to the highest root that had arrived at the last charge of an exception.
    heard: dict[int, int] = field(default_factory=dict)


class Charges:
    """The charges of one task, by key of the content; a content with `tries_max` charges is guilty."""

    def __init__(self, tries_max: int) -> None:
        self._tries_max = tries_max
        self.by_key: dict[str, Charge] = {}

    def charge(self, key: str, why: str, now: float, *, deadly: bool) -> Charge:
        """Charge a try that has ended the process."""
        charge = self._taken(key, now)
        if deadly and charge.deadly and charge.tries >= self._tries_max:
            charge.term = min(charge.term * 2, TERM_MAX)
        return self._charged(key, charge, why, now, deadly)

    def raised(
        self,
        key: str,
        why: str,
        now: float,
        *,
        deadly: bool,
        roots: Sequence[tuple[int, int]] = (),
        heard: Mapping[int, int] | None = None,
    ) -> Charge:
        """Charge an exception to a tuple with these (spout task, root) pairs; `heard` has the highest known roots."""
        charge = self._taken(key, now)
        if roots and all(root <= charge.heard.get(task, -1) for task, root in roots):
            # This is not the charged tuple: it arrived before the charged tuple could be sent again.
            self.keep(key, charge)
            return charge
        charge.heard = dict(heard or {})
        self._charged(key, charge, why, now, deadly)
        charge.term = max(charge.term, min(charge.tries // self._tries_max, TERM_MAX))
        return charge

    def spend(self, key: str) -> None:
        """Record that a tuple was abandoned for its exceptions; other tuples with its content have not been tried."""
        self.by_key.pop(key, None)

    def _taken(self, key: str, now: float) -> Charge:
        charge = self.by_key.pop(key, None) or Charge()
        return Charge() if self._lapsed(charge, now) else charge

    def _charged(self, key: str, charge: Charge, why: str, now: float, deadly: bool) -> Charge:
        charge.tries += 1
        charge.why = why[-WHY_MAX_CHARS:]
        charge.deadly = charge.deadly or deadly
        charge.at = now
        self.keep(key, charge)
        return charge

    def keep(self, key: str, charge: Charge) -> None:
        """Store a charge as the newest."""
        self.by_key[key] = charge
        while len(self.by_key) > CHARGES_MAX:
            del self.by_key[next(iter(self.by_key))]

    def acquit(self, key: str) -> bool:
        """Clear the charge of a content because a tuple with it has passed; return whether there was a charge."""
        charge = self.by_key.get(key)
        if charge is None or not charge.tries:
            return False
        del self.by_key[key]
        if charge.letters:
            # After a rewind, tuples with this content arrive again, so the number of their letters is kept.
            self.by_key[key] = Charge(letters=charge.letters, at=charge.at)
        return True

    def leaves_out(self, key: str, left_out: int, now: float) -> Charge | None:
        """Return the charge if a tuple must be skipped, else None.

        `left_out` is the number of tuples with the same content that this process has skipped.
        """
        charge = self.by_key.get(key)
        if charge is None or not charge.deadly or charge.tries < self._tries_max or left_out >= charge.term:
            return None
        return None if self._lapsed(charge, now) else charge

    def open(self, now: float) -> bool:
        return any(charge.tries and not self._lapsed(charge, now) for charge in self.by_key.values())

    def deadly(self, now: float) -> bool:
        """Return whether tuples must be checked before they are processed, because one may end the process."""
        return any(charge.deadly and not self._lapsed(charge, now) for charge in self.by_key.values())

    @staticmethod
    def _lapsed(charge: Charge, now: float) -> bool:
        # A clock that is behind the charge was set back by a restart of the host.
        return not 0 <= now - charge.at <= LAPSE_S
