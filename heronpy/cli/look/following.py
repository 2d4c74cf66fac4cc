"""Follows the logs of a topology until it ends."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from heronpy.clusters.ending import End, Ending, Life
from heronpy.clusters.log_folders import is_meant
from heronpy.clusters.session import Session
from heronpy.common.errors import HeronError
from heronpy.common.log_files import log_processes, read_logs
from heronpy.common.log_format import Record
from heronpy.proto import control_pb2, plan_pb2

FOLLOW_POLL_S = 0.1
FOLLOWED_MAX = 200
#: Interval of the checks whether the topology still runs.
LOOK_S = 1.0
#: After the end of a topology, how long to wait for the last records of its processes.
LAST_S = 1.0
#: Number of recent records that are remembered to drop duplicates.
KNOWN_MAX = 100_000


class EndWatch:
    """Checks in a separate thread whether a topology still runs, because an answer may take a long time."""

    def __init__(self, session: Session, topology: str, running: plan_pb2.ExecutionState | None) -> None:
        """`running` is the topology's record, or None if the topology has already ended."""
        self._session, self._topology, self._running = session, topology, running
        self._over = threading.Event()
        #: None while the topology may still be running.
        self.end: End | None = None if running is not None else End.REMOVED

    def start(self) -> None:
        """Start checking; returns immediately."""
        if self._running is not None:
            threading.Thread(target=self._run, args=(self._running,), daemon=True).start()

    def stop(self) -> None:
        """Stop checking; idempotent."""
        self._over.set()

    def _run(self, running: plan_pb2.ExecutionState) -> None:
        # For a topology submitted elsewhere, only its endpoint and the state manager can answer.
        ending = Ending(not self._session.is_here(running), time.monotonic())
        while self.end is None and not self._over.wait(LOOK_S):
            found = Life.UNKNOWN
            with suppress(HeronError, OSError):
                found = self._life(running)
            self.end = ending.look(found, time.monotonic())

    def _life(self, running: plan_pb2.ExecutionState) -> Life:
        session, name = self._session, self._topology
        try:
            record = session.record(name)
        except HeronError:
            if session.is_forgotten(running):
                return Life.REMOVED
            raise
        if record is None:
            return Life.REMOVED
        if record.topology_id != running.topology_id:
            return Life.REPLACED
        placed = session.containers(name) if session.engine_of(name) else None
        if placed is not None and placed.killing:
            return Life.KILLING
        with suppress(HeronError, OSError):
            status = session.poll(name)
            if status is not None and status.topology_id == running.topology_id:
                return Life.FINISHED if status.lifecycle == control_pb2.LIFE_FINISHED else Life.RUNS
        return Life.RUNS


class _Once:
    """Drops the second copy of a record: the tail of a container's log is also in the folder of kept logs."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, float, str], Path] = {}

    def take(self, folder: Path, name: str, record: Record) -> bool:
        """Whether the record is new: no equal record was found before in another folder."""
        first = self._known.setdefault((name, record.when, record.text), folder)
        if len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]
        return first == folder


def followed_records(
    folders: list[Path],
    names: list[str],
    what: tuple[str, ...],
    since: float | None,
    level: str | None,
    over: Callable[[], bool],
) -> Iterator[Record]:
    """Yield records as they are written, until `over` returns True and all remaining records have been read.

    Processes that start later are included if they match `what`.
    """
    arrived: queue.Queue[tuple[Path, str, Record]] = queue.Queue(maxsize=10_000)
    stopped = threading.Event()
    readers: dict[tuple[Path, str], threading.Thread] = {}
    once = _Once()

    def follow(folder: Path, name: str) -> None:
        for record in read_logs(folder, name, since, level, follow=True, stop=stopped.is_set, poll_s=FOLLOW_POLL_S):
            arrived.put((folder, name, record))

    def start(wanted: Callable[[str], object]) -> None:
        for folder in folders:
            for name in log_processes(folder):
                if (folder, name) not in readers and wanted(name) and len(readers) < FOLLOWED_MAX:
                    readers[folder, name] = threading.Thread(target=follow, args=(folder, name), daemon=True)
                    readers[folder, name].start()

    start(names[:FOLLOWED_MAX].__contains__)
    look_at, ends_at = time.monotonic(), float("inf")
    try:
        while not stopped.is_set() or not arrived.empty() or any(one.is_alive() for one in readers.values()):
            with suppress(queue.Empty):
                folder, name, record = arrived.get(timeout=0.1 if over() else 0.5)
                if once.take(folder, name, record):
                    yield record
            now = time.monotonic()
            ends_at = min(ends_at, now + LAST_S) if over() else ends_at
            if stopped.is_set() or now < min(look_at, ends_at):
                continue
            look_at = now + 1.0
            start(lambda name: not what or any(is_meant(name, word) for word in what))
            if now >= ends_at:
                stopped.set()
    finally:
        stopped.set()
