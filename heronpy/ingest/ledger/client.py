"""The client of a ledger. Requests are numbered, so that a request can be repeated after its answer was lost."""

from __future__ import annotations

import threading
from typing import TypeVar

from msgspec.structs import replace

from heronpy.ingest.ledger import machine
from heronpy.ingest.ledger.requests import Request, Who
from heronpy.ingest.ledger.store import Store

A = TypeVar("A")


class Ledger:
    """One process's connection to a pipeline's ledger; threads take turns.

    A request that ended in LedgerAwayError keeps its number until another request is sent, so that a repeated request
    is carried out once.
    """

    def __init__(self, store: Store, pipeline: str, who: Who) -> None:
        self._store = store
        self._pipeline = pipeline
        self._who = who
        self._number = 0
        self._unanswered: Request[object] | None = None
        self._turn = threading.Lock()

    def follow(self, version: int) -> None:
        """Use this version of the partition map for further requests."""
        self._who = replace(self._who, partitions=version)

    def ask(self, request: Request[A]) -> A:
        """Return the answer. Raises LedgerError for an invalid request, and LedgerAwayError if there is no answer."""
        if isinstance(request, machine.UNNUMBERED):
            return self._transact(request, 0)
        with self._turn:
            if request != self._unanswered:
                self._number += 1
                self._unanswered = request
            answer = self._transact(request, self._number)
            self._unanswered = None
            return answer

    def _transact(self, request: Request[A], number: int) -> A:
        return self._store.transact(
            self._pipeline,
            lambda view, now: machine.handle(view, request, self._who, number, now),
            lasting=not isinstance(request, machine.UNDONE),
        )
