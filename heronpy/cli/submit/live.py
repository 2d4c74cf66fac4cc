"""The steps of `heronpy.submit`: from a topology object to a running topology, without leftovers on failure."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from heronpy.cli.submit.live_code import package_of
from heronpy.cli.submit.loader import rename
from heronpy.cli.submit.waiting import until_running
from heronpy.clusters.session import Session
from heronpy.launching import submission
from heronpy.launching.model import Started
from heronpy.launching.restoring import choose
from heronpy.procs.interrupts import uninterrupted
from heronpy.proto import topology_pb2


def start(
    session: Session, message: topology_pb2.Topology, name: str | None, restore: str | None, timeout_s: float
) -> Started:
    """Start a topology and wait until every task has initialised; a failure or interrupt leaves nothing behind."""
    begun_at, submitted_at = time.monotonic(), time.time()
    session.check_cluster()
    if name is not None:
        rename(message, name)
    with tempfile.TemporaryDirectory(prefix="heron-submit-", ignore_cleanup_errors=True) as scratch:
        loaded = package_of(message, Path(scratch) / "package")
        planned = submission.plan(session, loaded.topology)
        if restore is not None:
            planned.restore = choose(planned, restore, allow_dropped=False)
        started = submission.start(session, planned, loaded, begun_at=submitted_at)
    try:
        until_running(session, started, planned.tasks, timeout_s, begun_at)
    except BaseException:
        with uninterrupted():
            submission.take_down(session, started)
        started.scheduler.wait(submission.CLEAN_UP_S)
        raise
    return started
