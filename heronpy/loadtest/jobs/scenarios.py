"""Scenarios for the model, each determined by a seed, and checks for wrong decisions. Has no side effects."""

from __future__ import annotations

import math
import random
from typing import Any, Final

from msgspec.structs import replace

from heronpy.loadtest.jobs.model import Fault, Minutes, Model, Part, run
from heronpy.scaling.decisions import Alerted, Changed, Decision
from heronpy.scaling.figures import Goal, Observation, Times
from heronpy.scaling.plan import Outcome
from heronpy.scaling.state import State

TIMES: Final = Times()
GOAL: Final = Goal(lag_s=5.0, max={"work": 24, "store": 12})
HOUR: Final = 3600.0
DAY: Final = 86_400.0
#: Map from kind of fault to the causes that count as a correct diagnosis.
CAUSES: Final = {
    "dependency": {"dependency"},
    "hot key": {"skew"},
    "slow host": {"slow host"},
    "slow task": {"slow task"},
    "full machine": {"machine"},
    "bad update": {"bad update"},
    "crash loop": {"crashing"},
    "poison": {"losses"},
    "lost stream manager": {"down", "losses"},
    "missing figures": {"figures"},
    "nothing shows": {"untriaged"},
}


def noise(seed: int, share: float) -> Any:
    drawn = random.Random(seed)
    return lambda: drawn.gauss(0.0, share)


def daily(low: float, high: float) -> Any:
    """Return a daily load with its minimum at 2:00 and its maximum at 14:00."""
    return lambda at: (low + high) / 2 - (high - low) / 2 * math.cos((at / DAY * 24 - 2) / 24 * 2 * math.pi)


class Scene:
    """The history of a model that runs for `hours` of model time."""

    def __init__(
        self, model: Model, hours: float, goal: Goal = GOAL, minutes: Minutes | None = None, state: State | None = None
    ) -> None:
        self.model = model
        self.looks: list[tuple[Observation, Outcome]] = []
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
        """Return all changes, or only increases (`up` is True) or only decreases (`up` is False)."""
        found = [(at, one) for at, one in self.decisions if isinstance(one, Changed)]
        return [(at, one) for at, one in found if up is None or (one.after > one.before) == up]

    @property
    def alerts(self) -> list[Alerted]:
        return [one for _, one in self.decisions if isinstance(one, Alerted)]

    def told(self) -> str:
        """Return the decisions as text, for the message of a failed test."""
        return "\n".join(f"{at:.0f} {type(one).__name__} {one.text}" for at, one in self.decisions)


class Drawn:
    """A random scenario: a chain of bolts with capacity for the initial load, and a change after half an hour."""

    def __init__(self, seed: int) -> None:
        self.draw = draw = random.Random(seed)
        self.seed = seed
        self.kind = draw.choice(["load", "load", "calm", *CAUSES])
        self.load = draw.uniform(500, 5000)
        self.parts = [Part(name="read", per_s=1e6)]
        for number in range(draw.randint(1, 3)):
            name, before = f"bolt{number}", self.parts[-1].name
            tasks, at = draw.randint(2, 8), draw.uniform(0.45, 0.68)
            keyed = draw.random() < 0.5 or self.kind in (
                "hot key",
                "slow host",
                "slow task",
                "crash loop",
                "full machine",
            )
            self.parts.append(
                Part(name=name, per_s=self.load / tasks / at, tasks=tasks, inputs={before: 1.0}, keyed=keyed,
                     computes=draw.uniform(0.5, 1.0))
            )  # fmt: skip
        self.hit = draw.choice(self.parts[1:])
        if self.kind in ("slow host", "full machine"):
            self.hit.tasks = 2 * max(2, self.hit.tasks // 2)
            self.hit.per_s = self.load / self.hit.tasks / 0.6
        if self.kind == "hot key":  # otherwise one of three tasks that are 45 % busy could process the load alone
            self.hit.per_s *= self.hit.tasks / max(4, self.hit.tasks)
            self.hit.tasks = max(4, self.hit.tasks)
        self.grows = draw.uniform(1.6, 3.0)
        self.fault = Fault(
            self.kind,
            self.hit.name,
            HOUR / 2,
            HOUR / 2 + 30 if self.kind == "lost stream manager" else 1e9,
            self.much(),
        )

    def much(self) -> float:
        if self.kind == "full machine":
            return 240.0
        if self.kind == "hot key":
            return 0.6
        if self.kind == "nothing shows":
            return self.load / 2
        return self.draw.uniform(3, 8) if self.kind == "dependency" else self.draw.uniform(0.1, 0.3)

    @property
    def fullest(self) -> float:
        """Final demand on the most loaded bolt, as a share of its capacity."""
        return max(self.load * self.grows / part.tasks / part.per_s for part in self.parts[1:])

    def offered(self, at: float) -> float:
        return self.load * (self.grows if self.kind == "load" and at >= HOUR / 2 else 1.0)

    def scene(self, mode: str) -> Scene:
        model = Model(
            [replace(part) for part in self.parts], self.offered, (self.fault,), noise(self.seed, 0.03), step_s=20.0
        )
        goal = replace(GOAL, mode=mode, max={part.name: 40 for part in self.parts[1:]})
        return Scene(model, 2.5, goal)


def is_wrong(drawn: Drawn, scene: Scene) -> bool:
    """Whether the scaler named a wrong cause or no cause, added useless tasks, or failed to add tasks that help."""
    ups, causes = scene.changes(up=True), [one.cause for one in scene.alerts]
    if drawn.kind == "load":
        # If all bolts have enough capacity, there is no cause to name; near the limit, either decision is right.
        return bool(causes) or (not ups if drawn.fullest > 1.03 else bool(ups) and drawn.fullest < 0.97)
    if drawn.kind == "calm":
        return bool(ups or causes)
    return bool(ups) or not causes or not CAUSES[drawn.kind].issuperset(causes[:1])


def is_worse(drawn: Drawn, scene: Scene) -> bool:
    """Whether tuples waited longer than in the same scenario without scaling."""
    return bool(scene.model.rescaled) and scene.model.waited > 1.02 * drawn.scene("off").model.waited + 60 * drawn.load
