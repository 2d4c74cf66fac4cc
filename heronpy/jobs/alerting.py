"""Alerts about jobs, one for each open cause, and the command that receives the alerts."""

from __future__ import annotations

import logging
import os
import queue
import signal
import subprocess
import threading
from typing import Final

import msgspec
from msgspec import Struct

from heronpy.jobs.syncer import AGAIN_S, DIED, Running
from heronpy.launching.environment import child_environment
from heronpy.scaling.decisions import Alerted, Cleared, Decision

log = logging.getLogger("heronpy.jobs")

#: Time limit of the command. When it is exceeded, the command and all processes that it started are killed.
COMMAND_S: Final = 10.0
#: Maximum number of alerts that wait for the command.
WAITING_MAX: Final = 64


class Alert(Struct, frozen=True):
    """One alert, which the command receives on its standard input as a JSON document."""

    job: str
    component: str
    """"" if the alert concerns the whole job."""
    cause: str
    text: str
    over: bool
    """Whether the cause is gone."""
    at: float
    """Seconds since 1970."""
    cluster: str = ""


def of_running(job: str, old: Running, new: Running, now: float) -> list[Alert]:
    """Return the alerts for a change of a job's state from `old` to `new`.

    A failed plan causes a second alert when the syncer stops retrying the plan. Failed restarts of a topology that has
    died cause none: the alert about its death stays open.
    """
    before, after = _causes(old), _causes(new)
    restarts = old.plan is not None and old.plan.target == new.leaves != new.tried
    given_up = {"plan failed"} if new.state == "QUARANTINED" != old.state and not restarts else set[str]()
    fresh = {cause: text for cause, text in after.items() if cause not in before or cause in given_up}
    opened = [Alert(job, "", cause, text, False, now) for cause, text in fresh.items()]
    return opened + [Alert(job, "", cause, text, True, now) for cause, text in before.items() if cause not in after]


def _causes(running: Running) -> dict[str, str]:
    found = {"died": DIED} if running.died else {}
    if running.failure and not (running.died and running.tried == running.leaves):
        given_up = "not retried until the job is changed or released: " if running.state == "QUARANTINED" else ""
        if given_up and running.plan is not None and running.retry_at:
            given_up = f"the change is not retried, but its undo is, every {AGAIN_S:g} s: "
        found["plan failed"] = given_up + running.failure
    if running.allotted is not None and not running.allotted.runs:
        found[running.allotted.state.lower()] = running.allotted.why
    return found


def of_decision(job: str, decision: Decision, now: float) -> list[Alert]:
    if not isinstance(decision, Alerted | Cleared):
        return []
    return [Alert(job, decision.component, decision.cause, decision.text, isinstance(decision, Cleared), now)]


class Alerts:
    """Runs the command for one alert at a time, in a thread, so that callers of `tell` do not wait."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        #: The command and its arguments; if empty, no command runs.
        self.command: tuple[str, ...] = ()
        #: Number of alerts that were dropped because too many were waiting.
        self.discarded = 0
        self._waiting: queue.Queue[Alert] = queue.Queue(WAITING_MAX)
        self._thread: threading.Thread | None = None

    def tell(self, alerts: list[Alert]) -> None:
        """Queue these alerts for the command; drop alerts while too many are waiting."""
        if not self.command:
            return
        for alert in alerts:
            try:
                self._waiting.put_nowait(msgspec.structs.replace(alert, cluster=self._cluster))
            except queue.Full:
                self.discarded += 1
                log.error(
                    "job %s: %d alerts have been dropped, because the alert command is slow", alert.job, self.discarded
                )
        if alerts and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            alert = self._waiting.get()
            if self.command:
                tell(self.command, alert)


def tell(command: tuple[str, ...], alert: Alert) -> None:
    """Run the command with an alert on its standard input, and log errors."""
    try:
        process = subprocess.Popen(
            command, env=child_environment({}), cwd="/", stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        log.error("the alert command %s cannot be started: %s", command[0], error.strerror)
        return
    try:
        process.communicate(msgspec.json.encode(alert) + b"\n", COMMAND_S)
        if process.returncode:
            log.error("the alert command %s has failed with exit code %d", command[0], process.returncode)
    except subprocess.TimeoutExpired:
        log.error("the alert command %s did not end within %g s and was killed", command[0], COMMAND_S)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
