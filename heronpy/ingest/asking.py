"""A process's way to the ledger: who it is, that it lives, and that a ledger which is away is waited for."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from typing import TypeVar

from heronpy.api.spout.spout import Spout
from heronpy.api.topology_context import TopologyContext
from heronpy.common.errors import HeronError, LedgerAwayError, LedgerError, RemovedLedgerError
from heronpy.ingest.ledger import policy
from heronpy.ingest.ledger.reaching import Reached
from heronpy.ingest.ledger.requests import Leave, Open, Opened, Request, ShowAlive, Who
from heronpy.ingest.ledger.types import Kind
from heronpy.ingest.options import UnitOptions

log = logging.getLogger("heron.ingest")

A = TypeVar("A")


class ReplacedLedgerError(LedgerError):
    """The ledger is not the one with which a task has begun."""

    def __init__(self, pipeline: str, begun: int, found: int) -> None:
        super().__init__(
            f"the ledger of pipeline {pipeline!r} has generation {found}, and this task began with {begun}: it was"
            " rebuilt or replaced; what was begun before does not count, and the task goes on with this one. If that is"
            " not meant, kill the topology, and run: heron units check"
        )


#: How soon a ledger that is away is asked again: doubled each time.
AGAIN_S, AGAIN_MAX_S = 0.1, 5.0
#: People are told of a ledger that is away for so long.
TELL_S = 5.0
#: How long the end waits for the thread that shows that the process lives.
BEAT_END_S = 2.0


class Asking:
    """The ledger of one task. Requests come from one thread; another one shows that the process lives."""

    def __init__(self, options: UnitOptions, kind: Kind, context: TopologyContext, spout: Spout) -> None:
        self._spout = spout
        task = f"{context.get_topology_name()}/{context.get_component_id()}-{context.get_task_id()}"
        # Each site runs a topology of that name.
        task = f"{options.site}/{task}" if options.site else task
        self.who = Who(task, str(uuid.uuid4()), kind, options.site, str(context.process.container))
        self._text, self._pipeline, self._config = options.ledger, options.pipeline, options.config
        self._ledger: Reached | None = None
        self._pause_s = AGAIN_S
        self._away_since: float | None = None
        self._told = ""
        self._closed = threading.Event()
        self._beating: threading.Thread | None = None

    def opening(self) -> Open:
        """The first request of a process."""
        return Open(self._config, ledger=str(uuid.uuid4()))

    def ask(self, request: Request[A]) -> A:
        """The answer. LedgerAwayError: ask the same again after `wait`."""
        if self._ledger is None:
            self._ledger = Reached(self._text, self._pipeline, self.who)
        try:
            answer = self._ledger.ask(request)
        except LedgerAwayError as error:
            if self._away_since is None:
                self._away_since = time.monotonic()
                log.warning("the ledger is away, waiting for it: %s", error)
            self._pause_s = min(AGAIN_MAX_S, self._pause_s * 2)
            raise
        if isinstance(answer, Opened):
            self._text = self._ledger.text
        if self._away_since is not None:
            log.warning("the ledger is back after %.0f s", time.monotonic() - self._away_since)
            if self._told:
                self._spout.delegate.wait_outside("", 0.0)
            self._away_since, self._pause_s, self._told = None, AGAIN_S, ""
        return answer

    def wait(self, error: LedgerAwayError) -> None:
        """Have the spout wait for a ledger that is away.

        People are told once for each cause: the file of the ledger was removed or replaced, or the ledger has been away
        for a while, for example because its disk is full. From then on the topology is DEGRADED until it is back.
        """
        since = self._away_since
        lasts = since is not None and time.monotonic() - since >= TELL_S
        if str(error) != self._told and (lasts or isinstance(error, RemovedLedgerError)):
            self._told = str(error)
            self._spout.report_error(error)
            self._spout.delegate.wait_outside(self._told, 0.0)
        self._spout.wait(self._pause_s)

    def show_alive(self, silent_s: float) -> None:
        """From now on the ledger sees several times in `silent_s` that this process lives, whatever user code does."""
        every_s = silent_s / policy.SHOWN_IN_SILENCE
        self._beating = threading.Thread(target=self._beat, args=(every_s,), name="ledger-alive", daemon=True)
        self._beating.start()

    def _beat(self, every_s: float) -> None:
        text = self._text
        ledger = Reached(text, self._pipeline, self.who)
        while not self._closed.wait(every_s):
            if text != self._text:  # the partition map has changed
                ledger.close()
                text = self._text
                ledger = Reached(text, self._pipeline, self.who)
            try:
                ledger.ask(ShowAlive())
            except LedgerAwayError:
                continue
            except LedgerError as error:
                log.warning("cannot show that this task lives: %s", error)
        ledger.close()

    def leave(self) -> None:
        """End in order: give back what this process holds, so that nobody waits for it, and close."""
        self._stop_beating()
        try:
            if self._ledger is not None:
                self._ledger.ask(Leave())
        except HeronError as error:
            log.warning("the ledger does not hear that this task ends, so others wait until it is silent: %s", error)
        self.close()

    def _stop_beating(self) -> None:
        self._closed.set()
        if self._beating is not None:
            # What it still says would bring the process back.
            self._beating.join(BEAT_END_S)

    def close(self) -> None:
        """Idempotent."""
        self._closed.set()
        if self._ledger is not None:
            self._ledger.close()
