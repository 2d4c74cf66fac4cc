"""The gateway's loop: receives hints from sinks and results from the worker, and passes tickets to the worker.

The loop owns the ROUTER socket for sinks, and tracks the outcomes for which sinks wait. The records of
`connectors.spark.records` are the source of truth, so the loop may be killed at any point: its successor scans the
records, and the sinks repeat their hints.

Only the latest of several gateways counts: an earlier gateway that is still running cannot decide a batch twice, and
stops when it sees the latest gateway. On one host, a file lock keeps the next gateway from starting before the earlier
gateway has stopped, because both would use the same socket.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

import zmq

from heronpy.common.engine_settings import EngineSettings
from heronpy.common.errors import FencedError
from heronpy.common.exit_codes import CHILD_ENDED, FAILURE, OK, STARTUP_FAILURE
from heronpy.common.flock import open_lock, try_flock
from heronpy.common.folders import make_folders, open_private
from heronpy.common.setting_types import SecuritySettings, SparkSettings
from heronpy.common.settings import settings_for
from heronpy.connectors.durable_files import run_token
from heronpy.connectors.spark.handover import SOCKET_NAME, gateway_endpoint, parse_stem
from heronpy.connectors.spark.link import MESSAGE_MAX_BYTES, Finished, Message, Probe, Ready, Session, decode, encode
from heronpy.connectors.spark.records import GatewayPlace, forget_runs, records_of
from heronpy.connectors.spark.requirements import is_connect
from heronpy.net.addresses import ports_of
from heronpy.net.authenticator import Authenticator
from heronpy.net.curve import Keys
from heronpy.net.transport import bind, endpoint_of, keys_of
from heronpy.net.zsock import configure
from heronpy.plan.launch import LaunchSpec
from heronpy.spark.archive import find_archive
from heronpy.spark.batch import Batch
from heronpy.spark.connect import ConnectDriver
from heronpy.spark.driver import Driver, SparkStartError
from heronpy.spark.inbox import Inbox, inboxes_of
from heronpy.spark.lanes import Lanes, Ticket
from heronpy.spark.outage import outage_of
from heronpy.spark.reports import Reports
from heronpy.spark.session import SparkDriver
from heronpy.spark.worker import Lost, Result, Worker
from heronpy.storage.objects.port import ObjectsError

log = logging.getLogger("heronpy.spark")

#: Interval in seconds of the scan for batches whose hint was lost together with their sink.
SCAN_S = 5.0
#: Prefix of the name of the file with the final figures; the topology's id follows.
LAST_REPORT = ".last-"
_TURN_MAX_S = 0.5
_METRICS_S = 1.0
_LOCK_WAIT_S = 10.0
_GONE = "the batch was withdrawn by a newer process of its task"


class AuthenticatorThread:
    """Guards the gateway's TCP socket: admits holders of the topology's key until `close`.

    The `Authenticator` runs in a thread with an event loop, because the gateway has no event loop. Create this object
    before the socket is bound, and close it before the socket; in between, only the thread uses the socket's monitor.
    """

    def __init__(self, keys: Keys, sock: zmq.Socket[bytes]) -> None:
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._authenticator: Authenticator | None = None
        self._taken = 0
        self._thread = threading.Thread(target=self._run, args=(keys, sock), name="authenticator", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            raise self._error

    def _run(self, keys: Keys, sock: zmq.Socket[bytes]) -> None:
        try:
            self._loop.run_until_complete(self._serve(keys, sock))
        except BaseException as error:
            self._error = error
        finally:
            self._loop.close()
            self._ready.set()

    async def _serve(self, keys: Keys, sock: zmq.Socket[bytes]) -> None:
        authenticator = self._authenticator = Authenticator(keys)
        try:
            authenticator.watch(sock)
            self._ready.set()
            await self._over.wait()
        finally:
            authenticator.close()

    def take_refused(self) -> int:
        """Return the number of connections refused since the last call."""
        refused = self._authenticator.refused if self._authenticator is not None else 0
        taken, self._taken = self._taken, refused
        return refused - taken

    def close(self) -> None:
        """End the thread; idempotent."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join()


