"""Placement and leases under everything that can go wrong between schedulers, engine, hosts and state manager.

The decisions are the product's (`Placement`, `Lease`, `Permit`); around them are the models of `tests.sim.engine` and a
shell that does what the effects say. Several schedulers may live at a time, the old ones stopped, cut off or late.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from heronpy.engines.contract import Ended
from heronpy.engines.lease import Fencing, LeaseTimes
from heronpy.procs.restart_policy import RestartLimits
from heronpy.scheduler.leases import Permit
from heronpy.scheduler.placement import Placement
from heronpy.scheduler.placement_events import (
    Activate,
    Cancel,
    ContainerSpec,
    Effect,
    EngineAway,
    Event,
    Fence,
    GiveUp,
    Grant,
    Heard,
    Leaving,
    Ledger,
    Listed,
    Persist,
    Phase,
    PlanChanged,
    Refused,
    RestartAsked,
    Submit,
    Tick,
)
from heronpy.scheduler.placement_facts import PlacementLimits
from tests.sim.engine import Box, Host, SimEngine
from tests.sim.kernel import Process, World
from tests.sim.placing_faults import Faults
from tests.sim.run import Result, played

#: By how long a scheduler grants without its permit.
TIMES = {permit_s: LeaseTimes(1.0, 6.0, 8.0, 1.0, permit_s) for permit_s in (9.0, 25.0)}
#: Hosts are avoided for longer than a run lasts: those that are back are used all the same.
LIMITS = PlacementLimits(RestartLimits(0.2, 3.0, 1000), leave_s=3.0, start_s=15.0, avoid_s=3600.0)
POLL_S, SESSION_S, WATCH_S = 1.5, 4.0, 0.5
HEAL_S = 240.0


class State:
    """The state manager: the permit, which is an ephemeral node, and the ledger with a version."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.away = False
        self.permit: tuple[Scheduler, int] | None = None
        self.creations = 0
        #: Whether no scheduler before the one that has the permit can grant anything.
        self.alone = True
        self.led: Scheduler | None = None
        self.ledger: Ledger = {}
        self.version = 0
        self._unheard_s = 0.0
        self.watch()

    def watch(self) -> None:
        """The permit goes with the session of its scheduler: once it has not been heard for long enough."""
        holder = self.permit[0] if self.permit is not None else None
        if holder is None or self.away or holder.reaches_state():
            self._unheard_s = 0.0
        else:
            self._unheard_s += WATCH_S
        if holder is not None and self._unheard_s >= SESSION_S:
            self.permit = None
            self.world.trace.note("state", f"{holder.process.name} has lost its permit")
        self.world.later(WATCH_S, self.watch)


