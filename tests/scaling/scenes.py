"""A topology of a spout and two bolts under the scaler, and what became of it."""

from __future__ import annotations

import math
import random
from typing import Any

from heronpy.scaling.decisions import Alerted, Changed, Decision
from heronpy.scaling.figures import Goal, Look, Times
from heronpy.scaling.plan import Outcome, State
from tests.scaling.model import Fault, Minutes, Model, Part, run

TIMES = Times()
GOAL = Goal(lag_s=5.0, max={"work": 24, "store": 12})
HOUR = 3600.0
DAY = 86_400.0


def parts(work: dict[str, Any] | None = None, store: dict[str, Any] | None = None) -> list[Part]:
    """Spout read, bolts work (1,000/s a task) and store (4,000/s a task)."""
    return [
        Part(name="read", per_s=60_000.0),
        Part(**({"name": "work", "per_s": 1000.0, "tasks": 4, "inputs": {"read": 1.0}} | (work or {}))),
        Part(**({"name": "store", "per_s": 4000.0, "tasks": 2, "inputs": {"work": 1.0}} | (store or {}))),
    ]


def noise(seed: int, share: float) -> Any:
    drawn = random.Random(seed)
    return lambda: drawn.gauss(0.0, share)


def daily(low: float, high: float) -> Any:
    """Least at 2, most at 14 o'clock."""
    return lambda at: (low + high) / 2 - (high - low) / 2 * math.cos((at / DAY * 24 - 2) / 24 * 2 * math.pi)


class Scene:
    """A model after `hours` of its time."""

    def __init__(
        self, model: Model, hours: float, goal: Goal = GOAL, minutes: Minutes | None = None, state: State | None = None
    ) -> None:
        self.model = model
        self.looks: list[tuple[Look, Outcome]] = []
        self.lags: list[tuple[float, float]] = []
        for look, outcome in run(model, goal, TIMES, hours * HOUR, minutes, state):
            self.looks.append((look, outcome))
            self.lags.append((model.passed_s, model.lag_s))

    @property
    def state(self) -> State:
        return self.looks[-1][1].state

    @property
    def decisions(self) -> list[tuple[float, Decision]]:
        return [(look.at - self.looks[0][0].at, one) for look, outcome in self.looks for one in outcome.decisions]

    def changes(self, up: bool | None = None) -> list[tuple[float, Changed]]:
        """All of them, or only those up or down."""
        found = [(at, one) for at, one in self.decisions if isinstance(one, Changed)]
        return [(at, one) for at, one in found if up is None or (one.after > one.before) == up]

    @property
    def alerts(self) -> list[Alerted]:
        return [one for _, one in self.decisions if isinstance(one, Alerted)]

    def told(self) -> str:
        """What was decided, for the message of a test that fails."""
        return "\n".join(f"{at:.0f} {type(one).__name__} {one.text}" for at, one in self.decisions)


def fault(kind: str, part: str = "work", since_h: float = 1.0, much: float = 0.3, for_h: float = 1e6) -> Fault:
    return Fault(kind, part, since_h * HOUR, (since_h + for_h) * HOUR, much)
