"""Runs recorded looks at a job through the code that decided then, with the same decisions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from heronpy.scaling.decisions import Decision
from heronpy.scaling.figures import Goal, Look, Times
from heronpy.scaling.plan import State, decide


class Minute(Struct, frozen=True, omit_defaults=True):
    """A look, the promise at that time, and the memory before it; None: the memory after the previous minute."""

    look: Look
    goal: Goal
    day_s: float
    state: State | None = None


def replayed(minutes: Iterable[Minute]) -> Iterator[tuple[float, Decision]]:
    """The decisions and their times. The memory of the first minute is used, and that of later minutes is ignored."""
    state = None
    for minute in minutes:
        before = (minute.state or State()) if state is None else state
        outcome = decide(before, minute.look, minute.goal, Times.of(minute.day_s))
        state = outcome.state
        for decision in outcome.decisions:
            yield minute.look.at, decision