class Scheduler:
    """The shell of one scheduler."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster, self.world, self.state = cluster, cluster.world, cluster.state
        self.rng = self.world.chance(f"scheduler:{number}")
        self.machine: Placement | None = None
        self.permit: Permit | None = None
        self.creation = self.version = 0
        self.cut = False
        self._outbox: deque[Effect] = deque()
        self._writing = False
        self._requests: dict[tuple[int, int], tuple[Box, int, float]] = {}
        self.process = self.world.spawn(f"scheduler-{number}", "endpoint", self._take)
        self.process.on_exit.append(lambda status: cluster.scheduler_ended(self))

    @property
    def alive(self) -> bool:
        return self.process.alive

    def reaches_state(self) -> bool:
        return self.alive and not self.cut and not self.process.stopped and not self.state.away

    def _call(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Ask the state manager; None when there is no answer. The work may be done all the same."""
        answered = self.rng.random() > 0.02

        def arrive() -> None:
            result = work() if not self.cut and not self.state.away else None
            self.process.later(self.rng.uniform(0.001, 0.2), done, result if answered else None)

        self.world.later(self.rng.uniform(0.001, 0.2), arrive)

    # ---- permit -----------------------------------------------------------------------------
    def _take(self, process: Process) -> None:
        self._call(self._try_to_take, self._taken)

    def _try_to_take(self) -> tuple[bool, Ledger, int]:
        state = self.state
        if state.permit is not None or not self.alive:
            return False, {}, 0
        # That it has ended is not always known.
        gone = state.led is None or (not state.led.alive and self.rng.random() < 0.8)
        state.alone, state.led = state.alone and gone, self
        state.creations += 1
        state.version += 1
        state.permit = (self, state.creations)
        return True, dict(state.ledger), state.version

    def _taken(self, result: tuple[bool, Ledger, int] | None) -> None:
        if result is None or not result[0]:
            mine = self.state.permit is not None and self.state.permit[0] is self
            if result is None and mine:
                self.process.exit(1)  # taken, but the answer was lost: start over
            else:
                self.process.later(0.5, self._call, self._try_to_take, self._taken)
            return
        _, ledger, self.version = result
        self.creation = self.state.creations
        now, alone = self.world.now, self.state.alone
        self.world.trace.note("scheduler", f"{self.process.name} leads, alone: {alone}")
        self.permit = Permit(self.cluster.times, now, alone)
        self.machine = Placement("t", LIMITS, self.cluster.times, self.cluster.fencing, now, ledger, alone)
        self.handle(PlanChanged(self.cluster.plan))
        self._poll()
        self._tick()
        self._prove()

    def _is_mine(self) -> bool:
        mine = self.state.permit == (self, self.creation)
        if mine and self.permit is not None and self.permit.is_alone(self.world.now):
            self.state.alone = True
        return mine

    def _prove(self) -> None:
        asked_at = self.world.now

        def proved(mine: bool | None) -> None:
            if mine is False:
                self.process.exit(1)
            assert self.permit is not None
            if mine:
                self.permit.proved(asked_at)
            self.process.later(2.0, self._prove)

        self._call(self._is_mine, proved)

    # ---- events -----------------------------------------------------------------------------
    def handle(self, event: Event) -> None:
        if self.machine is None or not self.alive:
            return
        effects = self.machine.handle(event, self.world.now)
        self.machine.validate()
        for effect in effects:
            if isinstance(effect, Grant | Fence):
                self._answer(effect)
            else:
                self._outbox.append(effect)
        self._flush()

    def heard(self, box: Box, number: int, message: Heard | Leaving) -> None:
        if isinstance(message, Heard):
            self._requests[message.container, message.submission] = (box, number, self.world.now)
        self.handle(message)

    def _tick(self) -> None:
        self.handle(Tick())
        self.process.later(1.0, self._tick)

    def _poll(self) -> None:
        asked_at = self.world.now

        def answer(seen: Any, delay_s: float) -> None:
            ready = self.cluster.engine.ready()
            event: Event = EngineAway("no answer") if seen is None else Listed(seen, asked_at, ready)
            self.process.later(delay_s, self.handle, event)

        self.cluster.engine.list(answer)
        self.process.later(POLL_S, self._poll)

    # ---- effects ----------------------------------------------------------------------------
    def _flush(self) -> None:
        """Effects in order; before each command, and with each write, the permit is proved."""
        while self._outbox and not self._writing:
            head = self._outbox[0]
            if isinstance(head, Persist):
                self._writing = True
                self._call(lambda ledger=head.ledger: self._write(ledger), self._written)
            elif isinstance(head, Submit | Cancel | Activate):
                self._writing = True
                self._call(self._is_mine, self._command)
            else:
                self._outbox.popleft()
                self._note(head)

    def _write(self, ledger: Ledger) -> bool:
        state = self.state
        if not self._is_mine():
            return False
        if state.version != self.version:
            # The answer to our own write may have been lost.
            return state.version == self.version + 1 and state.ledger == ledger
        state.ledger, state.version = ledger, state.version + 1
        return True

    def _written(self, done: bool | None) -> None:
        self._writing = False
        if done is None:
            self._writing = True
            head = self._outbox[0]
            assert isinstance(head, Persist)
            self.process.later(0.3, self._call, lambda: self._write(head.ledger), self._written)
            return
        if not done:
            self.process.exit(1)
            return
        self.version += 1
        self._outbox.popleft()
        self._flush()

    def _command(self, mine: bool | None) -> None:
        self._writing = False
        if mine is None:
            self._writing = True
            self.process.later(0.3, self._call, self._is_mine, self._command)
            return
        if not mine:
            self.process.exit(1)
            return
        while self._outbox and isinstance(self._outbox[0], Submit | Cancel | Activate):
            effect = self._outbox.popleft()
            if isinstance(effect, Activate):
                self._answer(effect)
            elif isinstance(effect, Cancel):
                self.cluster.engine.cancel(effect.engine_id, effect.grace_s)
            elif isinstance(effect, Submit) and not self.cluster.engine.submit(effect.request):
                wish = effect.request
                self.process.later(2.0, self.handle, Refused(wish.container, wish.submission, "no answer", False))
        self._flush()

    def _note(self, effect: Effect) -> None:
        if isinstance(effect, GiveUp):
            self.world.wrong(f"{effect} though nothing was to be charged")
        self.world.trace.note("decides", f"{self.process.name} {effect}")

    def _answer(self, effect: Grant | Fence | Activate) -> None:
        found = self._requests.get((effect.container, effect.submission))
        assert self.permit is not None
        if found is None:
            return
        box, number, received_at = found
        if not isinstance(effect, Fence) and not self.permit.may_grant(received_at):
            return
        self.cluster.answer(self, box, number, effect)


