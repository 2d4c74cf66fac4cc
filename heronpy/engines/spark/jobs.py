"""Translates a job's state, as its driver reports it, into the terms of the engine contract. Pure.

An end is confirmed when the task has returned, because it waits for the container's first process, which leaves no
other process behind. If the executor or driver of a job is lost, the processes of its task may still be running.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from heronpy.engines.contract import Ended, EnginePhase, Seen
from heronpy.procs.exit_reason import ExitHints, ExitReason, classify, describe_status

_ID: Final = re.compile(r"(\d{1,9})\.(\d{1,9})")
#: Phases that a driver reports.
QUEUED, RUNNING, RETURNED, FAILED, LOST, CANCELLED = "queued", "running", "returned", "failed", "lost", "cancelled"
PHASES: Final = frozenset({QUEUED, RUNNING, RETURNED, FAILED, LOST, CANCELLED})
_WORDS_MAX: Final = 1000
#: Maximum number of ended jobs that are shown, newest first.
ENDED_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class Job:
    """One submission of one container, which is one Spark job."""

    container: int
    submission: int
    phase: str = QUEUED
    #: Wait status as os.wait returns it, for a job that has returned.
    status: int = 0
    words: str = ""
    #: The end of its first process's output.
    printed: str = ""

    @property
    def engine_id(self) -> str:
        """The engine id, such as `2.1` for the first submission of container 2."""
        return id_of(self.container, self.submission)

    @property
    def has_ended(self) -> bool:
        return self.phase not in (QUEUED, RUNNING)


def id_of(container: int, submission: int) -> str:
    return f"{container}.{submission}"


def who_of(engine_id: str) -> tuple[int, int] | None:
    """Parse an engine id into container and submission; None if the id is not from this engine."""
    found = _ID.fullmatch(engine_id)
    return (int(found[1]), int(found[2])) if found is not None else None


@dataclass(frozen=True, slots=True)
class Told:
    """One report from a driver."""

    ready: bool = False
    application: str = ""
    executors: int = 0
    #: Why the driver ends; empty while it continues.
    failed: str = ""
    jobs: tuple[Job, ...] = ()


def told_of(line: Mapping[str, Any]) -> Told:
    """Parse a line from a driver; raises ValueError if the line is invalid."""
    try:
        jobs = []
        for one in line.get("jobs", ()):
            who = who_of(str(one["id"]))
            if who is None or one["phase"] not in PHASES:
                raise ValueError(f"a Spark driver reports an unknown job {str(one)[:200]}")
            words, printed = str(one.get("words", ""))[:_WORDS_MAX], str(one.get("printed", ""))
            jobs.append(Job(*who, one["phase"], int(one.get("status", 0)), words, printed))
        failed = str(line.get("failed", ""))[:_WORDS_MAX]
        application, executors = str(line.get("application", "")), int(line.get("executors", 0))
        return Told(bool(line.get("ready")), application, executors, failed, tuple(jobs))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a Spark driver sent an invalid report: {error}") from None


def after_driver(job: Job, was_ready: bool, why: str) -> Job:
    """The new state of a job whose driver has ended. The job may still be running if it had an application."""
    if job.has_ended:
        return job
    return replace(job, phase=LOST if was_ready else FAILED, words=why)


def seen_of(job: Job, starting: bool = False, why: str = "") -> Seen:
    """Translate a job's state for the engine contract. `starting` is set while the application starts; `why` says why
    the job is queued.

    The host is left out, because the container itself reports the host name that users know.
    """
    who = job.container, job.submission
    match job.phase:
        case "queued":
            phase = EnginePhase.STARTING if starting else EnginePhase.QUEUED
            return Seen(job.engine_id, *who, phase, words=why)
        case "running":
            return Seen(job.engine_id, *who, EnginePhase.RUNNING, words=job.words)
        case "lost":
            words = job.words or "its executor is lost"
            return Seen(job.engine_id, *who, EnginePhase.ENDED, ended=Ended.UNCONFIRMED, words=words)
        case "returned":
            reason = classify(job.status, ExitHints())
            code = None if job.status & 0x7F else job.status >> 8
            words = describe_status(job.status)
            return Seen(
                job.engine_id, *who, EnginePhase.ENDED, "", Ended.CONFIRMED, reason, code, words=words
            )  # fmt: skip
    reason = ExitReason.PREEMPTED if job.phase == CANCELLED else ExitReason.SPAWN_FAILED
    words = job.words or job.phase
    return Seen(job.engine_id, *who, EnginePhase.ENDED, "", Ended.CONFIRMED, reason, words=words)


def waits_for(told: Told, slots: int, words: str, starting: bool) -> str:
    """The reason why a job is queued; `words` describes each executor's resources.

    `starting` is set while the application is so young that executors may still be starting.
    """
    if not told.ready:
        return "the Spark application is starting"
    if told.executors >= slots:
        return f"application {told.application}: its executors are busy"
    why = "the other executors are starting" if starting else "no worker in the cluster has these resources free"
    return f"application {told.application} has {told.executors} of {slots} executors, each with {words}: {why}"
