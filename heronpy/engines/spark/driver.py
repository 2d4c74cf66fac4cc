"""Runs one Spark driver as a child process: sends commands to the driver and stores its last report.

The driver runs `heronpy.spark.host` in a separate Python process, so a scheduler contains no JVM and never hangs in
Spark's code. Commands are written to its standard input as lines of JSON. The first line contains the properties, and
later lines contain the join tokens, so that neither appears in an argument or environment variable. The driver ends
when its standard input is closed, for example because this process has ended.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from heronpy.engines.contract import EngineAwayError, Request
from heronpy.engines.spark.application import Size
from heronpy.engines.spark.jobs import ENDED_MAX, Job, Told, after_driver, id_of, told_of

log = logging.getLogger("heronpy.engines.spark")

MODULE: Final = "heronpy.spark.host"
#: Environment variable with the folder for the driver's files. The folder remains when the driver is killed.
SCRATCH: Final = "HERON_SPARK_SCRATCH"
#: A driver that reports nothing for this time counts as hung, except while its JVM starts.
SILENT_S: Final = 15.0
START_MAX_S: Final = 330.0
_LINE_MAX: Final = 4 << 20
_END_S: Final = 10.0


class Driver:
    """One application and its jobs; safe to use from several threads. `changed` is called from another thread."""

    def __init__(
        self,
        topology_id: str,
        size: Size,
        start: Mapping[str, Any],
        changed: Callable[[], None],
        argv: Sequence[str] | None = None,
    ) -> None:
        self.size = size
        self._changed = changed
        self._lock = threading.Lock()
        self._jobs: dict[tuple[int, int], Job] = {}
        self._told = Told()
        self._began = self._told_at = time.monotonic()
        #: When it was ready for jobs; None before that.
        self.ready_at: float | None = None
        #: Why it has ended; empty while it is running.
        self.over = ""
        self.over_at = 0.0
        self._idle_since: float | None = None
        #: Whether it was asked to end, so that it accepts no more jobs.
        self.closing = False
        command = [*(argv or (sys.executable, "-Pm", MODULE)), "--topology-id", topology_id]
        foreign = ("SPARK_REMOTE", "PYSPARK_")
        environ = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        self._scratch = environ[SCRATCH] = tempfile.mkdtemp(prefix="heron-spark-")
        try:
            # Its own session: a key that interrupts the terminal does not affect it, and it is ended together with its
            # JVM.
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self._clear()
            raise EngineAwayError(f"the Spark driver cannot be started: {error.strerror}") from None
        threading.Thread(target=self._read_words, name="spark-driver-log", daemon=True).start()
        self._say(start)
        threading.Thread(target=self._read, name="spark-driver", daemon=True).start()

    # ---- commands -------------------------------------------------------------------------------
    def submit(self, request: Request, command: Sequence[str]) -> None:
        """Run a container as a job of the application."""
        who = request.container, request.submission
        with self._lock:
            self._jobs.setdefault(who, Job(*who))
        self._say(
            {
                "do": "submit",
                "id": id_of(*who),
                "topology_id": request.topology_id,
                "container": request.container,
                "submission": request.submission,
                "command": list(command),
                "join_token": request.token,
            }
        )

    def cancel(self, who: tuple[int, int], grace_s: float) -> None:
        """End a job, immediately if its task has not begun, otherwise after `grace_s`."""
        with self._lock:
            job = self._jobs.get(who)
            if job is None or job.has_ended:
                return
        self._say({"do": "cancel", "id": id_of(*who), "grace_s": grace_s})

    def _say(self, words: Mapping[str, Any]) -> None:
        # The thread that reads its output notices that a driver has ended.
        assert self._process.stdin is not None
        with suppress(OSError, ValueError), self._lock:
            self._process.stdin.write(json.dumps(words).encode() + b"\n")
            self._process.stdin.flush()

    def close(self) -> None:
        """Ask the driver to end together with all jobs of its application; does not wait. Idempotent."""
        assert self._process.stdin is not None
        self.closing = True
        with suppress(OSError), self._lock:
            self._process.stdin.close()

    # ---- reports --------------------------------------------------------------------------------
    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def told(self) -> Told:
        """The driver's last report."""
        return self._told

    def jobs(self) -> list[Job]:
        """All jobs that were submitted to the driver."""
        with self._lock:
            return list(self._jobs.values())

    def silent_s(self) -> float:
        """Seconds since the running driver's last report if the next report is overdue; otherwise 0.0."""
        if self.over:
            return 0.0
        limit_s = SILENT_S if self.ready_at is not None else START_MAX_S
        silent = time.monotonic() - self._told_at
        return silent if silent > limit_s else 0.0

    def idle_s(self) -> float:
        """Seconds since this method first found that all jobs have ended; 0.0 if a job has not ended."""
        if any(not job.has_ended for job in self.jobs()):
            self._idle_since = None
            return 0.0
        self._idle_since = self._idle_since or time.monotonic()
        return time.monotonic() - self._idle_since

    def kill(self) -> None:
        """Kill a hanging driver together with its JVM, which might not notice the end of the driver."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _clear(self) -> None:
        """Remove the scratch folder that a driver has left behind."""
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _read(self) -> None:
        assert self._process.stdout is not None
        words = ""
        for line in iter(lambda: self._process.stdout.readline(_LINE_MAX), b""):  # type: ignore[union-attr]
            try:
                told = told_of(json.loads(line))
            except ValueError as error:
                log.warning("%s", str(error)[:500])
                continue
            words = told.failed or words
            self._take(told)
            self._changed()
        try:
            code = self._process.wait(_END_S)
        # The driver has closed its output but still runs; without output it cannot be monitored.
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if code < 0:
            with suppress(ProcessLookupError):  # its JVM, if that has not ended by itself
                os.killpg(self._process.pid, signal.SIGKILL)
        self._clear()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        self.close()
        self._process.stdout.close()
        self._end(words or f"the Spark driver {how}")
        self._changed()

    def _take(self, told: Told) -> None:
        with self._lock:
            self._told, self._told_at = told, time.monotonic()
            if told.ready and self.ready_at is None:
                self.ready_at = self._told_at
                log.info("Spark application %s is ready after %.1f s", told.application, self._told_at - self._began)
            for job in told.jobs:
                known = self._jobs.get((job.container, job.submission))
                if known is not None and not known.has_ended:
                    self._jobs[job.container, job.submission] = job
            ended = [who for who, job in self._jobs.items() if job.has_ended]
            for who in ended[:-ENDED_MAX]:
                del self._jobs[who]

    def _end(self, why: str) -> None:
        with self._lock:
            was_ready = self.ready_at is not None
            self._jobs = {who: after_driver(job, was_ready, why) for who, job in self._jobs.items()}
            self.over_at, self.over = time.monotonic(), why
        log.warning("%s", why)

    def _read_words(self) -> None:
        """Log the driver's output in a scheduler's log, but do not print it to a command's terminal."""
        assert self._process.stderr is not None
        for line in iter(lambda: self._process.stderr.readline(8192), b""):  # type: ignore[union-attr]
            text = line.decode(errors="replace").rstrip()
            if text:
                log.info("%s", text)
        self._process.stderr.close()
