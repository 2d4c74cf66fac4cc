"""The scaler of a cluster's jobs: it observes jobs, decides, and writes its decisions and reasons into layer scaler.

The scaler stores its memory of a job in the state manager, so another scaler can continue. The minutes of earlier days
are in a file on this host. The scaler changes no topology: the syncer applies its decisions.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from contextlib import suppress
from typing import Final

import msgspec

from heronpy.clusters.errors import ClusterError
from heronpy.clusters.examining import look
from heronpy.clusters.session import Session
from heronpy.common import exit_codes
from heronpy.common.errors import ConfigError, DeadlineError, HeronError, NoNodeError
from heronpy.health.times import TIMES
from heronpy.jobs.alerting import Alerts, of_decision
from heronpy.jobs.allotting import goal_within
from heronpy.jobs.base import read_command
from heronpy.jobs.documents import needs_scaler
from heronpy.jobs.manager import LOOK_S, ROUND_S, SCALER, Process, minutes_of, pause_after
from heronpy.jobs.merge import ConflictError, pins_of, values_of
from heronpy.jobs.store import WHY_CHARS_MAX, Scaled, Store, View
from heronpy.jobs.syncer import is_measured
from heronpy.scaling.decisions import Alert, Alerted, Changed, Decision, closed
from heronpy.scaling.figures import Observation, Past, Times
from heronpy.scaling.history import History, remove_history
from heronpy.scaling.plan import Outcome, decide
from heronpy.scaling.reading import observation_of
from heronpy.scaling.replaying import Minute
from heronpy.scaling.state import withdrawn
from heronpy.scheduler.guardian import START_OVER

log = logging.getLogger("heronpy.jobs.scaler")

WRITER: Final = "scaler"
#: Time limit for all requests of one look together.
ASK_S: Final = 5.0
#: A scaler ends after this time without a job to look at.
IDLE_S: Final = 600.0
#: States of a job whose topology does not run, and will not run until the job is changed or gets capacity.
_ENDED: Final = ("STOPPED", "FINISHED")


class Scaler:
    """Looks at jobs, one at a time, at intervals that depend on the length of a job's day."""

    def __init__(self, session: Session, store: Store, alerts: Alerts) -> None:
        self._session, self._store, self._alerts = session, store, alerts
        self._histories: dict[str, History] = {}
        #: Map from job to its open alerts; a job that was not looked at yet is missing.
        self._open: dict[str, dict[str, Alert]] = {}

    def scale(self, job: str) -> float | None:
        """Observe a job and act; returns the seconds until the next look, or None if the job does not need the scaler.

        Raises HeronError if the job cannot be read now.
        """
        try:
            view = self._store.get(job)
        except NoNodeError:
            return None
        times, is_needed = Times.of(view.document.scale.day_s), needs_scaler(values_of(view.found))
        running, _ = self._store.running(job)
        if not is_needed or (running is not None and running.state in _ENDED and running.plan is None):
            self._close_alerts(job)
        if not is_needed:
            return None
        if running is None or not is_measured(running):
            return times.look_s
        goal = goal_within(view.document, running)
        program = str(dict(running.leaves).get(("definition",), view.document.definition))
        scaled, version = self._store.scaled(job)
        history = self._history(job, times)
        seen = self._look(job, view, program, times, history, time.time())
        outcome = decide(scaled.state, seen, goal, times)
        # Written before the change, so that a successor knows which change is in progress.
        version = self._store.put_scaled(job, Scaled(scaled.created, outcome.state, seen), version)
        self._open[job] = outcome.state.alerts
        if outcome.changes and not self._write(job, view, outcome):
            self._store.put_scaled(job, Scaled(scaled.created, withdrawn(outcome.state), seen), version)
        for decision in outcome.decisions:
            self._say(job, decision)
        slo, before = outcome.state.slo, scaled.state.slo
        minute = msgspec.json.encode(Minute(seen, goal, times.day_s, scaled.state))
        history.look(seen.at, slo.measured_s - before.measured_s, slo.broken_s - before.broken_s, minute)
        if outcome.rates:
            history.add(seen.at, outcome.rates)
        return times.look_s

    def forget(self, gone: Collection[str]) -> None:
        """Remove the minutes of jobs that were deleted, and close their alerts."""
        for job in gone:
            for decision in closed(self._open.pop(job, {}).values()):
                self._alerts.tell(of_decision(job, decision, time.time()))
            if job in self._histories:
                self._histories.pop(job).close()
            remove_history(minutes_of(self._session.target.cluster, job))

    def _close_alerts(self, job: str) -> None:
        """Close the alerts of a job that is no longer observed."""
        if self._open.get(job) == {}:
            return
        scaled, version = self._store.scaled(job)
        if scaled.state.alerts:
            state = msgspec.structs.replace(scaled.state, alerts={})
            self._store.put_scaled(job, Scaled(scaled.created, state, scaled.look), version)
        self._open[job] = {}
        for decision in closed(scaled.state.alerts.values()):
            self._say(job, decision)

    def close(self) -> None:
        while self._histories:
            self._histories.popitem()[1].close()

    def _look(self, job: str, view: View, program: str, times: Times, history: History, now: float) -> Observation:
        pinned, asynchronous = pins_of(view.found), self._store.asynchronous(program)
        try:
            signals, findings = look(self._session, job, times.window_s, ASK_S, TIMES.of_day(view.document.scale.day_s))
        except (DeadlineError, ClusterError) as error:
            if isinstance(error, ClusterError):
                self._store.wake(job)  # the topology may have died
            return observation_of(job, None, (), asynchronous, pinned, None, {}, now, program)
        room = min(signals.machine_memory.values(), default=None)
        past: dict[str, Past] = {}
        if signals.load is not None:
            past = history.past([one.name for one in signals.load.components], now)
        updated_at = now - signals.updated_s if signals.updated_s is not None else None
        queue_s = max((one.lag_s for one in signals.tasks if not one.is_spout and one.lag_s is not None), default=None)
        return observation_of(
            job, signals.load, findings, asynchronous, pinned, room, past, now, program, updated_at, queue_s
        )

    def _write(self, job: str, view: View, outcome: Outcome) -> bool:
        """Write layer scaler; returns False if the document was changed in the meantime."""
        why = "; ".join(one.text for one in outcome.decisions if isinstance(one, Changed))[:WHY_CHARS_MAX]
        try:
            self._store.set(job, "scaler", outcome.changes, view.versions["scaler"], WRITER, why)
        except (ConfigError, ConflictError) as error:
            log.warning("job %s: the decision could not be written: %s", job, error)
            return False
        return True

    def _say(self, job: str, decision: Decision) -> None:
        self._alerts.tell(of_decision(job, decision, time.time()))
        log.log(logging.WARNING if isinstance(decision, Alerted) else logging.INFO, "job %s: %s", job, decision.text)
        self._store.decided(job, WRITER, decision.component, decision.text[:WHY_CHARS_MAX])

    def _history(self, job: str, times: Times) -> History:
        if job not in self._histories:
            self._histories[job] = found = History(minutes_of(self._session.target.cluster, job), times)
            if found.notice:
                log.warning("job %s: %s", job, found.notice)
        return self._histories[job]


