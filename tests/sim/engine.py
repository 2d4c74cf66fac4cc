"""The model of an engine: a queue, hosts, and one container on a host, which may be lost in every way.

An end is confirmed only when no process is left; a host that the engine cannot see is given up after a while,
whatever runs there. What runs there finds out when the engine sees the host again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from heronpy.engines.contract import Ended, EnginePhase, Request, Seen
from heronpy.engines.lease import Fencing, Lease, LeaseTimes
from heronpy.procs.exit_reason import ExitReason
from heronpy.scheduler.placement_events import Heard, Leaving
from tests.sim.kernel import Process, World

#: A host that the engine does not see for this time is given up.
DETECT_S = (3.0, 12.0)
#: Ended jobs are listed for this time, which may be 0.
PURGE_S = (0.0, 0.5, 30.0, 30.0)


class Endpoints(Protocol):
    """Where containers send to: the schedulers and the state manager."""

    def send(self, box: Box, number: int, message: Heard | Leaving) -> None: ...

    def ask_state(self, box: Box, answer: Callable[[bool], None]) -> None: ...


class Audit(Protocol):
    """Who is told what containers do."""

    def acts(self, box: Box) -> None: ...


@dataclass
class Host:
    """A machine with room for `room` containers."""

    name: str
    room: int
    #: Whether the engine, the endpoint and the state manager are in reach; `answers`: and the way back from the endpoint.
    seen: bool = True
    endpoint: bool = True
    answers: bool = True
    state: bool = True


class Box:
    """A container: it asks, acts while it may, and stops in time. `Lease` decides."""

    def __init__(self, world: World, job: Job, host: Host, cluster: SimEngine) -> None:
        self.world, self.job, self.host, self._cluster = world, job, host, cluster
        self.lease = Lease(cluster.times, cluster.fencing)
        self.rng = world.chance(f"box:{job.engine_id}")
        self.leaving = False
        self._stopping = False
        self.process = world.spawn(job.engine_id, host.name, self._main)

    @property
    def alive(self) -> bool:
        return self.process.alive

    @property
    def may_act(self) -> bool:
        """Whether its tasks do anything now. What a stopped process does first when it goes on is to look at its lease."""
        if not self.alive or not self.lease.epoch:
            return False
        return not (self.process.stopped and self.lease.is_over(self.world.now))

    def _main(self, process: Process) -> None:
        process.on_sigterm = self._on_term
        process.later(self.rng.choice((0.2, 1.0, 4.0)), self._renew)

    def _renew(self) -> None:
        self._look()
        request, lease = self.job.request, self.lease
        if self.leaving:
            self._cluster.endpoints.send(self, 0, Leaving(request.container, request.submission, "preempted"))
        number = lease.ask(self.world.now)
        heard = Heard(request.container, request.submission, lease.epoch, lease.stopped, self.host.name)
        self._cluster.endpoints.send(self, number, heard)
        if lease.is_in_doubt(self.world.now):
            number = lease.ask(self.world.now)
            self._cluster.endpoints.ask_state(self, lambda there, number=number: self._told(there, number))
        self.process.later(self._cluster.times.renew_s * self.rng.uniform(0.8, 1.0), self._renew)

    def _told(self, there: bool, number: int) -> None:
        self._look()
        if not there and not self._stopping:
            self.lease.granted(number, self.world.now)
            self._watch()

    def _watch(self) -> None:
        if self.lease.epoch:
            self.process.later(max(self.lease.until - self.world.now, 0.0), self._look)

    def _look(self) -> None:
        if self.lease.is_over(self.world.now) and not self._stopping:
            self._stop_within(self._cluster.times.stop_grace_s)

    def _stop_within(self, grace_s: float, leave: bool = False) -> None:
        self._stopping = True
        if self.lease.until + grace_s < self.world.now:
            self._stopped(leave)  # it was paused, with its tasks
        else:
            self.process.later(self.rng.uniform(0.0, grace_s), self._stopped, leave)

    def _stopped(self, leave: bool) -> None:
        self._stopping = False
        if self.lease.epoch:
            self.world.trace.note("stops", f"{self.job.engine_id} epoch {self.lease.epoch}")
        self.lease.stop()
        request = self.job.request
        bye = Heard(request.container, request.submission, 0, self.lease.stopped, self.host.name)
        self._cluster.endpoints.send(self, self.lease.ask(self.world.now), bye)
        if leave:
            self.process.exit(0)

    def _on_term(self) -> None:
        self._stop_within(self._cluster.times.stop_grace_s, leave=True)

    # ---- answers of the endpoint ----------------------------------------------------------------
    def on_grant(self, number: int) -> None:
        self._look()
        if not self._stopping:
            self.lease.granted(number, self.world.now)
            self._watch()

    def on_activate(self, number: int, epoch: int) -> None:
        self._look()
        if not self._stopping and self.lease.activated(number, epoch, self.world.now):
            self.world.trace.note("acts", f"{self.job.engine_id} epoch {epoch}")
            self._cluster.audit.acts(self)
            self._watch()

    def on_fence(self) -> None:
        self._on_term()


class Job:
    """One object of the engine."""

    def __init__(self, engine_id: str, request: Request) -> None:
        self.engine_id, self.request = engine_id, request
        self.phase = EnginePhase.QUEUED
        self.ended = Ended.NO
        self.reason: ExitReason | None = None
        self.cancelled = False
        self.host: Host | None = None
        self.box: Box | None = None
        self.asked_to_end = self.purged = self.waits = False

    def seen(self) -> Seen:
        request, host = self.request, self.host.name if self.host else ""
        return Seen(
            self.engine_id,
            request.container,
            request.submission,
            self.phase,
            host,
            self.ended,
            self.reason,
            cancelled=self.cancelled,
            waits=self.waits and self.phase is EnginePhase.QUEUED,
            avoid=request.avoid,
        )


class SimEngine:
    """Jobs and hosts; what can go wrong is switched on and off from outside."""

    def __init__(self, world: World, hosts: list[Host], times: LeaseTimes, fencing: Fencing) -> None:
        self.world, self.times, self.fencing = world, times, fencing
        self.hosts = {host.name: host for host in hosts}
        self.rng = world.chance("engine")
        self.jobs: dict[str, Job] = {}
        self.endpoints: Endpoints
        self.audit: Audit
        self.away = False
        #: Probabilities: a list is empty, late, refused; a submit or cancel is lost, or done without an answer.
        self.empty = self.late = self.refused = self.lost = 0.0
        self.queue_s = (0.05, 0.5)

    def boxes(self, container: int | None = None) -> list[Box]:
        """Containers whose processes exist, known to the engine or not."""
        found = [job.box for job in self.jobs.values() if job.box is not None and job.box.alive]
        return [box for box in found if container in (None, box.job.request.container)]

    def ready(self) -> frozenset[str]:
        """Hosts that it sees."""
        return frozenset(host.name for host in self.hosts.values() if host.seen)

    def alive(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.ended is Ended.NO]

    # ---- calls of a scheduler: each answers the caller after a while, or never ------------------
    def submit(self, request: Request) -> bool:
        """Whether it is answered; it may be done all the same."""
        away = self.away or self.rng.random() < self.lost
        if away and self.rng.random() < 0.5:
            return False
        job = Job(f"j{len(self.jobs) + 1}-{request.container}.{request.submission}", request)
        self.jobs[job.engine_id] = job
        self.world.trace.note("submit", f"{job.engine_id} avoids {','.join(request.avoid)}")
        self.world.later(self.rng.uniform(*self.queue_s), self._start, job)
        return not away

    def list(self, answer: Callable[[tuple[Seen, ...] | None, float], None]) -> None:
        """Answers with a list or None, and the delay."""
        chance = self.rng.random()
        if self.away or chance < self.refused:
            answer(None, 2.0)
        elif chance < self.refused + self.empty:
            answer((), 0.05)
        else:
            late = self.rng.random() < self.late
            delay = self.rng.uniform(8.0, 25.0) if late else self.rng.uniform(0.01, 0.3)
            answer(tuple(job.seen() for job in self.jobs.values() if not job.purged), delay)

    def cancel(self, engine_id: str, grace_s: float) -> None:
        job = self.jobs[engine_id]
        if self.away or self.rng.random() < self.lost or job.asked_to_end:
            return
        job.asked_to_end = True
        self.world.trace.note("cancel", engine_id)
        self._end_job(job, grace_s)

    # ---- its own life -------------------------------------------------------------------------
    def _start(self, job: Job) -> None:
        if job.ended is not Ended.NO:
            return
        used = {host.name: 0 for host in self.hosts.values()}
        for one in self.alive():
            if one.host is not None:
                used[one.host.name] += 1
        free = [h for h in self.hosts.values() if h.seen and used[h.name] < h.room and h.name not in job.request.avoid]
        job.waits = not free
        if not free or self.away:
            self.world.later(1.0, self._start, job)
            return
        host = self.rng.choice(free)
        job.host, job.phase = host, EnginePhase.RUNNING
        job.box = Box(self.world, job, host, self)
        job.box.process.on_exit.append(lambda status: self._exited(job, status))

    def _exited(self, job: Job, status: int) -> None:
        if job.ended is Ended.NO and job.host is not None and job.host.seen:
            asked = job.asked_to_end or status == 0
            self._end(job, Ended.CONFIRMED, ExitReason.PREEMPTED if asked else ExitReason.CRASHED)

    def _end(self, job: Job, ended: Ended, reason: ExitReason | None) -> None:
        job.ended, job.phase, job.reason = ended, EnginePhase.ENDED, reason
        self.world.trace.note("ended", f"{job.engine_id} {ended.value} {reason.value if reason else ''}")
        self.world.later(self.rng.choice(PURGE_S), setattr, job, "purged", True)

    def _end_job(self, job: Job, grace_s: float) -> None:
        """SIGTERM now, SIGKILL after the grace; a host out of sight learns nothing."""
        if job.box is None:
            self._end(job, Ended.CONFIRMED, ExitReason.PREEMPTED)
        elif job.host is not None and job.host.seen:
            job.box.process.terminate()
            self.world.later(grace_s, self._kill, job)

    def _kill(self, job: Job) -> None:
        if job.box is not None and job.host is not None and job.host.seen:
            job.box.process.kill()

    def preempt(self, job: Job) -> None:
        """The engine warns, and ends the job after a while."""
        if job.box is not None and job.box.alive:
            job.box.leaving = True
            self.world.later(self.rng.uniform(2.0, 10.0), self._end_preempted, job)

    def _end_preempted(self, job: Job) -> None:
        if job.ended is Ended.NO and not job.asked_to_end:
            job.asked_to_end = True
            self._end_job(job, 3.0)

    def cancel_by_others(self, job: Job) -> None:
        if not job.asked_to_end:
            job.cancelled = job.asked_to_end = True
            self._end_job(job, 3.0)

    def hide(self, host: Host, duration_s: float, dies: bool) -> None:
        """A host is out of sight of the engine, because it died or not."""
        host.seen = False
        if dies:
            for box in [box for box in self.boxes() if box.host is host]:
                box.process.kill()
        self.world.later(self.rng.uniform(*DETECT_S), self._give_up, host)
        self.world.later(duration_s, self.show, host)

    def _give_up(self, host: Host) -> None:
        for job in self.alive():
            if job.host is host and not host.seen:
                self._end(job, Ended.UNCONFIRMED, None)

    def show(self, host: Host) -> None:
        """The host is back: what the engine has given up is killed there, and what died is known."""
        host.seen = True
        for job in self.jobs.values():
            if job.host is not host or job.box is None:
                continue
            if job.ended is Ended.UNCONFIRMED:
                self.world.later(self.rng.uniform(0.1, 5.0), job.box.process.kill)
            elif job.ended is Ended.NO and not job.box.alive:
                self._end(job, Ended.CONFIRMED, ExitReason.LOST_HOST)
            elif job.asked_to_end:
                self._end_job(job, 3.0)
