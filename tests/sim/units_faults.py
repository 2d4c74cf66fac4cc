"""The faults of one run of work units."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

from heronpy.ingest.ledger.types import Unit, UnitState
from tests.sim.kernel import START_S, Process

if TYPE_CHECKING:
    from tests.sim.units import Cluster

#: Seconds for which a process is stopped at most.
STOPPED_S = 30.0
#: How often the worst moment is looked for.
LOOK_S = 0.01


class Faults:
    """The faults of one run; each seed leaves out some kinds."""

    def __init__(self, cluster: Cluster, rng: random.Random, among: tuple[str, ...] = (), throws: bool = True) -> None:
        self.cluster, self.world, self.rng = cluster, cluster.world, rng
        #: Whether logs are truncated: lines may then be gone that a unit waits for.
        self.throws = throws
        self.until = START_S + rng.uniform(15.0, 50.0)
        kinds = [kind for kind in (among or KINDS) if among or rng.random() < 0.6]
        cluster.ledger.loss = rng.choice((0.0, 0.01, 0.05))
        for _ in range(rng.choice((0, 6, 12, 20)) if kinds else 0):
            kind = rng.choice(kinds)
            self.world.at(rng.uniform(START_S + 0.5, self.until), None, self._strike, kind)
        for log in tuple(cluster.logs.written.lines):
            self._write(log)

    def _strike(self, kind: str) -> None:
        self.cluster.stats[f"fault_{kind}"] += 1
        self.world.trace.note("fault", kind)
        getattr(self, f"_{kind}")()

    def _write(self, log: str) -> None:
        """The logs grow and rotate while there are faults."""
        if not self._grow():
            return
        logs, rng = self.cluster.logs, self.rng
        if rng.random() < 0.12:
            logs.rotate(log, rng, self.throws)
        else:
            logs.append(log, rng.randint(1, 30))
        logs.note()
        self.world.later(rng.uniform(0.05, 2.0), self._write, log)

    def _grow(self) -> bool:
        return self.world.now < self.until

    def _victim(self, kind: str = "") -> Process | None:
        names = sorted(name for name in self.cluster.running if kind in name)
        return self.cluster.running[self.rng.choice(names)] if names else None

    def _kill(self) -> None:
        victim = self._victim()
        if victim is not None:
            victim.kill()

    def _fuse(self) -> None:
        victim = self._victim()
        if victim is not None:
            victim.fuse = self.rng.randint(1, 12)

    def _worker_sleeps(self) -> None:
        self._sleep("worker")

    def _keeper_sleeps(self) -> None:
        self._sleep("keeper")

    def _sleep(self, kind: str) -> None:
        """It stops at one of its next steps, a worker at one with a unit, and the ledger is lost meanwhile."""
        victim = self._victim(kind)
        if victim is not None:
            victim.fuse, victim.blows = self.rng.randint(1, 12), partial(self._asleep, victim)

    def _asleep(self, victim: Process) -> None:
        held = {unit.id for unit in self._leased() if f"/{victim.name}#" in unit.holder}
        if "worker" in victim.name and not held:
            victim.fuse = self.rng.randint(1, 4)
            return
        victim.stop()
        self.world.later(0.0, self.cluster.lose)
        self.world.later(LOOK_S, self._wake, victim, held, self.world.now + self.rng.uniform(1.0, STOPPED_S))

    def _wake(self, victim: Process, held: set[int], latest: float) -> None:
        """At the worst moment: somebody has a unit of the new ledger with the number of its own."""
        if self.world.now >= latest or any(unit.id in held for unit in self._leased()):
            victim.proceed()
        else:
            self.world.later(LOOK_S, self._wake, victim, held, latest)

    def _leased(self) -> list[Unit]:
        rows = self.cluster.ledger.store.snapshot(self.cluster.pipeline)
        return [row for row in rows if isinstance(row, Unit) and row.state is UnitState.LEASED]

    def _stop(self) -> None:
        victim = self._victim()
        if victim is not None:
            victim.stop()
            lasts_s = self.rng.choice((0.5, 8.0, STOPPED_S))
            self.world.later(lasts_s, victim.proceed)
            if self.rng.random() < 0.6:
                self.world.later(lasts_s * self.rng.random(), self.cluster.replace, victim)

    def _away(self) -> None:
        self.cluster.ledger.away = True
        self.world.later(self.rng.uniform(0.5, 12.0), lambda: setattr(self.cluster.ledger, "away", False))

    def _lose(self) -> None:
        self.cluster.lose()

    def end(self) -> None:
        """No further fault comes, and no process is stopped."""
        self.cluster.ledger.away, self.cluster.ledger.loss = False, 0.0
        for log in self.cluster.logs.written.lines:
            self.cluster.logs.finish(log)
        self.cluster.logs.note()
        for process in self.world.processes:
            process.fuse = None
            process.proceed()
        self.world.trace.note("faults", "are over")


#: Sleeps happen on request only: `stop` and `lose` find the same bugs, in one of hundreds of seeds.
KINDS = ("kill", "kill", "fuse", "stop", "stop", "away", "lose")
