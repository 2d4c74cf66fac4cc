"""What goes wrong while schedulers place containers on an engine: each seed draws its own kinds, times and lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from heronpy.scheduler.placement_events import RestartAsked
from tests.sim.engine import Box, Host
from tests.sim.kernel import START_S

if TYPE_CHECKING:
    from tests.sim.placing import Cluster, Scheduler

FAULTS_S = (30.0, 120.0)
#: Kinds of faults that are rare together, and harmless alone.
FOCUS = (
    ("endpoint", "hide", "preempt", "restart", "pause"),
    ("cut", "swap", "kill", "endpoint"),
    ("cut", "swap", "hide"),
)


class Faults:
    """What goes wrong in one run; each seed leaves out some kinds."""

    def __init__(self, cluster: Cluster, among: Sequence[str] = ()) -> None:
        self.cluster, self.world, self.engine = cluster, cluster.world, cluster.engine
        self._among = among
        self.rng = self.world.chance("faults")
        self.until = START_S + self.rng.uniform(*FAULTS_S)
        self.cancelled = 0

    def plan(self) -> None:
        rng, engine = self.rng, self.engine
        kinds: dict[str, Callable[[float], None]] = {
            "host": self._host, "hide": self._hide, "endpoint": self._endpoint, "answers": self._answers, "state": self._state,
            "outage": self._outage, "pause": self._pause, "crash": self._crash, "preempt": self._preempt,
            "cancel": self._cancel, "engine": self._engine, "stop": self._stop, "kill": self._kill, "swap": self._swap,
            "cut": self._cut, "restart": self._restart,
        }  # fmt: skip
        among = rng.choice((list(kinds), list(kinds), *FOCUS))
        among = self._among or among
        chosen = [kind for kind in among if rng.random() < (0.4 if len(among) == len(kinds) else 0.8)] or ["host"]
        if rng.random() < 0.5:
            engine.empty, engine.late, engine.refused, engine.lost = (rng.choice((0.0, 0.1, 0.3)) for _ in range(4))
        if rng.random() < 0.4:
            engine.queue_s = (1.0, rng.choice((5.0, 25.0)))
        if rng.random() < 0.5:
            self.cluster.slow = rng.choice((0.02, 0.3))
        for _ in range(rng.choice((3, 8, 16, 30) if len(among) == len(kinds) else (12, 24))):
            kind = rng.choice(chosen)
            duration_s = rng.choice((rng.uniform(0.1, 3.0), rng.uniform(3.0, 15.0), rng.uniform(10.0, 50.0)))
            self.world.at(rng.uniform(START_S + 1.0, self.until), None, self._strike, kind, kinds[kind], duration_s)

    def _strike(self, kind: str, strike: Callable[[float], None], duration_s: float) -> None:
        self.cluster.stats[f"fault_{kind}"] += 1
        self.world.trace.note("fault", f"{kind} for {duration_s:.2f} s")
        strike(duration_s)

    def end(self) -> None:
        """No more faults."""
        engine, cluster = self.engine, self.cluster
        self.world.trace.note("faults", "are over")
        engine.away = cluster.state.away = False
        engine.empty = engine.late = engine.refused = engine.lost = cluster.slow = 0.0
        for host in engine.hosts.values():
            host.endpoint = host.answers = host.state = True
            engine.show(host)
        for scheduler in cluster.schedulers:
            scheduler.cut = False
            scheduler.process.proceed()
        for box in engine.boxes():
            self._proceed(box)

    def _some_host(self) -> Host:
        box = self._some_box()
        return (
            box.host
            if box is not None and self.rng.random() < 0.8
            else self.rng.choice(list(self.engine.hosts.values()))
        )

    def _host(self, duration_s: float) -> None:
        self.engine.hide(self._some_host(), duration_s, dies=True)

    def _hide(self, duration_s: float) -> None:
        self.engine.hide(self._some_host(), duration_s, dies=False)

    def _switch(self, thing: Any, name: str, value: bool, duration_s: float) -> None:
        setattr(thing, name, value)
        self.world.later(duration_s, setattr, thing, name, not value)

    def _endpoint(self, duration_s: float) -> None:
        """Questions are lost first, then answers; mostly the others do not see the host either."""
        host = self._some_host()
        self._switch(host, "endpoint", False, duration_s)
        self.world.later(self.rng.uniform(0.0, 6.0), self._switch, host, "answers", False, duration_s)
        if self.rng.random() < 0.7:
            self._switch(host, "state", False, duration_s)
        if self.rng.random() < 0.7:
            self.engine.hide(host, duration_s, dies=False)

    def _answers(self, duration_s: float) -> None:
        self._switch(self._some_host(), self.rng.choice(("endpoint", "answers")), False, duration_s)

    def _state(self, duration_s: float) -> None:
        self._switch(self._some_host(), "state", False, duration_s)

    def _outage(self, duration_s: float) -> None:
        self._switch(self.cluster.state, "away", True, duration_s)

    def _engine(self, duration_s: float) -> None:
        self._switch(self.engine, "away", True, duration_s)

    def _some_box(self) -> Box | None:
        boxes = self.engine.boxes()
        return self.rng.choice(boxes) if boxes else None

    def _pause(self, duration_s: float) -> None:
        box = self._some_box()
        if box is not None:
            box.process.stop()
            self.world.later(duration_s, self._proceed, box)

    def _proceed(self, box: Box) -> None:
        if box.alive and box.process.stopped:
            over = box.lease.is_over(self.world.now)
            box.process.proceed()
            if over:
                box.lease.stop()

    def _crash(self, duration_s: float) -> None:
        box = self._some_box()
        if box is not None:
            box.process.kill(9)

    def _preempt(self, duration_s: float) -> None:
        box = self._some_box()
        if box is not None:
            self.engine.preempt(box.job)

    def _cancel(self, duration_s: float) -> None:
        box = self._some_box()
        self.cancelled += 1
        if box is not None and self.cancelled <= 2:  # the third may be final
            self.engine.cancel_by_others(box.job)

    def _stop(self, duration_s: float) -> None:
        scheduler = self.cluster.leader()
        scheduler.process.stop()
        self.world.later(duration_s, scheduler.process.proceed)

    def _kill(self, duration_s: float) -> None:
        self.cluster.leader().process.kill()

    def _swap(self, duration_s: float) -> None:
        """The scheduler is cut off, or stopped; another one is started though it may live."""
        scheduler = self.cluster.leader()
        if self.rng.random() < 0.5:
            self._stop(duration_s)
        else:
            self._cut(duration_s)
        self.world.later(self.rng.uniform(0.0, 3.0), self._add, scheduler)

    def _add(self, scheduler: Scheduler) -> None:
        if scheduler is self.cluster.leader() and len(self.cluster.schedulers) < 12:
            self.cluster.add_scheduler()

    def _cut(self, duration_s: float) -> None:
        scheduler = self.cluster.leader()
        self._switch(scheduler, "cut", True, duration_s)

    def _restart(self, duration_s: float) -> None:
        self.cluster.leader().handle(RestartAsked((self.rng.choice(self.cluster.plan).container,), "a test"))
