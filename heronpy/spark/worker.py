"""The threads that process batches, one batch per thread: load rows, call the user's function, commit.

The worker owns the Spark driver, takes tickets, and returns one result for each. It decides only on a single
attempt; lanes.py chooses the next batch and its time. A lost driver ends the gateway; the next gateway starts a new
driver.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from heronpy.common.backoff import backoff_s
from heronpy.common.errors import FencedError, HeronError, StateError
from heronpy.connectors.spark.handover import Manifest, Outcome
from heronpy.connectors.spark.options import decode_aggregate
from heronpy.spark.batch import Batch
from heronpy.spark.driver import Driver
from heronpy.spark.inbox import Inbox
from heronpy.spark.jvm import JvmError
from heronpy.spark.lanes import Ticket
from heronpy.spark.outage import is_executor_lost, outage_of, text_of
from heronpy.storage.objects.port import ObjectsError

log = logging.getLogger("heronpy.spark")

#: A batch fails if more attempts than this number kill the gateway, its driver or its executors.
DEATHS_MAX = 5
RETRY_INITIAL_S = 0.5
RETRY_MAX_S = 10.0


class Result(Struct):
    """How one attempt at a ticket ended: an outcome, a retry, or neither (the batch is missing)."""

    ticket: Ticket
    outcome: Outcome | None = None
    retry_in_s: float | None = None
    #: The last exception, if the batch has failed.
    error: BaseException | None = None
    component: str = ""
    seconds: float = 0.0
    #: The outage that the batch waits for before the retry; empty if the attempt itself failed.
    outage: str = ""


class Lost(Struct):
    """The worker cannot continue: the driver did not start, or has ended."""

    reason: str
    error: BaseException | None = None
    #: Whether Spark did not start, although its JVM was not killed.
    refused: bool = False
    #: Whether the JVM has ended.
    gone: bool = False


class Worker:
    """Processes `parallel` tickets concurrently, each in a thread; each submitted ticket yields one result.

    With several threads, each sink task has a separate session, so names that one batch defines, such as a temporary
    view, are invisible to parallel batches.
    """

    def __init__(
        self,
        inbox: Inbox,
        driver: Driver,
        max_retries: int,
        notify: Callable[[], None],
        parallel: int = 1,
        make_batch: Callable[[Manifest, dict[str, Any]], Batch] = Batch,
    ) -> None:
        self._inbox = inbox
        self._driver = driver
        self._max_retries = max_retries
        self._notify = notify
        self._make_batch = make_batch
        self._tickets: queue.SimpleQueue[Ticket | None] = queue.SimpleQueue()
        self.results: queue.SimpleQueue[Result | Lost] = queue.SimpleQueue()
        self._functions: dict[str, tuple[Callable[..., Any], dict[str, Any], bytes]] = {}
        self._sessions: dict[tuple[str, int], Any] = {}
        #: Number of counted attempts, for batches whose record still counts an attempt that an outage has ended.
        self._uncounted: dict[Ticket, int] = {}
        self._lock = threading.Lock()
        #: Whether the driver is about to be killed; failures of batches then do not count.
        self._ending = False
        self._threads = [
            threading.Thread(target=self._serve if number else self._run, name=f"spark-worker-{number}", daemon=True)
            for number in range(parallel)
        ]

    def start(self) -> None:
        """Start the driver, then process tickets."""
        self._threads[0].start()

    def submit(self, ticket: Ticket) -> None:
        self._tickets.put(ticket)

    def stop(self) -> None:
        """Make the threads end after their current batches, without waiting; the driver may be killed earlier."""
        self._ending = True
        for _ in self._threads:
            self._tickets.put(None)

    def _run(self) -> None:
        try:
            self._driver.start()
        except Exception as error:
            killed = isinstance(error, JvmError) and error.killed
            said = str(error) if isinstance(error, HeronError) else f"Spark did not start: {first_line(error)}"
            self._give(Lost(said, _with_text(error), refused=not killed, gone=killed))
            return
        for thread in self._threads[1:]:
            thread.start()
        self._serve()

    def _serve(self) -> None:
        while (ticket := self._tickets.get()) is not None:
            started = time.monotonic()
            result: Result | Lost
            try:
                result = self._work(ticket)
            except Exception as error:
                outage = outage_of(error)
                if outage is not None:
                    log.warning("batch %s of %s waits: %s", ticket.stem, ticket.component, outage)
                    self._give(Result(ticket, retry_in_s=RETRY_MAX_S, component=ticket.component, outage=outage))
                    continue
                self._give(Lost(f"batch {ticket.stem} of {ticket.component}: {first_line(error)}", _with_text(error)))
                return
            if isinstance(result, Result):
                result.seconds = time.monotonic() - started
            self._give(result)
            if isinstance(result, Lost):
                return

    def _give(self, result: Result | Lost) -> None:
        with self._lock:
            self.results.put(result)
            self._notify()

    def _of(self, ticket: Ticket) -> Inbox:
        return self._inbox.of(ticket.component)

    def _work(self, ticket: Ticket) -> Result | Lost:
        try:
            manifest = self._of(ticket).claim(ticket)
        except StateError as error:
            return Result(
                ticket, self._of(ticket).fail(ticket, None, str(error)), error=error, component=ticket.component
            )
        if manifest is None:
            return Result(ticket)
        if not manifest.prepared:
            try:
                failure = self._attempt(ticket, manifest)
            except Exception:
                self._uncount(ticket, manifest)
                raise
            if failure is not None:
                return failure
            if not manifest.prepared:
                # Another gateway or the sink has already decided; that decision is carried out.
                return self._work(ticket)
        try:
            return Result(ticket, self._of(ticket).commit(ticket, manifest), component=manifest.component)
        except FencedError:
            raise
        except (OSError, HeronError) as error:
            if outage_of(error) is not None:
                raise
            return self._raised(ticket, manifest, error)

    def _attempt(self, ticket: Ticket, manifest: Manifest) -> Result | Lost | None:
        """Aggregate and prepare a batch. On success, return None and set `manifest.prepared` if the attempt counts."""
        manifest.started = self._uncounted.pop(ticket, manifest.started)
        if manifest.started - manifest.raised > DEATHS_MAX:
            death = StateError(
                f"the Spark driver or its executors died {DEATHS_MAX + 1} times while they worked on this batch"
            )
            return self._give_up(ticket, manifest, death)
        manifest.started += 1
        self._of(ticket).save(ticket, manifest)
        batch: Batch | None = None
        began = time.monotonic()
        try:
            function, options = self._function(ticket, manifest)
            batch = self._make_batch(manifest, options)
            session = self._session(manifest)
            function(session, self._frame(ticket, manifest, session), batch)
            tables = batch.staged_tables()
        except Exception as error:
            if self._ending or self._driver.is_lost_by(error):
                return Lost("Spark's driver ended", _with_text(error), gone=True)
            if batch is not None:
                batch.drop_staged()
            if outage_of(error) is not None:
                raise
            if is_executor_lost(error):  # counts like a death of the driver
                said = "Spark has lost the executors that worked on the batch"
                log.warning("batch %s waits: %s", manifest.id, said, exc_info=error)
                return Result(ticket, retry_in_s=RETRY_MAX_S, component=manifest.component, outage=said)
            manifest.run_s += time.monotonic() - began
            return self._raised(ticket, manifest, self._driver.explained(error))
        manifest.run_s += time.monotonic() - began
        manifest.tables, manifest.prepared = tables, True
        if not self._of(ticket).prepare(ticket, manifest):
            batch.drop_staged()
            manifest.tables, manifest.prepared = [], False
        return None

    def _uncount(self, ticket: Ticket, manifest: Manifest) -> None:
        """Do not count an attempt that an outage has ended."""
        manifest.started -= 1
        try:
            self._of(ticket).save(ticket, manifest)
        except ObjectsError:
            self._uncounted[ticket] = manifest.started

    def _frame(self, ticket: Ticket, manifest: Manifest, session: Any) -> Any:
        """Return the rows as a DataFrame; None for a batch run. Spark itself reads the rows of work units."""
        if manifest.of_run:
            return None
        if manifest.inputs:
            return session.read.parquet(*(f"file://{folder}" for folder in manifest.inputs))
        return self._driver.frame(session, self._of(ticket).rows(ticket))

    def _raised(self, ticket: Ticket, manifest: Manifest, error: Exception) -> Result:
        manifest.raised += 1
        if manifest.raised > self._max_retries:
            return self._give_up(ticket, manifest, error)
        self._of(ticket).save(ticket, manifest)
        wait_s = backoff_s(manifest.raised - 1, initial_s=RETRY_INITIAL_S, max_s=RETRY_MAX_S)
        log.warning("batch %s raised an exception (attempt %d); the next attempt is in %g s", manifest.id,
                    manifest.started, wait_s, exc_info=error)  # fmt: skip
        return Result(ticket, retry_in_s=wait_s, component=manifest.component)

    def _give_up(self, ticket: Ticket, manifest: Manifest, error: BaseException) -> Result:
        log.error("batch %s failed after %d attempts", manifest.id, manifest.started, exc_info=error)
        reason = "; ".join([f"{type(error).__name__}: {first_line(error)}", *getattr(error, "__notes__", ())])
        outcome = self._of(ticket).fail(ticket, manifest, reason)
        return Result(ticket, outcome, error=error, component=manifest.component)

    def _function(self, ticket: Ticket, manifest: Manifest) -> tuple[Callable[..., Any], dict[str, Any]]:
        """Return a sink's function and options; load them again if the sink has changed."""
        data = self._of(ticket).sink_record(ticket.component)
        record = json.loads(data)
        known = self._functions.get(ticket.component)
        if known is None or known[2] != data:
            known = (decode_aggregate(record["aggregate"]), record["options"], data)
            self._functions[ticket.component] = known
        return known[0], dict(record["options"])

    def _session(self, manifest: Manifest) -> Any:
        if len(self._threads) == 1:
            return self._driver.session
        key = (manifest.component, manifest.task)
        with self._lock:
            if key not in self._sessions:
                self._sessions[key] = self._driver.new_session()
            return self._sessions[key]


def _with_text(error: Exception) -> BaseException:
    """Return the error with its text, read before the JVM ends, because py4j requests the text from the JVM."""
    if isinstance(error, HeronError | OSError):
        return error
    kept: BaseException = type(type(error).__name__, (Exception,), {})(text_of(error))
    kept.__cause__ = error.__cause__
    return kept.with_traceback(error.__traceback__)


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message; Spark's messages are pages long."""
    text = text_of(error).strip()
    return text.splitlines()[0][:500] if text else type(error).__name__


def full_traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))[-60_000:]
