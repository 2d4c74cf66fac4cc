"""Destinations of an executor's metrics in addition to the topology master: a file of JSON lines, or Graphite.

Each sink has its own thread, and no other thread waits for it. At most `QUEUE_MAX` snapshots wait for a sink, and each
has at most `SAMPLES_MAX` samples. Excess or undeliverable samples are dropped and counted. A failing sink logs a
warning at most every `WARN_AGAIN_S`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import socket
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from heronpy.common.folders import make_folders
from heronpy.common.log_files import rotate
from heronpy.common.setting_types import MetricsSettings
from heronpy.proto import control_pb2

log = logging.getLogger("heronpy.executor")

QUEUE_MAX = 4
SAMPLES_MAX = 20_000
WARN_AGAIN_S = 3600.0
#: Time limit for connecting, and for sending a snapshot.
GRAPHITE_S = 5.0
#: Time for waiting snapshots when the executor ends.
CLOSE_S = 1.0

FILE, GRAPHITE = "file", "graphite"

Reports = list[control_pb2.MetricsReport]


class Writer(Protocol):
    """Delivers snapshots to one destination."""

    #: Name of the sink in warnings.
    where: str

    def write(self, at: float, reports: Reports) -> None:
        """Deliver a snapshot; raises OSError if that fails. May block."""

    def close(self) -> None:
        """Close the destination. Idempotent."""


class JsonFile:
    """Appends snapshots to the file `path`; at `max_bytes` it is renamed path.1, path.1 is renamed path.2, and so on,
    up to `files_max` files. Lines are never split.
    """

    def __init__(self, path: Path, topology: str, max_bytes: int, files_max: int) -> None:
        self.where = str(path)
        self._path, self._topology = path, topology
        self._max_bytes, self._files_max = max_bytes, files_max

    def write(self, at: float, reports: Reports) -> None:
        # Imported here, because most executors have no sink, and msgspec would cost them memory.
        from heronpy.executor.sink_formats import json_lines

        data = json_lines(self._topology, at, reports)
        make_folders(self._path.parent)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._path, flags, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if size and size + len(data) > self._max_bytes:
                rotate(self._path, self._files_max)
                os.close(descriptor)
                descriptor, size = -1, 0
                descriptor = os.open(self._path, flags, 0o600)
            self._append(descriptor, data, size)
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    @staticmethod
    def _append(descriptor: int, data: bytes, size: int) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(descriptor, view) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, size)  # no partial line
            raise

    def close(self) -> None:
        """Do nothing, because no file is open between two snapshots."""


class GraphiteLink:
    """Sends snapshots over one connection, which is reopened when it breaks."""

    def __init__(self, host: str, port: int, prefix: str, topology: str) -> None:
        self.where = f"{host}:{port}"
        self._address = host, port
        self._prefix, self._topology = prefix, topology
        self._sock: socket.socket | None = None

    def write(self, at: float, reports: Reports) -> None:
        from heronpy.executor.sink_formats import graphite_lines  # imported here for the same reason as in JsonFile

        data = graphite_lines(self._prefix, self._topology, at, reports)
        try:
            if self._sock is not None and self._has_ended(self._sock):
                self.close()
            if self._sock is None:
                self._sock = socket.create_connection(self._address, GRAPHITE_S)
            self._sock.settimeout(GRAPHITE_S)
            self._sock.sendall(data)
        except OSError:
            self.close()
            raise

    @staticmethod
    def _has_ended(sock: socket.socket) -> bool:
        """Whether the peer has closed the connection. A send on a closed connection would still seem to succeed."""
        sock.setblocking(False)
        try:
            return not sock.recv(1024)
        except BlockingIOError:
            return False

    def close(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None


class _Worker:
    """A sink with a queue, and the thread that empties the queue."""

    def __init__(self, name: str, writer: Writer) -> None:
        self.name = name
        self.written = self.discarded = 0
        self._writer = writer
        self._waiting: queue.Queue[tuple[float, Reports]] = queue.Queue(QUEUE_MAX)
        self._ending = threading.Event()
        self._warned_at = float("-inf")
        #: Guards the counts of dropped snapshots, because both threads drop snapshots.
        self._dropping = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"sink-{name}", daemon=True)
        self._thread.start()

    def offer(self, at: float, reports: Reports) -> None:
        """Queue reports without waiting."""
        try:
            self._waiting.put_nowait((at, reports))
        except queue.Full:
            self._drop(reports, "it is too slow")

    def _run(self) -> None:
        while not (self._ending.is_set() and self._waiting.empty()):
            try:
                at, reports = self._waiting.get(timeout=0.2)
            except queue.Empty:
                continue
            try:
                self._writer.write(at, reports)
            except OSError as error:
                self._drop(reports, error.strerror or str(error) or type(error).__name__)
            except Exception as error:
                log.exception("the %s sink failed", self.name)
                self._drop(reports, type(error).__name__)
            else:
                self.written += _count(reports)
        self._writer.close()

    def _drop(self, reports: Reports, why: str) -> None:
        now = time.monotonic()
        with self._dropping:
            self.discarded += _count(reports)
            warned = now - self._warned_at < WARN_AGAIN_S
            if not warned:
                self._warned_at = now
        if not warned:
            log.warning(
                "metrics do not reach the %s sink at %s (%s); they are discarded for now, and counted in"
                " __executor/__sink_samples_discarded",
                self.name,
                self._writer.where,
                why,
            )

    def end(self) -> None:
        """Deliver the queued reports, then end."""
        self._ending.set()

    def join(self, deadline: float) -> None:
        self._thread.join(max(0.0, deadline - time.monotonic()))


class Sinks:
    """The sinks that the settings enable."""

    def __init__(self, topology: str, executor: str, working_dir: Path, settings: MetricsSettings) -> None:
        self._workers: list[_Worker] = []
        #: Number of samples that were omitted because a snapshot had more than SAMPLES_MAX, counted once for all sinks.
        self._beyond = 0
        if settings.file_sink:
            path = working_dir / "metrics" / f"{executor}.jsonl"
            file = JsonFile(path, topology, settings.file_sink_max_bytes, settings.file_sink_files_max)
            self._workers.append(_Worker(FILE, file))
        if settings.graphite_host:
            link = GraphiteLink(settings.graphite_host, settings.graphite_port, settings.graphite_prefix, topology)
            self._workers.append(_Worker(GRAPHITE, link))

    @property
    def names(self) -> list[str]:
        return [worker.name for worker in self._workers]

    @property
    def written(self) -> dict[str, int]:
        """The number of delivered samples, by sink."""
        return {worker.name: worker.written for worker in self._workers}

    @property
    def discarded(self) -> dict[str, int]:
        """The number of samples that were not delivered, by sink."""
        return {worker.name: worker.discarded + self._beyond for worker in self._workers}

    def offer(self, at: float, reports: Iterable[control_pb2.MetricsReport]) -> None:
        """Offer a snapshot to all sinks without waiting. `at`: seconds since 1970; `reports` must not change later."""
        chosen: Reports = []
        room = SAMPLES_MAX
        for report in reports:
            if len(report.samples) > room:
                self._beyond += len(report.samples)
            else:
                room -= len(report.samples)
                chosen.append(report)
        for worker in self._workers:
            worker.offer(at, chosen)

    def close(self) -> None:
        """End all sinks, after delivering queued snapshots for at most CLOSE_S."""
        for worker in self._workers:
            worker.end()
        deadline = time.monotonic() + CLOSE_S
        for worker in self._workers:
            worker.join(deadline)


def _count(reports: Reports) -> int:
    return sum(len(report.samples) for report in reports)
