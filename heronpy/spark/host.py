"""`python -m heronpy.spark.host --topology-id ID`: a Spark driver whose tasks are the containers of a topology.

The process is a child of the topology's scheduler, and reads lines of JSON from its standard input: first the
properties of the application, then the containers to start or stop. The process reports the containers' states on
standard output, at least every `TELL_S` seconds. When its standard input is closed, it stops the application and exits.
With `--check MASTER`, it prints the result of each check of this host's requirements, one per line.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import queue
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from msgspec import Struct

from heronpy.common import exit_codes, logs
from heronpy.common.errors import ConfigError, HeronError
from heronpy.connectors.spark.requirements import check_master, check_spark
from heronpy.spark.host_task import container_task
from heronpy.spark.jvm import Jvm, JvmError, write_properties
from heronpy.spark.session import connect

log = logging.getLogger("heronpy.spark")

TELL_S = 2.0
LOOK_S = 0.25
START_S = 300.0
STOP_S = 5.0
ENDS_S = 2.0
#: Prefix of the id of an application that no Spark master has accepted, so none of its jobs has run.
_UNTAKEN = "spark-application-"
#: Maximum number of job threads; heronpy never has more containers than this.
JOBS_MAX = 2000
_WORDS_MAX = 1000
SETTLE_S = 0.5
#: Java's messages for a missing file, or for a file that is not a program.
_NO_PYTHON = "Cannot run program"


class HostJob(Struct):
    """The Spark job of one container."""

    id: str
    group: str
    phase: str = "queued"
    status: int = 0
    words: str = ""
    printed: str = ""
    #: When its end was requested, and when it will be killed.
    asked: bool = False
    kill_at: float = float("inf")
    killed: bool = False
    thread: threading.Thread | None = None

    @property
    def has_ended(self) -> bool:
        return self.phase not in ("queued", "running")

    def shown(self) -> dict[str, Any]:
        """Return the job in the format that the engine reads."""
        return {name: getattr(self, name) for name in ("id", "phase", "status", "words", "printed")}


class HostJobs:
    """The jobs of one SparkContext. `submit`, `cancel` and `look` are called from one thread.

    Only the task status that Spark reports counts. A running job is cancelled only after a delay, because Spark kills
    the task but not the processes that the task has started.
    """

    def __init__(self, context: Any) -> None:
        self._sc = context
        self._jobs: dict[str, HostJob] = {}
        self._lock = threading.Lock()
        self._java = context._jsc.sc()
        self._store = self._java.statusStore()
        self._empty = context._gateway.jvm.java.util.Collections.singletonList("container")

    # ---- commands -------------------------------------------------------------------------------
    def submit(self, given: dict[str, Any]) -> None:
        name = str(given["id"])
        if name in self._jobs:
            return
        job = self._jobs[name] = HostJob(name, f"heron.{given['topology_id']}.{name}")
        if len(self._jobs) > JOBS_MAX:
            job.phase, job.words = "failed", f"a driver runs at most {JOBS_MAX} containers"
            return
        job.thread = threading.Thread(target=self._run, args=(job, given), name=f"container-{name}", daemon=True)
        job.thread.start()

    def cancel(self, name: str, grace_s: float) -> None:
        """Cancel a queued job immediately, and a running job after `grace_s` seconds."""
        job = self._jobs.get(name)
        if job is None or job.has_ended or job.asked:
            return
        job.asked, job.kill_at = True, time.monotonic() + (grace_s if job.phase == "running" else 0.0)

    # ---- states ---------------------------------------------------------------------------
    def look(self) -> None:
        """Read Spark's task states for all unfinished jobs, and kill overdue jobs."""
        for job in [job for job in self._jobs.values() if not job.has_ended]:
            attempts = self._attempts(job.group)
            with self._lock:
                if job.has_ended:
                    continue
                status, executor, host, words = attempts[0] if attempts else ("", "", "", "")
                if status == "RUNNING":
                    job.phase, job.words = "running", f"executor {executor} on {host}"
                elif status in ("FAILED", "KILLED") and not _is_of_python(words):
                    self._lose(job, words)
            if time.monotonic() >= job.kill_at and not job.killed:
                job.killed = True
                self._sc.cancelJobGroup(job.group)

    def _lose(self, job: HostJob, why: str) -> None:
        """Record a lost job: its executor has ended, so Spark would restart the task, or Spark has killed the task."""
        what = "Spark has killed its task" if job.killed else "its executor is lost"
        job.phase, job.words = "lost", f"{what}: {_first_line(why)}".rstrip(": ")
        if not job.killed:
            self._sc.cancelJobGroup(job.group)

    def _attempts(self, group: str) -> list[tuple[str, str, str, str]]:
        """Return the status, executor, host and error of each attempt at a job's task, oldest first."""
        found = []
        tracker = self._java.statusTracker()
        for number in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(number)
            if not info.isDefined():
                continue
            for stage in info.get().stageIds():
                tasks = self._store.taskList(stage, 0, 16)
                for index in range(tasks.size()):
                    task = tasks.apply(index)
                    error = task.errorMessage()
                    words = error.get() if error.isDefined() else ""
                    found.append((task.taskId(), str(task.status()), task.executorId(), task.host(), str(words)))
        return [one[1:] for one in sorted(found)]

    def told(self) -> list[dict[str, Any]]:
        """Return the state of all jobs; an ended job is reported once."""
        with self._lock:
            shown = [job.shown() for job in self._jobs.values()]
            self._jobs = {name: job for name, job in self._jobs.items() if not job.has_ended}
        return shown

    def executors(self) -> int:
        """Return the number of executors of the application."""
        return max(0, int(self._java.getExecutorMemoryStatus().size()) - 1)  # the driver is one of them

    # ---- one job --------------------------------------------------------------------------------
    def _run(self, job: HostJob, given: dict[str, Any]) -> None:  # runs in a thread per job
        from pyspark import RDD
        from pyspark.serializers import UTF8Deserializer

        try:
            self._sc.setJobGroup(job.group, f"container {job.id}", interruptOnCancel=False)
            of_text: Any = UTF8Deserializer()  # type: ignore[no-untyped-call]
            rows: Any = RDD(self._sc._jsc.parallelize(self._empty, 1), self._sc, of_text)
            (line,) = rows.mapPartitions(container_task(given)).collect()
            answer = json.loads(line)
            with self._lock:
                if job.has_ended:
                    return
                if answer.get("repeated"):
                    job.phase, job.words = "lost", "its executor is lost"
                else:
                    job.phase, job.status = "returned", int(answer["status"])
                    job.printed = str(answer["printed"])
        except Exception as error:
            words = _first_line(str(getattr(error, "java_exception", None) or error))
            time.sleep(SETTLE_S)  # Spark reports a task's state with a slight delay
            attempts = self._quietly(job.group)
            with self._lock:
                if job.has_ended:
                    return
                said = next((one[3] for one in attempts if _is_of_python(one[3])), "")
                if said:
                    job.phase, job.words = "failed", _python_error(said)
                elif job.phase == "running" or attempts:
                    self._lose(job, attempts[0][3] if attempts else words)
                else:
                    job.phase, job.words = ("cancelled" if job.asked else "failed"), words

    def _quietly(self, group: str) -> list[tuple[str, str, str, str]]:
        try:
            return self._attempts(group)
        except Exception as error:  # the JVM has ended
            log.debug("cannot read the tasks of %s: %s", group, error)
            return []


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:_WORDS_MAX]


