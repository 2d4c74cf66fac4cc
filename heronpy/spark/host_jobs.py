"""The jobs of a driver whose tasks are containers: one each, started, followed and cancelled.

Spark is asked for what it knows of a task, and only its answer counts: a job that has begun is cancelled late, because
Spark kills a task without asking what it has started.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from heronpy.spark.host_task import container_task

log = logging.getLogger("heronpy.spark")

#: Threads of jobs; more containers than this are none of ours.
JOBS_MAX = 2000
_WORDS_MAX = 1000
SETTLE_S = 0.5
#: So Java says that a file is missing, or is no program.
_NO_PYTHON = "Cannot run program"


@dataclass
class HostJob:
    """One container."""

    id: str
    group: str
    phase: str = "queued"
    status: int = 0
    words: str = ""
    printed: str = ""
    #: When its end was asked for, and when it is to be killed.
    asked: bool = False
    kill_at: float = float("inf")
    killed: bool = False
    thread: threading.Thread | None = field(default=None, repr=False)

    @property
    def has_ended(self) -> bool:
        return self.phase not in ("queued", "running")

    def shown(self) -> dict[str, Any]:
        """As the engine reads it."""
        return {
            "id": self.id,
            "phase": self.phase,
            "status": self.status,
            "words": self.words,
            "printed": self.printed,
        }


class HostJobs:
    """The jobs of one SparkContext. `submit`, `cancel` and `look` are called from one thread."""

    def __init__(self, context: Any) -> None:
        self._sc = context
        self._jobs: dict[str, HostJob] = {}
        self._lock = threading.Lock()
        self._java = context._jsc.sc()
        self._store = self._java.statusStore()
        self._empty = context._gateway.jvm.java.util.Collections.singletonList("container")

    # ---- commands -------------------------------------------------------------------------------
    def submit(self, given: dict[str, Any]) -> None:
        """Start the job of a container."""
        name = str(given["id"])
        if name in self._jobs:
            return
        job = self._jobs[name] = HostJob(name, f"heron.{given['topology_id']}.{name}")
        if len(self._jobs) > JOBS_MAX:
            job.phase, job.words = "failed", f"a driver runs {JOBS_MAX} containers at most"
            return
        job.thread = threading.Thread(target=self._run, args=(job, given), name=f"container-{name}", daemon=True)
        job.thread.start()

    def cancel(self, name: str, grace_s: float) -> None:
        """End a job that has not begun now, and any other after `grace_s`."""
        job = self._jobs.get(name)
        if job is None or job.has_ended or job.asked:
            return
        job.asked, job.kill_at = True, time.monotonic() + (grace_s if job.phase == "running" else 0.0)

    # ---- what is seen ---------------------------------------------------------------------------
    def look(self) -> None:
        """Ask Spark for the tasks of all jobs that have not ended, and kill those whose time is up."""
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
        """Its executor is gone, and Spark would start the task again; or Spark has killed it."""
        what = "Spark has killed its task" if job.killed else "its executor is lost"
        job.phase, job.words = "lost", f"{what}: {_first_line(why)}".rstrip(": ")
        if not job.killed:
            self._sc.cancelJobGroup(job.group)

    def _attempts(self, group: str) -> list[tuple[str, str, str, str]]:
        """Status, executor, host and error of each attempt of a job's task, oldest first."""
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
        """All jobs as they are; those that have ended are told once."""
        with self._lock:
            shown = [job.shown() for job in self._jobs.values()]
            self._jobs = {name: job for name, job in self._jobs.items() if not job.has_ended}
        return shown

    def executors(self) -> int:
        """How many executors the application has."""
        return max(0, int(self._java.getExecutorMemoryStatus().size()) - 1)  # the driver is one of them

    # ---- one job --------------------------------------------------------------------------------
    def _run(self, job: HostJob, given: dict[str, Any]) -> None:  # in a thread of its own
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
            time.sleep(SETTLE_S)  # what Spark says of a task is a little behind
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
            log.debug("no tasks of %s: %s", group, error)
            return []


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:_WORDS_MAX]


def _is_of_python(text: str) -> bool:
    """Whether a task failed in its own Python, or for want of one: nothing of it runs."""
    return "PythonException" in text or _NO_PYTHON in text


def _python_error(text: str) -> str:
    """The last line of a Python traceback in Spark's words, or why there was no Python."""
    if _NO_PYTHON in text:
        return next(line.strip() for line in text.splitlines() if _NO_PYTHON in line)[:_WORDS_MAX]
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("\t", " "))]
    named = [line for line in lines if "Error" in line or "Exception" in line]
    return (named[-1] if named else _first_line(text))[:_WORDS_MAX]
