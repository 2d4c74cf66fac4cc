"""Which tuple is charged when a task ends, and the consequence (F19). Pure.

A tuple that a spout sends again has a new number, and after a rewind it may have another
place, so only its content identifies it over restarts. Other tuples may have the same content and be
innocent. Therefore a charge is never permanent: a pass of the same content clears it, time does, and a
content that was found guilty costs only a `term` of tuples before one is tried again. The term doubles
each time that one fails again, so n tuples that all kill their task cost it about log2(n) deaths, and a tuple
that was charged wrongly costs one dead letter.

Invariants: at most `CHARGES_MAX` charges, those charged longest ago make room; nothing is left out whose
content has passed since it was charged.
"""

from __future__ import annotations

from dataclasses import dataclass

from heronpy.procs.exit_reason import ExitReason

#: The most contents that are remembered.
CHARGES_MAX = 256
WHY_MAX_CHARS = 16 * 1024
#: A charge lapses when no try has failed for this many seconds.
LAPSE_S = 3600.0
TERM_MAX = 1 << 16

#: Ends that the tuple in the hands of the process may have caused. A kill from outside
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
#: For these a process may have told the reason itself, and charged the tuple.
_MAY_BE_TOLD = frozenset({ExitReason.USER_EXCEPTION, ExitReason.OOM})


def may_blame(after: ExitReason | None, told: bool) -> bool:
    """Whether the current tuple may have ended the process; `after` is why, None when there was none."""
    return after in _BY_TUPLE and not (told and after in _MAY_BE_TOLD)


@dataclass(slots=True)
class Charge:
    """The record of the tuples of one content."""

    tries: int = 0
    why: str = ""
    #: It ends the process, or must not be given to user code again: look for it before it is processed.
    deadly: bool = False
    #: Dead letters written of it.
    letters: int = 0
    #: Tuples that each process leaves out before it tries one again.
    term: int = 1
    #: Monotonic seconds of the last charge.
    at: float = 0.0


class Charges:
    """The charges of one task, by key of the content; `tries_max` of them make guilty."""

    def __init__(self, tries_max: int) -> None:
        self._tries_max = tries_max
        self.by_key: dict[str, Charge] = {}

    def charge(self, key: str, why: str, now: float, *, deadly: bool) -> Charge:
        """One more try has failed."""
        charge = self.by_key.pop(key, None) or Charge()
        if self._lapsed(charge, now):
            charge = Charge()
        if deadly and charge.deadly and charge.tries >= self._tries_max:
            charge.term = min(charge.term * 2, TERM_MAX)
        charge.tries += 1
        charge.why = why[-WHY_MAX_CHARS:]
        charge.deadly = charge.deadly or deadly
        charge.at = now
        self.keep(key, charge)
        return charge

    def keep(self, key: str, charge: Charge) -> None:
        """Remember a charge as the newest."""
        self.by_key[key] = charge
        while len(self.by_key) > CHARGES_MAX:
            del self.by_key[next(iter(self.by_key))]

    def acquit(self, key: str) -> bool:
        """A tuple of this content has passed; True when there was something to take back."""
        charge = self.by_key.get(key)
        if charge is None or not charge.tries:
            return False
        del self.by_key[key]
        if charge.letters:
            # After a rewind its tuples come again; which of them have letters is not forgotten.
            self.by_key[key] = Charge(letters=charge.letters, at=charge.at)
        return True

    def leaves_out(self, key: str, left_out: int, now: float) -> Charge | None:
        """The charge when a tuple is not to be tried; `left_out` are those of its content in this process."""
        charge = self.by_key.get(key)
        if charge is None or not charge.deadly or charge.tries < self._tries_max or left_out >= charge.term:
            return None
        return None if self._lapsed(charge, now) else charge

    def open(self, now: float) -> bool:
        """A charge is in force."""
        return any(charge.tries and not self._lapsed(charge, now) for charge in self.by_key.values())

    def deadly(self, now: float) -> bool:
        """A tuple that may end the process must be looked for before it is processed."""
        return any(charge.deadly and not self._lapsed(charge, now) for charge in self.by_key.values())

    @staticmethod
    def _lapsed(charge: Charge, now: float) -> bool:
        # A clock that is behind the charge was set back by a restart of the host.
        return not 0 <= now - charge.at <= LAPSE_S