def _is_of_python(text: str) -> bool:
    """Whether a task failed because its host has no suitable Python."""
    return "PythonException" in text or _NO_PYTHON in text


def _python_error(text: str) -> str:
    """Return the last line of a Python traceback in Spark's message, or the reason why Python was not found."""
    if _NO_PYTHON in text:
        return next(line.strip() for line in text.splitlines() if _NO_PYTHON in line)[:_WORDS_MAX]
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("\t", " "))]
    named = [line for line in lines if "Error" in line or "Exception" in line]
    return (named[-1] if named else _first_line(text))[:_WORDS_MAX]


def main(argv: list[str] | None = None) -> int:
    """Run the driver; return the exit code of the process."""
    parser = argparse.ArgumentParser(prog="python -m heronpy.spark.host", description=__doc__)
    parser.add_argument("--topology-id", required=True, help="id of the topology, shown in lists of processes")
    parser.add_argument("--check", metavar="MASTER", help="print the result of each check of this host, and exit")
    arguments = parser.parse_args(argv)
    if arguments.check:
        return check(arguments.check)
    # Output of Spark and its libraries must not be mistaken for this process's reports.
    told = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    logs.setup("spark-driver", descriptor=2)
    # py4j logs long texts about each connection that ends with its JVM.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    return Host(told).run()


