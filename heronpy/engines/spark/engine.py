"""Spark as an implementation of the engine contract.

The application's driver is a child of the process that creates this object, and each container is a job of the
application. Applications end with their scheduler, whose successor starts new ones. If another process opens this
engine for the same topology, it gets an empty list and cannot end jobs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from importlib.util import find_spec
from typing import Final

from heronpy.common.units import format_bytes
from heronpy.engines.contract import (
    EngineAwayError,
    EngineFatalError,
    Explained,
    Found,
    NodeSize,
    Request,
    Seen,
    Traits,
)
from heronpy.engines.shared import address_towards, polling
from heronpy.engines.spark.application import Size, SparkOptions, placed, properties_of, size_of
from heronpy.engines.spark.driver import MODULE, Driver
from heronpy.engines.spark.jobs import ENDED_MAX, LOST, Job, id_of, seen_of, waits_for, who_of
from heronpy.procs.exit_reason import ExitReason
from heronpy.procs.restart_policy import RestartHistory, RestartLimits, decide_restart

#: Limits for applications that end unexpectedly: the fourth end within five minutes is the last.
APPLICATIONS: Final = RestartLimits(backoff_s=0.5, backoff_max_s=5.0, budget=3, window_s=300.0)
#: An application without containers is closed after this time.
IDLE_S: Final = 30.0
#: How long executors may take to appear. After that, a container counts as queued instead of starting.
LAUNCH_S: Final = 20.0
CHECK_S: Final = 60.0
#: Time, in seconds, for a container to get the request to end with a lease renewal, stop its tasks and send its logs.
ENDPOINT_S: Final = 45.0
#: An unreachable address, for finding the local address; for Kubernetes or YARN heron.security.network decides.
_ANYWHERE: Final = "192.0.2.1:9"
_OPEN: Final = "the Spark driver"


class SparkEngine:
    """The jobs of one topology. Each container runs `command` with the join token as standard input."""

    traits = Traits(avoids_hosts=False, tells_to_end=False, outlives_scheduler=False)

    def __init__(
        self,
        topology_id: str,
        options: SparkOptions,
        command: Sequence[str],
        network: str = "",
        ports: range | None = None,
        poll_s: float = 2.0,
        driver_argv: Sequence[str] | None = None,
    ) -> None:
        self._topology_id = topology_id
        self._options = options
        self._command = tuple(command)
        self._network = network
        self._ports = ports
        self._poll_s = poll_s
        self._argv = driver_argv
        self._drivers: list[Driver] = []
        #: Requests that are not handed over yet: containers that are submitted together share an application.
        self._waiting: list[Request] = []
        #: Jobs of applications that are gone, and when their driver ended.
        self._past: dict[tuple[int, int], tuple[Job, float]] = {}
        self._history = RestartHistory()
        self._failed, self._failed_until = "", 0.0
        self._not_before = 0.0
        self._changed = threading.Event()

    # ---- commands -------------------------------------------------------------------------------
    def submit(self, requests: Sequence[Request]) -> dict[tuple[int, int], str]:
        """Queue the requests; the next `list` passes them to drivers. See `Engine.submit`."""
        self._bury()
        if self._failed and self._now() < self._failed_until:
            raise EngineFatalError(self._failed)
        known = {(one.container, one.submission) for one in self._waiting}
        self._waiting += [one for one in requests if (one.container, one.submission) not in known]
        return {
            (one.container, one.submission): id_of(one.container, one.submission) for one in requests
        }  # fmt: skip

    def cancel(self, engine_ids: Sequence[str], grace_s: float) -> None:
        """See `Engine.cancel`. Spark kills a container only after the control endpoint has had time to stop it."""
        for who in filter(None, map(who_of, engine_ids)):
            for one in [one for one in self._waiting if (one.container, one.submission) == who]:
                self._waiting.remove(one)
                self._past[who] = Job(*who, "cancelled", words="it was cancelled before it started"), self._now()
            for driver in self._drivers:
                driver.cancel(who, grace_s + ENDPOINT_S)

    def _hand_over(self) -> None:
        if not self._waiting or self._now() < self._not_before:
            return
        owned = [set() if driver.closing else {job.container for job in driver.jobs()} for driver in self._drivers]
        by_driver, rest = placed(self._waiting, owned)
        if rest:
            size = size_of(rest, self._options)
            self._drivers.append(self._started(size))
            by_driver.append(rest)
        self._waiting = []
        for driver, requests in zip(self._drivers, by_driver, strict=True):
            for one in requests:
                driver.submit(one, self._command)

    def _started(self, size: Size) -> Driver:
        address = self.reach()[0]
        properties = properties_of(self._topology_id, self._options, size, address, self._ports)
        start = {"properties": properties, "address": address, "python": self._options.python or sys.executable}
        return Driver(self._topology_id, size, start, self._changed.set, self._argv)

    # ---- lists ----------------------------------------------------------------------------------
    def list(self) -> Sequence[Seen]:
        """The jobs according to the drivers' last reports; raises EngineAwayError while a driver hangs."""
        self._bury()
        self._hand_over()
        for driver in self._drivers:
            if silent_s := driver.silent_s():
                driver.kill()  # its containers end with it, and new ones are started
                raise EngineAwayError(f"{_OPEN} has not answered for {silent_s:.0f} s and was killed")
        found = [seen_of(Job(one.container, one.submission), True, self._pause()) for one in self._waiting]
        found += [seen_of(job) for job, _ in self._past.values()]
        for driver in self._drivers:
            starting, why = self._is_starting(driver), self._why(driver)
            found += [seen_of(job, starting, why) for job in driver.jobs()]
        return found

    def _is_starting(self, driver: Driver) -> bool:
        return driver.ready_at is None or self._now() - driver.ready_at < LAUNCH_S

    def _why(self, driver: Driver) -> str:
        size = driver.size
        words = f"{size.cores} core{'s' if size.cores > 1 else ''} and {format_bytes(size.memory_bytes)}"
        return waits_for(driver.told, size.slots, words, self._is_starting(driver))

    def _pause(self) -> str:
        return "a new Spark application will start soon" if self._drivers or self._past else ""

    def _bury(self) -> None:
        """Take over the jobs of drivers that have ended, and close drivers that have been idle for `IDLE_S`."""
        now = self._now()
        for driver in [one for one in self._drivers if one.over]:
            self._drivers.remove(driver)
            jobs = driver.jobs()
            self._past |= {(job.container, job.submission): (job, driver.over_at) for job in jobs}
            if any(job.phase == LOST for job in jobs):
                self._charge(driver.over, now)
        for driver in self._drivers:
            if not driver.closing and driver.idle_s() > IDLE_S:
                driver.close()
        # Unconfirmed ends are reported for as long as a silent executor takes to count as lost.
        kept = {
            who: (job, at)
            for who, (job, at) in self._past.items()
            if job.phase != LOST or now - at < self._options.lost_s
        }
        self._past = dict([*kept.items()][-ENDED_MAX:])

    def _charge(self, why: str, now: float) -> None:
        """Count an application that ended before its containers, and delay or refuse the next application."""
        decision = decide_restart(APPLICATIONS, self._history, ExitReason.CRASHED, 0.0, now)
        if decision.restart:
            self._not_before = now + decision.pause_s
        else:
            often = f"{APPLICATIONS.budget + 1} times within {APPLICATIONS.window_s / 60:g} minutes"
            self._failed_until = now + APPLICATIONS.window_s
            self._failed = f"the Spark application ended {often}; the last reason: {why}"

    @staticmethod
    def _now() -> float:
        return time.monotonic()

    def ready(self, hosts: Collection[str]) -> set[str]:
        """Empty, because Spark cannot keep a container away from a host."""
        return set()

    def explain(self, engine_id: str) -> Explained:
        """The resources for which the container's application is waiting."""
        who = who_of(engine_id)
        for driver in self._drivers:
            if any((job.container, job.submission) == who for job in driver.jobs()):
                return Explained(self._why(driver))
        return Explained(self._pause())

    def termination_report(self, engine_id: str) -> str:
        """The termination report of a job whose task has returned."""
        who = who_of(engine_id)
        known = [job for driver in self._drivers for job in driver.jobs()] + [job for job, _ in self._past.values()]
        return next((job.printed for job in known if (job.container, job.submission) == who), "")

    def look_command(self) -> str:
        """A command that lists the drivers on this host. A topology's processes end soon after its driver ends."""
        return f"ps -u $USER -o pid,args | grep '[h]{MODULE[1:]} --topology-id {self._topology_id}$'"

    def topologies(self) -> dict[str, int]:
        """The topologies whose containers run in this object's drivers; other topologies are not visible."""
        left = [job for driver in self._drivers for job in driver.jobs() if not job.has_ended]
        return {self._topology_id: len(left)} if left else {}

    def close(self) -> None:
        """Ask all drivers and containers to end, without waiting. They also end when this process ends."""
        for driver in self._drivers:
            driver.close()

    def watch(self, changed: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `changed` whenever a driver sends a report, and every `poll_s`."""
        return polling(self._poll_s, changed, self._changed)

    def reach(self) -> tuple[str, ...]:
        """This host's address on the route to the master."""
        return (address_towards(next(iter(self._options.masters), _ANYWHERE), self._network),)

    def node_sizes(self) -> Sequence[NodeSize]:
        """The size of an executor, if the operator has set it."""
        options = self._options
        if not options.cores and not options.memory_bytes:
            return []
        cores, memory = options.cores or float("inf"), options.memory_bytes or 1 << 62
        return [NodeSize(cores, memory, None, "an executor (heron.spark_engine.cores, memory_bytes)")]

    def check(self) -> Sequence[Found]:
        """Check packages, Java and the Spark master, in the same kind of process as a driver."""
        if find_spec("pyspark") is None and self._argv is None:
            what = "this Python does not have the package pyspark"
            return [Found("Spark's driver", False, what, "run: pip install 'heronpy[spark]'")]
        command = [*(self._argv or (sys.executable, "-Pm", MODULE)), "--topology-id", self._topology_id]
        command += ["--check", self._options.master]
        try:
            done = subprocess.run(command, capture_output=True, timeout=CHECK_S, check=False)
            lines = [json.loads(line) for line in done.stdout.splitlines()]
            found = [Found(str(one["what"]), bool(one["ok"]), str(one["detail"]), str(one["fix"])) for one in lines]
        except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError) as error:
            return [
                Found(
                    "Spark's driver",
                    False,
                    f"it cannot be checked: {error}",
                    "check that Python can be started on this host",
                )
            ]
        if not found:
            said = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
            return [Found("Spark's driver", False, said[0] if said else "no output", "reinstall heronpy[spark]")]
        if all(one.ok for one in found) and not self._options.is_standalone:
            what = f"{self._options.master} is not checked here; the test container below uses it"
            found.append(Found("Spark's master", True, what))
        return found