class Cluster:
    """The world of one seed; also the endpoints and the audit of the engine."""

    def __init__(self, world: World, fencing: Fencing) -> None:
        self.world, self.fencing = world, fencing
        rng = world.chance("shape")
        self.times = TIMES[rng.choice(list(TIMES))]
        hosts = [Host(f"n{number}", rng.choice((1, 2, 3))) for number in range(rng.randint(3, 5))]
        containers = min(rng.randint(1, 4), sum(host.room for host in hosts) - 3)
        self.plan = tuple(ContainerSpec(number, 1.0, 1 << 30) for number in range(max(1, containers)))
        self.state = State(world)
        self.engine = SimEngine(world, hosts, self.times, fencing)
        self.engine.endpoints = self.engine.audit = self
        self.rng = world.chance("network")
        self.schedulers: list[Scheduler] = []
        self.slow = 0.0
        self.stats: Counter[str] = Counter()
        self.epochs: dict[int, tuple[int, str]] = {}
        #: The scheduler that last answered a container, and when.
        self._links: dict[str, tuple[Scheduler, float]] = {}
        self.add_scheduler()

    def add_scheduler(self) -> Scheduler:
        """Add a scheduler to those that run."""
        self.schedulers.append(Scheduler(self, len(self.schedulers) + 1))
        return self.schedulers[-1]

    def scheduler_ended(self, scheduler: Scheduler) -> None:
        """Its guardian starts another one, once it is known that it has ended."""
        self.world.later(self.rng.uniform(0.5, 2.0), self._again, scheduler)

    def _again(self, scheduler: Scheduler) -> None:
        younger = self.schedulers[self.schedulers.index(scheduler) + 1 :]
        if not self.leader().alive and not any(one.alive for one in younger):
            self.add_scheduler()

    def leader(self) -> Scheduler:
        """The scheduler that has the permit, or else the newest."""
        return self.state.permit[0] if self.state.permit is not None else self.schedulers[-1]

    # ---- network ----------------------------------------------------------------------------
    def _delay(self) -> float:
        return self.rng.uniform(0.5, 6.0) if self.rng.random() < self.slow else self.rng.uniform(0.001, 0.05)

    def _pass(self, is_open: Callable[[], bool], deliver: Callable[[], None]) -> None:
        """Over a network that loses what it cannot carry, or holds it for later."""
        if is_open():
            self.world.later(self._delay(), deliver)
        elif self.rng.random() < 0.9:
            self.world.later(0.5, self._pass, is_open, deliver)

    def _scheduler_of(self, box: Box) -> Scheduler | None:
        """A container stays with a scheduler that answers it; else it finds another one that lives."""
        scheduler, answered_at = self._links.get(box.job.engine_id, (None, 0.0))
        if scheduler is not None and scheduler.alive and self.world.now - answered_at < 3 * self.times.renew_s:
            return scheduler
        living = [one for one in self.schedulers if one.alive and one.machine is not None]
        if not living:
            return None
        return living[-1] if self.rng.random() < 0.8 else self.rng.choice(living)

    def send(self, box: Box, number: int, message: Heard | Leaving) -> None:
        scheduler, host = self._scheduler_of(box), box.host
        if scheduler is None:
            return
        world, process, hear = self.world, scheduler.process, scheduler.heard
        for _ in range(2 if self.rng.random() < 0.02 else 1):
            self._pass(lambda: host.endpoint, lambda: world.at(world.now, process, hear, box, number, message))

    def answer(self, scheduler: Scheduler, box: Box, number: int, effect: Grant | Fence | Activate) -> None:
        """What a scheduler answers."""
        host, world = box.host, self.world

        def deliver() -> None:
            self._links[box.job.engine_id] = (scheduler, world.now)
            if isinstance(effect, Grant):
                world.at(world.now, box.process, box.on_grant, number)
            elif isinstance(effect, Activate):
                world.at(world.now, box.process, box.on_activate, number, effect.epoch)
            else:
                world.at(world.now, box.process, box.on_fence)

        self._pass(lambda: host.answers, deliver)

    def ask_state(self, box: Box, answer: Callable[[bool], None]) -> None:
        def arrive() -> None:
            if box.host.state and not self.state.away:
                there = self.state.permit is not None
                self.stats["no_scheduler"] += not there
                self.world.at(self.world.now + self._delay(), box.process, answer, there)

        self.world.later(self._delay(), arrive)

    # ---- audit ------------------------------------------------------------------------------
    def acts(self, box: Box) -> None:
        """A container begins to act: no other one may act, or only with a lower epoch."""
        self.stats["activated"] += 1
        container, epoch = box.job.request.container, box.lease.epoch
        highest, who = self.epochs.get(container, (0, ""))
        if epoch <= highest:
            self.world.wrong(f"{box.job.engine_id} acts in epoch {epoch}, after {who} in epoch {highest}")
        self.epochs[container] = (epoch, box.job.engine_id)
        others = [one for one in self.engine.boxes(container) if one is not box and one.may_act]
        if others and self.fencing is not Fencing.EPOCH:
            names = [f"{one.job.engine_id} in epoch {one.lease.epoch} until {one.lease.until:.3f}" for one in others]
            self.world.wrong(f"{box.job.engine_id} acts in epoch {epoch} while {names} may act as well")
        self.stats["fenced_by_epoch"] += bool(others)

    def force(self) -> None:
        """What a user does where only a confirmed end counts, and the engine will never confirm it."""
        scheduler = self.leader()
        if self.fencing is not Fencing.CONFIRMATION or scheduler.machine is None or not scheduler.alive:
            return
        acting = {box.job.request.container for box in self.engine.boxes() if box.may_act}
        for view in scheduler.machine.views():
            if view.container not in acting and view.phase is Phase.STANDBY:
                self.stats["forced"] += 1
                scheduler.handle(RestartAsked((view.container,), "nothing of it is left", force=True))

    def is_well(self) -> bool:
        """Each container runs exactly once, and nothing else lies on the engine."""
        scheduler = self.leader()
        if not scheduler.alive or scheduler.machine is None or self.state.permit is None:
            return False
        if any(view.phase is not Phase.RUNNING or len(view.submissions) != 1 for view in scheduler.machine.views()):
            return False
        acting = sorted(box.job.request.container for box in self.engine.boxes() if box.lease.epoch)
        live = sorted(job.request.container for job in self.engine.alive())
        planned = [spec.container for spec in self.plan]
        return acting == planned and live == planned and len(self.engine.boxes()) == len(planned)