class ScalerProcess(Process):
    """A scaler process, which checks all jobs periodically. An error in one job does not affect other jobs."""

    part = SCALER

    def _work(self) -> int:
        scaler = Scaler(self._session, self._store, self._alerts)
        #: Map from job to the time of its next look, on this process's clock.
        due: dict[str, float] = {}
        read_at = 0.0
        self._needed_at = time.monotonic()
        try:
            while not self._ends:
                if not self._acts():
                    return START_OVER
                now = time.monotonic()
                if now >= read_at:
                    read_at = now + ROUND_S
                    with suppress(HeronError):  # the syncer reports the error of the file
                        self._alerts.command = read_command(self._session.conf_dirs(), self._session.target.cluster)
                with suppress(HeronError):  # the state manager cannot be reached
                    names = self._store.names()
                    scaler.forget(due.keys() - set(names))
                    due = {job: due.get(job, now) for job in names}
                for job in sorted(job for job, at in due.items() if at <= now):
                    due[job] = now + self._scaled(scaler, job)
                    self._pulse.beat()
                if time.monotonic() - self._needed_at > IDLE_S:
                    log.info("no job needs scaling; the syncer will start a scaler when a job needs one")
                    break
                self._woken.wait(LOOK_S)
                self._woken.clear()
        finally:
            scaler.close()
            self._pulse.end()
        return exit_codes.OK

    def _scaled(self, scaler: Scaler, job: str) -> float:
        pause_s = pause_after(job, lambda: scaler.scale(job))
        if pause_s is None:
            return ROUND_S
        self._needed_at = time.monotonic()
        return pause_s
