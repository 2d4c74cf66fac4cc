"""A process's connection to the ledger: sends requests and heartbeats, and waits while the ledger is unreachable."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from typing import TypeVar

from heronpy.api.spout.spout import Spout
from heronpy.api.topology_context import TopologyContext
from heronpy.common import exit_codes
from heronpy.common.errors import HeronError, LedgerAwayError, LedgerError, RemovedLedgerError
from heronpy.ingest.ledger import policy
from heronpy.ingest.ledger.reaching import Reached
from heronpy.ingest.ledger.requests import Leave, Open, Opened, Request, ShowAlive, Who
from heronpy.ingest.ledger.types import Kind
from heronpy.ingest.options import UnitOptions
from heronpy.procs.exit_notice import leave

log = logging.getLogger("heron.ingest")

A = TypeVar("A")


class ReplacedLedgerError(LedgerError):
    """The ledger was replaced since the task began."""

    def __init__(self, pipeline: str, begun: int, found: int) -> None:
        super().__init__(
            f"the ledger of pipeline {pipeline!r} has generation {found}, but this task began with {begun}: the ledger"
            " was rebuilt or replaced; earlier attempts do not count, and the task continues with this ledger. If you"
            " did not intend that, kill the topology, and run: heron units check"
        )


#: Pauses in seconds between requests to an unreachable ledger: the first and the longest. Each pause is twice as long
#: as the previous one.
AGAIN_S, AGAIN_MAX_S = 0.1, 5.0
#: Seconds after which an unreachable ledger is reported.
TELL_S = 5.0
#: Seconds for which the end of the process waits for the heartbeat thread.
BEAT_END_S = 2.0
#: Seconds: heartbeat interval of a worker with an attempt, and time for which an attempt that no longer counts may
#: continue.
ATTEMPT_S, STOP_S = 1.0, 2.0


class Asking:
    """One task's access to the ledger. One thread sends requests, and another thread sends heartbeats."""

    def __init__(self, options: UnitOptions, kind: Kind, context: TopologyContext, spout: Spout) -> None:
        self._spout = spout
        task = f"{context.get_topology_name()}/{context.get_component_id()}-{context.get_task_id()}"
        # Each site runs a topology with this name.
        task = f"{options.site}/{task}" if options.site else task
        self.who = Who(task, str(uuid.uuid4()), kind, options.site, str(context.process.container))
        self._text, self._pipeline, self._config = options.ledger, options.pipeline, options.config
        self._ledger: Reached | None = None
        self._pause_s = AGAIN_S
        self._away_since: float | None = None
        self._told = ""
        self._closed = threading.Event()
        self._beating: threading.Thread | None = None
        #: The running attempt, and the last attempt that no longer counts according to the ledger.
        self._attempt: ShowAlive | None = None
        self._in_vain: ShowAlive | None = None

    def opening(self) -> Open:
        """Return the first request of a process."""
        return Open(self._config, ledger=str(uuid.uuid4()))

    def ask(self, request: Request[A]) -> A:
        """Send a request and return the answer. After a LedgerAwayError, call `wait`, then repeat the request."""
        if self._ledger is None:
            self._ledger = Reached(self._text, self._pipeline, self.who)
        try:
            answer = self._ledger.ask(request)
        except LedgerAwayError as error:
            if self._away_since is None:
                self._away_since = time.monotonic()
                log.warning("the ledger is unreachable, waiting for it: %s", error)
            self._pause_s = min(AGAIN_MAX_S, self._pause_s * 2)
            raise
        if isinstance(answer, Opened):
            self._text = self._ledger.text
        if self._away_since is not None:
            log.warning("the ledger is reachable again after %.0f s", time.monotonic() - self._away_since)
            if self._told:
                self._spout.delegate.wait_outside("", 0.0)
            self._away_since, self._pause_s, self._told = None, AGAIN_S, ""
        return answer

    def wait(self, error: LedgerAwayError) -> None:
        """Make the spout wait for an unreachable ledger.

        Each cause is reported once: the file of the ledger was removed or replaced, or the ledger has been unreachable
        for `TELL_S` seconds, for example because its disk is full. The topology is then DEGRADED until the ledger is
        reachable again.
        """
        since = self._away_since
        lasts = since is not None and time.monotonic() - since >= TELL_S
        if str(error) != self._told and (lasts or isinstance(error, RemovedLedgerError)):
            self._told = str(error)
            self._spout.report_error(error)
            self._spout.delegate.wait_outside(self._told, 0.0)
        self._spout.wait(self._pause_s)

    def begin(self, unit: int, attempt: int, generation: int) -> None:
        """Record that an attempt runs user code. Heartbeats then also check whether the attempt still counts."""
        self._attempt = ShowAlive(unit, attempt, generation)

    def end(self) -> None:
        """Record that the attempt no longer runs user code."""
        self._attempt = None

    @property
    def is_in_vain(self) -> bool:
        return self._attempt is not None and self._attempt is self._in_vain

    def show_alive(self, silent_s: float) -> None:
        """Start sending heartbeats, several per `silent_s` seconds, even while user code runs."""
        every_s = silent_s / policy.SHOWN_IN_SILENCE
        self._beating = threading.Thread(target=self._beat, args=(every_s,), name="ledger-alive", daemon=True)
        self._beating.start()

    def _beat(self, every_s: float) -> None:
        text = self._text
        ledger = Reached(text, self._pipeline, self.who)
        due = time.monotonic() + every_s
        told_at = 0.0
        while not self._closed.wait(min(every_s, ATTEMPT_S)):
            attempt, now = self._attempt, time.monotonic()
            if attempt is None and now < due:
                continue
            if attempt is not None and attempt is self._in_vain:
                if now >= told_at + STOP_S:
                    # User code is still processing one row. A new process can take the next unit sooner.
                    log.warning("unit %d: this obsolete attempt does not stop, so its process exits", attempt.unit)
                    leave(exit_codes.TERMINATED)
                continue
            due = now + every_s
            if text != self._text:  # the partition map has changed
                ledger.close()
                text = self._text
                ledger = Reached(text, self._pipeline, self.who)
            try:
                if ledger.ask(attempt or ShowAlive()).in_vain:
                    self._in_vain, told_at = attempt, now
            except LedgerAwayError:
                continue
            except LedgerError as error:
                log.warning("cannot send a heartbeat to the ledger: %s", error)
        ledger.close()

    def leave(self) -> None:
        """Return this process's units to the ledger, so that they are leased again sooner, and close the connection."""
        self._stop_beating()
        try:
            if self._ledger is not None:
                self._ledger.ask(Leave())
        except HeronError as error:
            log.warning("cannot notify the ledger that this task ends; its units are freed after a timeout: %s", error)
        self.close()

    def _stop_beating(self) -> None:
        self._closed.set()
        if self._beating is not None:
            # A heartbeat after this request would register the process again.
            self._beating.join(BEAT_END_S)

    def close(self) -> None:
        """Close the connection; idempotent."""
        self._closed.set()
        if self._ledger is not None:
            self._ledger.close()
