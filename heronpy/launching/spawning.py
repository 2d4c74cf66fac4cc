"""Starts the scheduler of a topology as a daemon, and explains a failed start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from heronpy.clusters.errors import RequestError
from heronpy.clusters.session import Session
from heronpy.common import exit_codes
from heronpy.common.errors import DeadlineError, HeronError
from heronpy.common.folders import open_private
from heronpy.launching.environment import child_environment
from heronpy.plan.launch import LAUNCH_VARIABLE, LaunchSpec
from heronpy.procs.linux import die_with_parent
from heronpy.proto import plan_pb2

#: Time limit for the start of a scheduler, in seconds. It is long enough for a very busy machine.
SCHEDULER_START_S = 60.0
LOG_TAIL_LINES = 30


class ReportedError(HeronError):
    """An error with a report, such as the tail of a log, that is shown before the error's sentence."""

    def __init__(self, text: str, report: str) -> None:
        super().__init__(text)
        self.report = report


def spawn_scheduler(spec: LaunchSpec, launch_file: str) -> subprocess.Popen[bytes]:
    """Start the scheduler as a daemon, with a separate session and log, and without a terminal."""
    return _spawn(spec, launch_file, None)


def spawn_child(spec: LaunchSpec, launch_file: str) -> subprocess.Popen[bytes]:
    """Start the scheduler as a child that ends when this process dies. Call it from the main thread."""
    parent = os.getpid()
    return _spawn(spec, launch_file, lambda: die_with_parent(signal.SIGTERM, parent))


def _spawn(spec: LaunchSpec, launch_file: str, before: Callable[[], object] | None) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-P", "-m", "heronpy.scheduler", "--launch", launch_file]
    with open(open_private(spec.log_dir / "scheduler.log", os.O_WRONLY | os.O_APPEND), "ab") as log:
        return subprocess.Popen(
            argv,
            env=child_environment({LAUNCH_VARIABLE: launch_file}),
            cwd=spec.working_dir,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=before,
        )


def wait_scheduler(
    session: Session, record: plan_pb2.ExecutionState, spec: LaunchSpec, scheduler: subprocess.Popen[bytes]
) -> None:
    deadline = time.monotonic() + SCHEDULER_START_S
    pause = 0.01
    while session.scheduler_location(record.topology) is None:
        if scheduler.poll() is not None:
            raise scheduler_died(spec, scheduler)
        if time.monotonic() > deadline:
            raise DeadlineError(
                f"the scheduler of '{record.topology}' did not start within {SCHEDULER_START_S:g} s;"
                f" see {spec.log_dir / 'scheduler.log'}"
            )
        time.sleep(pause)
        pause = min(pause * 1.05, 0.1)  # an additional check costs less than a late check


def scheduler_died(spec: LaunchSpec, scheduler: subprocess.Popen[bytes]) -> HeronError:
    """Return the error for a scheduler that has ended, with the tail of its log. If the host refused the topology, the
    error contains only the reason.
    """
    from heronpy.procs.child_log import last_line_of  # needed only when a submit fails

    path, tail = spec.log_dir / "scheduler.log", b""
    with suppress(OSError), open(path, "rb") as file:
        file.seek(max(path.stat().st_size - 16384, 0))
        tail = file.read()
    if scheduler.returncode == exit_codes.REFUSED and (sentence := last_line_of(tail)):
        return RequestError(sentence)
    lines = tail.decode(errors="replace").splitlines()[-LOG_TAIL_LINES:]
    return ReportedError(
        f"the scheduler of '{spec.topology}' ended with code {scheduler.returncode}; its log is {path}",
        "\n".join(lines),
    )
