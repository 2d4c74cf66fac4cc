"""The manager of a cluster's jobs: it calls the syncer of each job, periodically and after each change to the job.

A manager has two processes: the syncer, and the scaler, which the syncer starts when a job needs scaling. If there are
several processes of one kind, the owner of the ephemeral node is active and the others stand by. Topologies run without
the manager, too. Plans are stored in the state manager, so another process can continue them.
"""

from __future__ import annotations

import logging
import math
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common import exit_codes
from heronpy.common.errors import (
    ConfigError,
    HeronError,
    NodeExistsError,
    NoNodeError,
    StateError,
    VersionMismatchError,
)
from heronpy.common.folders import absolute, heron_home, make_folders, open_private
from heronpy.common.host import this_host
from heronpy.common.settings import JOBS_FILE
from heronpy.jobs import syncer
from heronpy.jobs.alerting import Alert, Alerts, of_running
from heronpy.jobs.allotting import Allotting, clipped
from heronpy.jobs.base import command_problem, read_command, read_layer, read_quotas
from heronpy.jobs.documents import Leaves, needs_scaler, nested
from heronpy.jobs.driver import TopologyDriver, Wish, wished_of
from heronpy.jobs.plans import Prove, pairs_of
from heronpy.jobs.store import Store
from heronpy.jobs.syncer import Driver, Running, StepError
from heronpy.launching.environment import child_environment
from heronpy.scheduler.guardian import START_OVER, Pulse
from heronpy.statemgr import paths
from heronpy.statemgr.base import StateManager

log = logging.getLogger("heronpy.jobs")

T = TypeVar("T")

SYNCER: Final = "syncer"
SCALER: Final = "scaler"
PARTS: Final = (SYNCER, SCALER)
ROUND_S: Final = 30.0
#: Interval at which a topology is observed during `Prove`.
PROVE_LOOK_S: Final = 1.0
#: Number of rounds between two reads of a job's nodes without a notification, in case a notification was lost.
LOOKS: Final = 10
#: Pause before the next look at a job that does not yet use all resources that it may use.
SOON_S: Final = 5.0
#: Interval between searches for stored programs that no job uses.
SWEEP_S: Final = 600.0
#: Interval at which a manager checks for another active manager and reports that it is alive.
LOOK_S: Final = 1.0
#: Number of jobs that are processed at the same time.
SIDE_BY_SIDE: Final = 8
#: Time in which an ending manager may complete running steps; another manager repeats unfinished steps.
END_S: Final = 20.0


def folder_of(cluster: str) -> Path:
    """Return the folder on this host for the logs of a cluster's manager and the minutes of jobs."""
    return heron_home() / "managers" / cluster


def minutes_of(cluster: str, job: str) -> Path:
    """Return the file with the minutes of a job; see `heronpy.scaling.history`."""
    return folder_of(cluster) / f"{job}.minutes"


def part_command(session: Session, part: str, properties: Iterable[str]) -> list[str]:
    """Return the command that runs a process of the manager in the foreground."""
    argv = [sys.executable, "-P", "-m", "heronpy.jobs", "--cluster", session.target.cluster, "--part", part]
    if session.common.config_path:
        argv += ["--config-path", os.path.abspath(session.common.config_path)]
    return argv + [word for text in properties for word in ("--config-property", text)]


