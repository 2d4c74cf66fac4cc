"""Recorded looks at a job, through the code that decided then: it decides the same again. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from heronpy.scaling.decisions import Decision
from heronpy.scaling.figures import Goal, Look, Times
from heronpy.scaling.plan import State, decide


class Minute(Struct, frozen=True, omit_defaults=True):
    """A look, what the job promised then, and what was remembered before; None: as the minute before has left it."""

    look: Look
    goal: Goal
    day_s: float
    state: State | None = None


def replayed(minutes: Iterable[Minute]) -> Iterator[tuple[float, Decision]]:
    """What is decided, and when; what the first minute remembers counts, and nothing that a later one does."""
    state = None
    for minute in minutes:
        before = (minute.state or State()) if state is None else state
        outcome = decide(before, minute.look, minute.goal, Times.of(minute.day_s))
        state = outcome.state
        for decision in outcome.decisions:
            yield minute.look.at, decision