def check(master: str) -> int:
    """Check packages and Java, then the master; print one line of JSON per check. Return the exit code."""
    tries: tuple[tuple[str, Callable[[], None], str, str], ...] = (
        ("Spark's driver", lambda: check_spark(master), "pyspark and Java are installed", "install it on this host"),
        ("Spark's master", lambda: check_master(master), master, "correct heron.spark_engine.master"),
    )
    for what, attempt, detail, fix in tries:
        ok = True
        try:
            attempt()
        except ConfigError as error:
            ok, detail = False, str(error).replace("heron.spark.master", "heron.spark_engine.master")
            detail = detail.replace("this topology needs Spark", "the engine needs Spark's driver")
        print(json.dumps({"what": what, "ok": ok, "detail": detail, "fix": fix}), flush=True)
        if not ok:
            return int(exit_codes.FAILURE)
    return int(exit_codes.OK)


class Host:
    """One application; `told` is the stream for its reports."""

    def __init__(self, told: IO[str]) -> None:
        self._out = told
        #: Lines from the scheduler; None at their end.
        self._lines: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._over = threading.Event()
        self._jvm: Jvm | None = None
        self._context: Any = None
        self._jobs: HostJobs | None = None
        self._last: dict[str, Any] = {}
        self._told_at = float("-inf")

    def run(self) -> int:
        """Run until the scheduler closes this process's standard input, or the application ends."""
        # The parent sets the folder, and removes files that this process cannot remove.
        folder = Path(os.environ.get("HERON_SPARK_SCRATCH") or tempfile.mkdtemp(prefix="heron-spark-"))
        tempfile.tempdir = str(folder)
        threading.Thread(target=self._read, name="commands", daemon=True).start()
        try:
            first = self._lines.get()
            if first is None:
                return int(exit_codes.OK)
            self._start(first, folder)
            return self._serve()
        except (HeronError, OSError) as error:
            return self._fail(str(error))
        except Exception as error:
            if self._jvm is not None and self._has_ended(self._jvm):
                return self._fail(f"its JVM ended: {self._jvm.output.termination_report(wait_s=1.0)}")
            java = getattr(error, "java_exception", None)
            said = str(java if java is not None else error).strip().splitlines()
            return self._fail(said[0] if said else type(error).__name__)
        finally:
            self._stop()
            shutil.rmtree(folder, ignore_errors=True)

    @staticmethod
    def _has_ended(jvm: Jvm) -> bool:
        """Wait up to `ENDS_S` seconds for a JVM whose sockets may have closed; return whether it has ended."""
        deadline = time.monotonic() + ENDS_S
        while jvm.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        return jvm.process.poll() is not None

    def _fail(self, why: str) -> int:
        if self._over.is_set():
            return int(exit_codes.OK)
        self._tell({"failed": f"the Spark application has ended: {why}"})
        return int(exit_codes.FAILURE)

    # ---- start and end -----------------------------------------------------------------------------------
    def _start(self, first: dict[str, Any], folder: Path) -> None:
        properties, python = dict(first["properties"]), str(first["python"])
        for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE", "SPARK_LOCAL_DIRS", "PYSPARK_GATEWAY_PORT"):
            os.environ.pop(name, None)
        os.environ["SPARK_LOCAL_IP"] = str(first["address"])
        os.environ["PYSPARK_PYTHON"], os.environ["PYSPARK_DRIVER_PYTHON"] = python, sys.executable
        properties["spark.local.dir"] = str(folder)
        file = folder / "spark.properties"
        write_properties(file, properties)

        def started(jvm: Jvm) -> None:
            self._jvm = jvm

        connect(file, time.monotonic() + START_S, started)
        from pyspark import SparkContext, cloudpickle
        from pyspark.serializers import NoOpSerializer

        from heronpy.spark import host_task

        cloudpickle.register_pickle_by_value(host_task)  # type: ignore[no-untyped-call]
        # Bytes are returned unchanged: data from another host is never unpickled here.
        self._context = SparkContext()
        self._context.serializer = NoOpSerializer()
        master = str(properties["spark.master"])
        if master.startswith("spark://") and str(self._context.applicationId).startswith(_UNTAKEN):
            raise JvmError(f"no master at {master} has accepted the application")
        self._jobs = HostJobs(self._context)
        log.info("application %s is running at %s", self._context.applicationId, self._context.master)

    def _serve(self) -> int:
        assert self._jobs is not None and self._jvm is not None
        while not self._over.is_set():
            try:
                line = self._lines.get(timeout=LOOK_S)
                while line is not None:
                    self._do(line)
                    line = self._lines.get_nowait()
            except queue.Empty:
                pass
            if (code := self._jvm.process.poll()) is not None:
                raise JvmError(f"its JVM ended ({code}): {self._jvm.output.termination_report(wait_s=1.0)}")
            if self._context._jsc.sc().isStopped():
                raise JvmError(f"the cluster has removed the application: {self._jvm.output.termination_report()}")
            self._jobs.look()
            self._tell(
                {
                    "ready": True,
                    "application": self._context.applicationId,
                    "executors": self._jobs.executors(),
                    "jobs": self._jobs.told(),
                }
            )
        return int(exit_codes.OK)

    def _do(self, line: dict[str, Any]) -> None:
        assert self._jobs is not None
        if line.get("do") == "submit":
            self._jobs.submit(line)
        elif line.get("do") == "cancel":
            self._jobs.cancel(str(line["id"]), float(line["grace_s"]))

    def _tell(self, words: dict[str, Any]) -> None:
        """Write a report to the scheduler, unless the same report was written recently."""
        now = time.monotonic()
        if words == self._last and now - self._told_at < TELL_S:
            return
        self._last, self._told_at = words, now
        try:
            self._out.write(json.dumps(words) + "\n")
            self._out.flush()
        except (OSError, ValueError):  # no process listens there
            self._over.set()

    def _read(self) -> None:
        for line in sys.stdin.buffer:
            self._lines.put(json.loads(line))
        self._over.set()
        self._lines.put(None)
        # The process must end even if other threads hang: without a scheduler there is no application.
        time.sleep(3 * STOP_S if self._jobs is not None else 0.0)
        self._end_jvm()
        os._exit(int(exit_codes.FAILURE))

    def _stop(self) -> None:
        if self._context is not None and self._jvm is not None and self._jvm.process.poll() is None:
            stopping = threading.Thread(target=self._context.stop, name="stop", daemon=True)
            stopping.start()
            stopping.join(STOP_S)
        self._end_jvm()

    def _end_jvm(self) -> None:
        if self._jvm is not None:
            self._jvm.end()


if __name__ == "__main__":
    code = main()
    # Threads of jobs wait for tasks of an application that has ended.
    sys.stdout.flush()
    os._exit(code)
