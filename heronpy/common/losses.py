"""Texts about the number of tuples missing from the result of a topology, for all views. Pure.

A number has no prefix if each tuple was counted, the prefix `about` if some counts are estimated, and `at least` if the
number is a lower bound. Without any bound, the text is `an unknown number`, which may be 0.
"""

from __future__ import annotations

from typing import Final, Protocol

from heronpy.common.units import counted

UNKNOWN: Final = "an unknown number"
FINISHED: Final = "FINISHED"
#: The suffix of a state when tuples are missing from the result.
WITH_LOSSES: Final = " WITH LOSSES"


class Missing(Protocol):
    """The totals that describe a topology's losses, named as in `TupleTotals`."""

    @property
    def dead_letters(self) -> int: ...
    @property
    def lost(self) -> int: ...
    @property
    def not_resent(self) -> int: ...
    @property
    def restores(self) -> int: ...
    @property
    def lost_estimated(self) -> bool: ...
    @property
    def lost_unknown(self) -> bool: ...
    @property
    def letters_at_least(self) -> bool: ...
    @property
    def at_least(self) -> bool: ...


def losses_text(totals: Missing) -> str:
    """Describe the number of missing tuples: `12`, `at least 12`, `about 12`, `an unknown number`, or "" for none."""
    lost = 0 if totals.lost_unknown else totals.lost
    count = totals.dead_letters + lost + totals.not_resent
    # Losses that were never counted are added to the counted losses.
    uncounted = (totals.lost_estimated or totals.lost_unknown) and not lost
    least = not lost and (uncounted or totals.letters_at_least or (totals.at_least and totals.not_resent))
    if not count:
        return UNKNOWN if uncounted else ""
    if least and not letters_estimated(totals):
        return f"at least {count:,}"
    return f"about {count:,}" if totals.lost_estimated or letters_estimated(totals) else f"{count:,}"


def missing_text(totals: Missing) -> str:
    """Describe the number of missing tuples as part of a sentence, such as `about 12 tuples`."""
    said = losses_text(totals)
    if said == UNKNOWN:
        return f"{UNKNOWN} of tuples"
    return f"{said} {'tuple' if said.rpartition(' ')[2] == '1' else 'tuples'}" if said else ""


def state_label(state: str, totals: Missing | None) -> str:
    """Return the state of a topology with a suffix if tuples are missing, such as `FINISHED WITH LOSSES`."""
    lossy = state == FINISHED and totals is not None and losses_text(totals)
    return f"{state}{WITH_LOSSES}" if lossy else state


def given_up_text(totals: Missing) -> str:
    """Describe how the missing tuples were lost, such as `2 dead letters, about 3 lost`."""
    texts = [about_letters(totals) + counted(totals.dead_letters, "dead letter"), f"{lost_text(totals)} lost"]
    if totals.not_resent:
        least = "at least " if totals.at_least else ""
        texts.append(f"{least}{totals.not_resent:,} failed and not sent again")
    return ", ".join(texts)


def lost_text(totals: Missing) -> str:
    """Describe the number of tuples that were lost without a dead letter: `3`, `about 3`, `an unknown number`."""
    if totals.lost_unknown or (totals.lost_estimated and not totals.lost):
        return UNKNOWN
    return f"about {totals.lost:,}" if totals.lost_estimated else f"{totals.lost:,}"


def letters_estimated(totals: Missing) -> bool:
    """Whether the number of dead letters is inexact, because a tuple may be given to another task after a restore."""
    return bool(totals.restores and totals.dead_letters)


def about_letters(totals: Missing) -> str:
    """Return the prefix for the number of dead letters; empty if the number is exact."""
    return "about " if letters_estimated(totals) else "at least " if totals.letters_at_least else ""