def start_part(session: Session, part: str, properties: Iterable[str]) -> subprocess.Popen[bytes]:
    """Start a process of the manager in the background; its log is in `folder_of`."""
    folder = folder_of(session.target.cluster)
    make_folders(folder)
    with open(open_private(folder / f"{part}.log", os.O_WRONLY | os.O_APPEND), "ab") as log:
        return subprocess.Popen(
            part_command(session, part, properties), env=child_environment({}), cwd=folder,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip


class Guardian(NamedTuple):
    """The first process of a part of a manager on this host; it restarts the part."""

    pid: int
    part: str


def guardians_of(session: Session) -> list[Guardian]:
    """Return the guardians of all parts of the cluster's manager on this host, including standbys."""
    import psutil  # imported here, because only a stop needs it

    found: dict[int, tuple[int, str]] = {}
    usual = part_command(session, "", ())[1:7]
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            argv = process.cmdline()
            if argv[1:7] != usual or process.status() == psutil.STATUS_ZOMBIE or process.uids().real != os.getuid():
                continue
            environ = process.environ()
            home = environ.get("HERON_HOME") or Path(environ.get("HOME", "~"), ".herondata")
            if absolute(home) == heron_home():
                found[process.pid] = process.ppid(), argv[7]
    return [Guardian(pid, part) for pid, (above, part) in found.items() if found.get(above, (0, ""))[1] != part]


class Acting(Struct, frozen=True):
    """The active process of a manager."""

    id: str
    pid: int
    guardian: int
    host: str
    """Text of a `heronpy.common.host.Host`."""
    since: float


def desired_of(store: Store, job: str, running: Running) -> tuple[Leaves, dict[str, int]]:
    """Return the desired state of a job within its allotment, and the versions of its layers; see `wished_of`."""
    wish = wished_of(store, job, running)
    return clipped(wish.leaves, running.allotted), wish.versions


class _Read(NamedTuple):
    """Cached state of a job that has no running plan."""

    running: Running
    version: int
    wish: Wish
    looks: int
    """Number of looks since the job was read."""


class Syncing:
    """The syncers of all jobs: each call to `sync` performs all steps of one job that can be performed now."""

    def __init__(
        self,
        store: Store,
        driver: Driver,
        owner: str,
        allotting: Allotting | None = None,
        alert: Callable[[list[Alert]], None] = lambda alerts: None,
    ) -> None:
        self._store, self._driver, self._owner = store, driver, owner
        self._allotting, self._alert = allotting, alert
        #: Content of layer base for all jobs; None if the layer must not be changed.
        self.base: Leaves | None = None
        #: Map from job to the content and the version of its layer base.
        self._based: dict[str, tuple[Leaves, int]] = {}
        #: The jobs that need a scaler.
        self.scaled: set[str] = set()
        #: Map from job to its cached state.
        self._read: dict[str, _Read] = {}

    def sync(self, job: str, is_news: bool = True) -> float | None:
        """Perform all steps that can be performed now. Returns the seconds until the next look at the job; None means
        the next round.

        Without `is_news`, the job's nodes are read only in every tenth call. Raises HeronError if the job cannot be
        read now.
        """
        try:
            return self._sync(job, is_news)
        except (VersionMismatchError, NoNodeError):
            return LOOK_S  # another process has written the job, such as a manager that has taken over

    def _sync(self, job: str, is_news: bool) -> float | None:
        read = self._read.pop(job, None)
        if read is not None and (is_news or read.looks >= LOOKS or time.time() >= read.wish.ends_at):
            read = None
        looks = 1 if read is None else read.looks + 1
        running, version = (read.running, read.version) if read is not None else self._take(job)
        while True:
            wish, read = wished_of(self._store, job, running) if read is None else read.wish, None
            if self._give_base(job, wish.versions):
                continue
            allotted = self._allotting.allotted(job, wish.leaves, running) if self._allotting is not None else None
            new = running if running.allotted == allotted else replace(running, allotted=allotted)
            desired = clipped(wish.leaves, allotted)
            (self.scaled.add if needs_scaler(desired) else self.scaled.discard)(job)
            if allotted is None or allotted.runs or running.topology_id or running.plan is not None:
                seen = self._driver.see(job, dict(running.leaves) | desired)
                new = syncer.advance(new, desired, wish.versions, seen, time.time(), f"{job}{uuid.uuid4()}")
            elif new.tried != pairs_of(desired):
                new = syncer.left_alone(new, pairs_of(desired))
            changed = new != running
            if changed:
                version = self._write(job, running, new, version)
            running = new
            step = syncer.to_perform(running, time.time())
            if step is None and changed:
                continue  # a plan has ended, and the job may have been changed during it
            if step is None:
                break
            try:
                new = syncer.succeeded(running, self._driver.perform(job, step), time.time())
            except Exception as error:
                known = isinstance(error, StepError)
                log.warning("job %s: %s failed: %s", job, type(step).__name__.lower(), error, exc_info=not known)
                why = str(error) if known else f"{type(error).__name__}: {error}"
                new = syncer.failed(running, why, isinstance(error, StepError) and error.fatal, time.time())
            version = self._write(job, running, new, version)
            running = new
        if not desired.get(("definition",)) and running.state == "STOPPED" and running.plan is None:
            self._store.forget_running(job)
        elif running.plan is None:
            self._read[job] = _Read(running, version, wish, looks)
        if running.plan is not None and isinstance(running.plan.step, Prove):
            return PROVE_LOOK_S
        if syncer.waits(running, now := time.time()):
            return max(LOOK_S, running.retry_at - now)
        pause_s = SOON_S if allotted is not None and allotted.fits_since is not None else math.inf
        pause_s = min(pause_s, max(0.0, wish.ends_at - time.time()))
        return pause_s if pause_s < math.inf else None

    def _take(self, job: str) -> tuple[Running, int]:
        """Read the state of a job, and record this process as its syncer."""
        found, version = self._store.running(job)
        running = found or Running(self._owner)
        if running.owner == self._owner:
            return running, version
        running = syncer.taken_over(running, self._owner)
        return running, self._store.put_running(job, running, version)

    def _give_base(self, job: str, versions: Mapping[str, int]) -> bool:
        """Copy layer base from the cluster's file to a job; returns whether the job was changed."""
        base, version = self.base, versions.get("base")
        if base is None or version is None or self._based.get(job, ({}, 0)) == (base, version):
            return False
        self._based[job] = base, version
        try:
            view, change = self._store.apply(job, "base", nested(base), version, "manager", f"from {JOBS_FILE}")
        except ConfigError as error:
            log.warning("job %s: layer base remains unchanged: %s", job, error)
            return False
        self._based[job] = base, view.versions["base"]
        return bool(change.before or change.after)

    def _write(self, job: str, old: Running, new: Running, version: int) -> int:
        if new.state != old.state:
            log.info("job %s is %s%s", job, new.state, f": {new.failure}" if new.failure else "")
        if new.allotted is not None and (old.allotted is None or new.allotted.state != old.allotted.state):
            log.info("job %s is %s in its pool%s", job, new.allotted.state, f": {new.allotted.why}".rstrip(": "))
        said = new.failure[:500] if new.failure != old.failure else ""
        if new.died and not old.died:
            said = syncer.DIED
        if said:
            with suppress(HeronError):
                self._store.decided(job, "manager", "", said)
        version = self._store.put_running(job, new, version)
        self._alert(of_running(job, old, new, time.time()))
        return version


class Process:
    """One process of a manager, active or on standby, from its start to the signal that ends it."""

    #: Name of the part that this process runs.
    part: str

    def __init__(self, target: Target, common: Common, pulse: Pulse) -> None:
        self._session = Session(target, common)
        self._state = self._session.state
        self._store = Store(self._state)
        self._pulse = pulse
        self._alerts = Alerts(target.cluster)
        self._me = Acting(str(uuid.uuid4()), os.getpid(), os.getppid(), this_host().to_text(), time.time())
        self._woken, self._ends = threading.Event(), False

    def end(self) -> None:
        """Start no more steps; called by a signal handler."""
        self._ends = True
        self._woken.set()

    def run(self) -> int:
        """Work or stand by until `end` is called; returns the exit code."""
        if not self._elected():
            return exit_codes.OK
        log.info("this %s is active", self.part)
        try:
            return self._work()
        finally:
            self._state.close()

    def _work(self) -> int:
        """Work until `end` is called or another process is active; returns the exit code."""
        raise NotImplementedError(f"{type(self).__name__} must define _work")

    def _elected(self) -> bool:
        """Wait until no other process is active; returns False if this process must stop first."""
        told = False
        while not self._ends:
            self._pulse.beat()
            with suppress(NodeExistsError):
                self._state.create(paths.job_manager(self.part), msgspec.json.encode(self._me), ephemeral=True)
                return True
            if not told:
                log.info("another %s is active; this process stands by", self.part)
                told = True
            self._woken.wait(LOOK_S)
        return False

    def _acts(self) -> bool:
        self._pulse.beat()
        try:
            acting = acting_of(self._state, self.part)
        except StateError:
            return True  # the state manager is unreachable, so no other manager can have become active
        if acting is not None and acting.id == self._me.id:
            return True
        log.warning("another %s is active; this process stands by", self.part)
        return False


class SyncerProcess(Process):
    """A syncer process, which checks all jobs periodically."""

    part = SYNCER

    def __init__(self, target: Target, common: Common, pulse: Pulse) -> None:
        super().__init__(target, common, pulse)
        driver = TopologyDriver(target, common, self._state)
        self._allotting = Allotting(self._store, self._state, driver.needs)
        self._syncing = Syncing(self._store, driver, self._me.id, self._allotting, self._alerts.tell)
        #: Map from job to the time of its next look, on this process's clock.
        self._due: dict[str, float] = {}
        self._busy: dict[str, Future[float | None]] = {}
        self._news = -1
        #: Jobs that may have been written since the last look at them.
        self._changed: set[str] = set()
        self._base_at, self._base_said = 0.0, list[str]()
        self._allotting.frozen = True
        #: The scaler that this process started, and the earliest time for starting another scaler.
        self._scaler: subprocess.Popen[bytes] | None = None
        self._scaler_at = 0.0
        #: Programs that no job used at the last sweep, and the time of the next sweep.
        self._unused: dict[str, int] = {}
        self._sweep_at = time.monotonic() + SWEEP_S

    def _work(self) -> int:
        watch = self._state.watch(paths.JOB_NEWS, lambda _: self._woken.set())
        pool = ThreadPoolExecutor(SIDE_BY_SIDE, "job")
        try:
            while not self._ends:
                if not self._acts():
                    return START_OVER
                self._look(pool)
                self._woken.wait(LOOK_S)
                self._woken.clear()
        finally:
            watch.cancel()
            self._pulse.end()
            pool.shutdown(wait=False, cancel_futures=True)
        deadline = time.monotonic() + END_S
        while time.monotonic() < deadline and not all(one.done() for one in self._busy.values()):
            time.sleep(0.05)
        return exit_codes.OK

    def _look(self, pool: ThreadPoolExecutor) -> None:
        """Start a look at each job that is due, and collect the results of finished looks."""
        now = time.monotonic()
        for job in [job for job, future in self._busy.items() if future.done()]:
            # A job that was changed during the look already has an earlier time.
            pause_s = pause_after(job, self._busy.pop(job).result)
            self._due[job] = min(self._due[job], now + (ROUND_S if pause_s is None else min(pause_s, ROUND_S)))
        with suppress(HeronError):  # the state manager cannot be reached
            self._news, changed = self._store.news(self._news)
            known = set(self._store.known())
            self._due = {job: self._due.get(job, now) for job in known}
            if now >= self._base_at:
                self._base_at = now + ROUND_S
                changed = None if self._read_base() else changed
            news = known if changed is None else known.intersection(changed)
            self._changed = (self._changed | news) & known
            self._due |= dict.fromkeys(news, now)
            self._due |= dict.fromkeys(known & self._allotting.changed(), now)
            if self._syncing.scaled and now >= self._scaler_at:
                self._scaler_at = now + ROUND_S
                self._start_scaler()
            if now >= self._sweep_at:
                self._unused, self._sweep_at = self._store.sweep_definitions(self._unused), now + SWEEP_S
        for job in [job for job, at in sorted(self._due.items(), key=lambda one: one[1]) if at <= now]:
            if job in self._busy or len(self._busy) >= SIDE_BY_SIDE:
                continue
            self._due[job] = now + ROUND_S
            self._busy[job] = pool.submit(self._syncing.sync, job, job in self._changed)
            self._changed.discard(job)

    def _start_scaler(self) -> None:
        """Start a scaler unless one is active, or the last one that this process started is still running."""
        if (self._scaler is None or self._scaler.poll() is not None) and acting_of(self._state, SCALER) is None:
            try:
                self._scaler = start_part(self._session, SCALER, self._session.common.config_property)
            except OSError as error:
                log.error("the scaler cannot be started: %s", error)

    def _read_base(self) -> bool:
        """Read the cluster's file; returns whether layer base has changed."""
        before, folders = self._syncing.base, self._session.conf_dirs()
        said = take_file(folders, self._session.target.cluster, self._syncing, self._allotting, self._alerts)
        for text in said if said != self._base_said else ():
            log.error(text)
        self._base_said = said
        return before != self._syncing.base


def take_file(
    conf_dirs: Sequence[Path], cluster: str, syncing: Syncing, allotting: Allotting, alerts: Alerts
) -> list[str]:
    """Put the valid parts of the cluster's file into effect; returns a sentence for each problem."""
    wrong: dict[str, list[str]] = {}

    def part(what: str, read: Callable[[Sequence[Path], str], T], last: T) -> T:
        try:
            return read(conf_dirs, cluster)
        except ConfigError as error:
            wrong.setdefault(str(error), []).append(what)
            return last

    quotas = part("quotas", read_quotas, None if allotting.frozen else allotting.quotas)
    allotting.quotas, allotting.frozen = quotas or {}, quotas is None
    alerts.command = part("the alert command", read_command, alerts.command)
    syncing.base = part("layer base", read_layer, syncing.base)
    said = [
        f"{error}; until this is corrected, changes to {', '.join(parts)} have no effect"
        for error, parts in wrong.items()
    ]
    said += [text] if (text := command_problem(alerts.command)) else []
    return said + ["until the quotas can be read, each job in a pool keeps its tasks"] * allotting.frozen


def pause_after(job: str, look: Callable[[], float | None]) -> float | None:
    """Look at a job and return the seconds until the next look. After an error, which is logged, this is ROUND_S."""
    try:
        return look()
    except HeronError as error:
        log.warning("job %s cannot be checked: %s", job, error)
    except Exception:
        log.exception("job %s cannot be checked", job)
    return ROUND_S


def acting_of(state: StateManager, part: str = SYNCER) -> Acting | None:
    """Return the active process of this part of a manager; None if none is active."""
    found = state.get(paths.job_manager(part))
    return msgspec.json.decode(found[0], type=Acting) if found else None
