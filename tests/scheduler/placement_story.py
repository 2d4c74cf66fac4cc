"""Placement and a clock, for tests of it event by event."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

from heronpy.engines.contract import Ended, EnginePhase, Seen
from heronpy.engines.lease import Fencing, LeaseTimes
from heronpy.procs.exit_reason import ExitReason
from heronpy.procs.restart_policy import RestartLimits
from heronpy.scheduler.placement import Placement
from heronpy.scheduler.placement_events import (
    Activate,
    ContainerSpec,
    Effect,
    Event,
    Heard,
    Listed,
    Persist,
    Phase,
    PlanChanged,
    Submit,
    Tick,
)
from heronpy.scheduler.placement_facts import PlacementLimits

TIMES = LeaseTimes()
LIMITS = PlacementLimits(RestartLimits(budget=2), leave_s=30.0, start_s=120.0, avoid_s=600.0)
ONE = ContainerSpec(1, 1.0, 1 << 30)
T = TypeVar("T")


def of(effects: Iterable[Effect], kind: type[T]) -> list[T]:
    return [effect for effect in effects if isinstance(effect, kind)]


class Story:
    """Placement and a clock; the engine lists what is in `jobs`."""

    def __init__(
        self,
        *specs: ContainerSpec,
        fencing: Fencing = Fencing.LEASE,
        limits: PlacementLimits = LIMITS,
        **rest: Any,
    ) -> None:
        self.now = 1000.0
        self.machine = Placement("t", limits, TIMES, fencing, self.now, **rest)
        self.jobs: dict[tuple[int, int], Seen] = {}
        #: Hosts that the engine says take containers.
        self.ready: frozenset[str] = frozenset()
        self.specs = specs or (ONE,)
        self.effects = self.do(PlanChanged(self.specs))

    def do(self, event: Event, after: float = 0.0) -> list[Effect]:
        self.now += after
        effects = self.machine.handle(event, self.now)
        self.machine.validate()
        for submit in of(effects, Submit):
            wish = submit.request
            key = (wish.container, wish.submission)
            assert isinstance(effects[0], Persist) and effects[0].ledger[wish.container].submitted >= wish.submission
            assert key not in self.jobs, "a number is used twice"
            self.jobs[key] = Seen(f"j{wish.container}.{wish.submission}", *key, EnginePhase.QUEUED, avoid=wish.avoid)
        for one in of(effects, Activate):
            if of(effects, Persist):
                assert of(effects, Persist)[0].ledger[one.container].epoch >= one.epoch
        return effects

    def list(self, after: float = 1.0, asked_s: float = 0.1) -> list[Effect]:
        self.now += after
        return self.do(Listed(tuple(self.jobs.values()), self.now - asked_s, self.ready))

    def wait(self, seconds: float, *beats: Heard, lists: bool = True) -> list[Effect]:
        """Time passes, with ticks, lists, and renewals of some containers."""
        effects: list[Effect] = []
        for _ in range(int(seconds)):
            effects += self.do(Tick(), after=1.0)
            for beat in beats:
                effects += self.do(beat)
            if lists:
                effects += self.list(after=0.0)
        return effects

    def start(self, container: int = 1, submission: int = 1, host: str = "a") -> list[Effect]:
        """The engine starts it; its hello, and if it is activated its first renewal."""
        key = (container, submission)
        self.jobs[key] = replace(self.jobs[key], phase=EnginePhase.RUNNING, host=host)
        self.list(after=0.1)
        effects = self.do(Heard(container, submission, host=host))
        for one in of(effects, Activate):
            self.do(Heard(one.container, one.submission, one.epoch, host=host))
        return effects

    def end(self, container: int = 1, submission: int = 1, **end: Any) -> list[Effect]:
        key = (container, submission)
        given = {"phase": EnginePhase.ENDED, "ended": Ended.CONFIRMED, "reason": ExitReason.CRASHED, **end}
        self.jobs[key] = replace(self.jobs[key], **given)
        return self.list(after=0.1)

    def run(self) -> Story:
        """One container that runs."""
        self.list()
        self.start()
        assert self.phase() is Phase.RUNNING
        return self

    def phase(self, container: int = 1) -> Phase:
        return next(view.phase for view in self.machine.views() if view.container == container)