class Gateway:
    """The process behind `python -m heronpy.spark`."""

    def __init__(self, launch: LaunchSpec, settings: SparkSettings, epoch: int, reports: Reports) -> None:
        self._launch = launch
        self._dir = Path(launch.working_dir) / "spark"
        make_folders(self._dir)
        self._epoch = epoch
        self._reports = reports
        self._is_between_hosts = bool(settings.handover)
        self._records = records_of(launch)
        self._dispatches = inboxes_of(launch.submitted.dispatch_homes, run_token(launch.topology_id), epoch)
        self._inbox = Inbox(self._records, epoch, self._dispatches)
        make_batch = partial(Batch, epoch=epoch, shared=_shared_folders(launch))
        self._last = self._dir / f"{LAST_REPORT}{launch.topology_id}"
        name = f"heron-{launch.topology}"
        self._driver = open_driver(settings, self._dir, name, launch)
        self._lanes = Lanes()
        self._waiting: dict[Ticket, bytes] = {}
        #: When each batch without an outcome was first seen, and the sinks that ever had such a batch.
        self._seen: dict[Ticket, float] = {}
        self._sinks: set[str] = set()
        #: The outage that each batch waits for.
        self._outages: dict[Ticket, str] = {}
        self._parallel = settings.parallel_batches
        self._is_up = False
        self._lost: Lost | None = None
        self._stopping = False
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        self._router = configure(context.socket(zmq.ROUTER), message_max_bytes=MESSAGE_MAX_BYTES)
        self._router.setsockopt(zmq.ROUTER_HANDOVER, 1)
        #: The authenticator; None without TCP.
        self._authenticator: AuthenticatorThread | None = None
        self._bell = context.socket(zmq.PAIR)
        self._bell.bind("inproc://spark-worker")
        self._rope = context.socket(zmq.PAIR)
        self._rope.connect("inproc://spark-worker")
        notify = partial(self._rope.send, b"")
        self._worker = Worker(self._inbox, self._driver, settings.max_retries, notify, self._parallel, make_batch)

    def run(self) -> int:
        """Serve until this process is stopped or the driver is lost; return the exit code.

        The code is OK after a stop, CHILD_ENDED if the driver's JVM has ended, and FAILURE for any other loss of the
        driver. It is STARTUP_FAILURE if Spark has never started in this run, because a retry would not help.
        """
        lock = None if self._is_between_hosts else self._lock()
        try:
            signal.signal(signal.SIGTERM, self._on_signal)
            signal.signal(signal.SIGINT, self._on_signal)
            if not self._is_between_hosts:
                forget_runs(self._dir, self._records.name)
            self._bind()
            self._worker.start()
            self._loop()
            self._leave_report()
        finally:
            self._worker.stop()
            self._driver.stop()
            if self._authenticator is not None:
                self._authenticator.close()
            self._router.close(linger=100)
            for one in self._dispatches.values():
                one.close()
            if lock is not None:
                os.close(lock)
        if self._lost is None:
            return int(OK)
        lost = self._lost
        if lost.error is not None and (isinstance(lost.error, FencedError) or outage_of(lost.error) is not None):
            raise lost.error
        if lost.refused and not self._has_been_up():
            self._reports.send_exception(lost.error or SparkStartError(lost.reason), startup=True)
            # Users see the last line of this log.
            log.error("%s", lost.reason)
            return int(STARTUP_FAILURE)
        log.error("%s; this process ends and a new process continues", lost.reason, exc_info=lost.error)
        if lost.error is not None:
            self._reports.send_exception(lost.error)
        return int(CHILD_ENDED if lost.gone else FAILURE)

    def _leave_report(self) -> None:
        """Send the final figures, and write them to a file in case the message is lost; see `teardown.keep_ended`."""
        report = self._reports.metrics(self._gauges(time.monotonic()))
        report.ends = True
        self._reports.send(report)
        try:
            with open(open_private(self._last, os.O_WRONLY | os.O_TRUNC), "wb") as file:
                file.write(report.SerializeToString())
        except OSError as error:
            log.warning("cannot save the last figures of Spark: %s", error)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True

    def _bind(self) -> None:
        keys = None
        endpoint = gateway_endpoint(self._launch.sockets_dir)
        if self._is_between_hosts:
            endpoint, keys = endpoint_of(self._launch, SOCKET_NAME), keys_of(self._launch)
        if keys is not None:
            self._authenticator = AuthenticatorThread(keys, self._router)
        endpoint = bind(self._router, endpoint, keys)
        if not self._records.announce(GatewayPlace(self._epoch, endpoint)):
            raise FencedError(f"a Spark gateway of epoch {self._epoch} or later runs elsewhere; this gateway stops")
        log.info("sinks connect to this gateway at %s", endpoint)

    def _has_been_up(self) -> bool:
        """Whether Spark had a session in this run, so that a failed start counts as transient; True if unknown."""
        try:
            return self._records.was_up
        except ObjectsError:
            return True

    def _note_up(self) -> None:
        try:
            self._records.note_up()
        except ObjectsError as error:
            log.warning("cannot record that Spark is up: %s", error)

    def _lock(self) -> int:
        fd = open_lock(self._dir / ".gateway.lock")
        deadline = time.monotonic() + _LOCK_WAIT_S
        while not try_flock(fd):
            holder = os.pread(fd, 200, 0).decode(errors="replace").strip()
            if time.monotonic() > deadline:
                os.close(fd)
                raise FencedError(f"another Spark gateway of this topology is still running: {holder}")
            time.sleep(0.05)
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps({"pid": os.getpid(), "epoch": self._epoch}).encode(), 0)
        return fd

    # -- the loop -----------------------------------------------------------------------------

    def _loop(self) -> None:
        poller = zmq.Poller()
        poller.register(self._router, zmq.POLLIN)
        poller.register(self._bell, zmq.POLLIN)
        self._look_for(self._inbox.begun, alone=True)  # A predecessor ended while it was processing these batches.
        scan_at = metrics_at = 0.0
        while not self._stopping and self._lost is None:
            now = time.monotonic()
            if now >= scan_at:
                scan_at = now + SCAN_S
                self._look_for(self._inbox.scan)
            if now >= metrics_at:
                metrics_at = now + _METRICS_S
                if self._authenticator is not None and (refused := self._authenticator.take_refused()):
                    self._reports.add("spark-messages-refused", refused)
                self._reports.send_metrics(self._gauges(now))
            self._lost = self._look_at_driver()
            if self._lost is not None:
                continue
            self._dispatch(now)
            for sock, _ in poller.poll(int(self._pause_s(now) * 1000)):
                if sock is self._router:
                    self._receive()
                else:
                    self._bell.recv()
                    self._take_result()

    def _look_for(self, batches: Callable[[], Iterable[Ticket]], alone: bool = False) -> None:
        try:
            for ticket in batches():
                self._lanes.add(ticket, alone)
        except ObjectsError as error:
            log.warning("cannot look for batches: %s", error)

    def _gauges(self, now: float) -> dict[tuple[str, str], float]:
        """Return the gauges: the port of Spark's web UI, and for each sink its lag and its running batches."""
        port = urlsplit(self._driver.ui).port or 0
        found = {("spark-ui-port", ""): float(port), ("spark-batches-waiting", ""): float(len(self._lanes))}
        self._seen = {ticket: self._seen.get(ticket, now) for ticket in self._lanes}
        self._sinks |= {ticket.component for ticket in self._seen}
        for sink in self._sinks:
            since = min((at for ticket, at in self._seen.items() if ticket.component == sink), default=now)
            name = self._inbox.of(sink).component_of(sink)
            found["spark-lag-seconds", name] = now - since
            found["spark-batches-running", name] = float(sum(t.component == sink for t in self._lanes.taken))
        return found

    def _look_at_driver(self) -> Lost | None:
        if self._driver.session is None:
            reason = self._driver.overdue
            return Lost(str(reason), refused=True) if reason is not None else None
        if not self._is_up:
            self._is_up = True
            self._note_up()
        return Lost("Spark's driver ended", gone=True) if not self._lanes.taken and self._driver.is_lost() else None

    def _pause_s(self, now: float) -> float:
        deadline = None if len(self._lanes.taken) >= self._parallel else self._lanes.next_deadline(now)
        return _TURN_MAX_S if deadline is None else min(_TURN_MAX_S, max(0.001, deadline - now))

    def _dispatch(self, now: float) -> None:
        while len(self._lanes.taken) < self._parallel:
            ticket = self._lanes.take(now)
            if ticket is None:
                return
            self._worker.submit(ticket)

    def _take_result(self) -> None:
        result = self._worker.results.get()
        if isinstance(result, Lost):
            self._lost = result
            return
        self._reports.add("spark-batches-refused", self._inbox.take_refused())
        self._outages.pop(result.ticket, None)
        if result.outage:
            self._outages[result.ticket] = result.outage
        self._reports.waits_for = next(iter(self._outages.values()), "")
        if result.retry_in_s is not None:
            if not result.outage:
                self._reports.add("spark-attempts-failed", label=result.component)
            self._lanes.retry(result.ticket, time.monotonic() + result.retry_in_s)
            return
        self._lanes.finish(result.ticket)
        self._count(result)
        identity = self._waiting.pop(result.ticket, None)
        if identity is not None:
            self._answer(identity, result.ticket)

    def _count(self, result: Result) -> None:
        if result.outcome is None:
            return
        sink = self._inbox.of(result.ticket.component).component_of(result.ticket.component)
        self._reports.add("spark-seconds", result.seconds, sink)
        self._reports.observe("spark-wait-seconds", result.outcome.waited_s, sink)
        self._reports.observe("spark-run-seconds", result.outcome.run_s, sink)
        if result.outcome.committed:
            self._reports.observe("spark-publish-seconds", result.outcome.publish_s, sink)
            self._reports.add("spark-batches-committed", label=sink)
            self._reports.add("spark-rows-committed", result.outcome.rows, sink)
            log.info("batch %s committed: %d rows in %.2f s", result.outcome.id, result.outcome.rows, result.seconds)
            return
        self._reports.add("spark-batches-failed", label=sink)
        if result.error is not None:
            self._reports.send_exception(result.error, result.component)

    # -- sinks --------------------------------------------------------------------------------

    def _receive(self) -> None:
        while True:
            try:
                parts = self._router.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return
            message = decode(parts[1]) if len(parts) == 2 else None
            if isinstance(message, Ready) and _is_plain(message):
                self._hear(parts[0], Ticket(message.component, message.stem))
            elif isinstance(message, Probe):
                is_up = self._driver.session is not None
                self._send(parts[0], Session(is_up, self._reports.waits_for if is_up else "Spark is starting"))
            else:
                self._reports.add("spark-messages-refused")

    def _hear(self, identity: bytes, ticket: Ticket) -> None:
        if ticket not in self._lanes:
            try:
                inbox = self._inbox.of(ticket.component)
                if inbox.outcome(ticket) is None:
                    for found in inbox.scan_sink(ticket.component):
                        self._lanes.add(found)
            except ObjectsError as error:
                log.warning("cannot look for batch %s of %s: %s", ticket.stem, ticket.component, error)
                return  # the sink repeats its hint
        if ticket in self._lanes:
            self._waiting[ticket] = identity
        else:
            self._answer(identity, ticket)

    def _answer(self, identity: bytes, ticket: Ticket) -> None:
        try:
            outcome = self._inbox.of(ticket.component).outcome(ticket)
        except ObjectsError as error:
            log.warning("cannot read the outcome of batch %s of %s: %s", ticket.stem, ticket.component, error)
            return
        if outcome is None:
            reply = Finished(ticket.component, ticket.stem, False, _GONE)
        else:
            reply = Finished(ticket.component, ticket.stem, outcome.committed, outcome.error)
        self._send(identity, reply)

    def _send(self, identity: bytes, reply: Message) -> None:
        try:
            self._router.send_multipart([identity, encode(reply)], zmq.DONTWAIT)
        except zmq.ZMQError as error:
            # The sink is unreachable; it repeats its request when it is back.
            log.debug("cannot answer %r: %s", identity, error)


def _shared_folders(launch: LaunchSpec) -> list[Path] | None:
    """Return the folders that all hosts share; None on a single host."""
    engine = settings_for(launch, EngineSettings)
    return [Path(folder) for folder in engine.shared.split(":") if folder] if not engine.on_one_host else None


def _is_plain(message: Any) -> bool:
    """Whether a sink's message has plain names. The names become parts of paths, so all other names are refused."""
    return bool(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", message.component)) and parse_stem(message.stem) is not None


def open_driver(settings: SparkSettings, spark_dir: Path, name: str, launch: LaunchSpec) -> Driver:
    """Create the driver of a topology's gateway, without starting it."""
    if is_connect(settings.master):
        return ConnectDriver(settings, spark_dir, name, launch.package_dir)
    ports = ports_of(settings_for(launch, SecuritySettings).port_range)
    return SparkDriver(
        settings, spark_dir, name, launch.python, launch.package_dir, find_archive(), launch.address, ports
    )