def run_placement(
    seed: int,
    folder: Path | None = None,
    *,
    fencing: Fencing | None = None,
    story: bool = False,
    among: Sequence[str] = (),
) -> Result:
    """One run of schedulers over an engine; `among`: only these kinds of faults come."""

    def play(world: World, result: Result) -> None:
        drawn = random.Random(f"{seed}:fencing").choices(list(Fencing), (6, 2, 2))[0]
        cluster = Cluster(world, fencing or drawn)
        result.stats, result.mode = cluster.stats, f"placement, {cluster.fencing.value}"
        faults = Faults(cluster, among)
        faults.plan()
        world.run(faults.until, lambda: False)
        faults.end()
        ends = world.now + HEAL_S
        while not world.violations and world.now < ends and not cluster.is_well():
            world.run(min(world.now + 1.0, ends), lambda: False)
            if world.now > ends - HEAL_S / 2:
                cluster.force()
        if not world.violations and not cluster.is_well():
            machine = cluster.leader().machine
            views = machine.views() if machine is not None else "no scheduler"
            jobs = [(job.engine_id, job.phase.value) for job in cluster.engine.jobs.values() if job.ended is Ended.NO]
            world.wrong(
                f"not well {HEAL_S:g} s after the last fault: {views}; jobs {jobs}; state {cluster.state.ledger}"
            )

    return played(seed, play, events_max=400_000, story=story, again="make sim WHAT=placement")
