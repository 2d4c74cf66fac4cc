"""The calls of one session at the control endpoint: when to send and repeat them, and which answer they get. Pure.

The session keeps its number for as long as its process uses the state. Invariants: the changes of a session are sent
one after another. Each change has a number that stays the same until it is answered or abandoned, so that it is carried
out once. A change that was unanswered when the endpoint lost the session is marked `again` when the session is
reopened. An abandoned change is not sent again; once informed, the endpoint refuses copies that are still in transit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from heronpy.common.errors import StateError
from heronpy.proto import control_pb2, endpoint_pb2

#: An unanswered request is sent again after this time, which doubles with each attempt.
AGAIN_S: Final = 1.0
AGAIN_MAX_S: Final = 8.0
_CHANGES: Final = frozenset(("put", "counter", "lock", "unlock"))

Result = endpoint_pb2.StateAnswer | StateError


@dataclass(slots=True, eq=False)
class Call:
    """One request of the session; `end` receives its answer, or the reason why there is no answer."""

    body: endpoint_pb2.StateCall
    what: str
    end: Callable[[Result], None]
    request: int
    sent_at: float = 0.0
    again_s: float = AGAIN_S


def ignore(_: Result) -> None:
    """Ignore an answer."""


class Calls:
    """The open calls of a session with the unique number `session`. `on_kept` receives the answers to keep-alives."""

    def __init__(
        self,
        session: int,
        credential: endpoint_pb2.SessionCredential,
        session_s: float,
        on_kept: Callable[[Result], None] = ignore,
    ) -> None:
        self._session, self._credential, self._session_s, self._on_kept = session, credential, session_s, on_kept
        self._requests = itertools.count(1)
        self._number = 0
        self._said_at = 0.0
        self.under_way: dict[int, Call] = {}
        #: The number of times that the session was opened, and whether it is open.
        self.opened = 0
        self.is_open = False
        #: The endpoint's last reason for a refusal.
        self.complaint = ""
        self._open()

    def start(self, body: endpoint_pb2.StateCall, end: Callable[[Result], None] = ignore) -> Call:
        """Send a request repeatedly until it is answered or abandoned."""
        call = Call(body, str(body.WhichOneof("what")), end, next(self._requests))
        body.session = self._session
        body.credential.CopyFrom(self._credential)
        self.under_way[call.request] = call
        return call

    def give_up(self, call: Call) -> bool:
        """Abandon a request; returns False if it has already been answered."""
        return self.under_way.pop(call.request, None) is not None

    def ask_anew(self) -> None:
        """Send all open requests again, because the connection is new and requests on the previous one are lost."""
        self._said_at = 0.0
        for call in self.under_way.values():
            call.sent_at, call.again_s = 0.0, AGAIN_S

    def due(self, now: float) -> tuple[list[Call], float]:
        """The calls to send now, and the number of seconds until the next call is due."""
        keep_in_s = AGAIN_MAX_S
        if self.is_open:
            keep_in_s = self._said_at + self._session_s / 3 - now
            if keep_in_s <= 0:
                self._said_at, keep_in_s = now, self._session_s / 3
                if not any(call.what == "keep" for call in self.under_way.values()):
                    self.start(endpoint_pb2.StateCall(keep=endpoint_pb2.StateKeep()), self._on_kept)
        due, wait_s = [], AGAIN_MAX_S
        for call in self._sendable():
            if not call.sent_at or call.sent_at + call.again_s <= now:
                if call.sent_at:
                    call.again_s = min(call.again_s * 2, AGAIN_MAX_S)
                call.sent_at = self._said_at = now
                due.append(call)
            wait_s = min(wait_s, call.sent_at + call.again_s - now)
        if due:
            awaits, keep_in_s = self._awaits(), self._session_s / 3
            for call in due:
                call.body.awaits = awaits
        return due, max(0.001, min(keep_in_s, wait_s))

    def answered(self, request: int, answer: endpoint_pb2.StateAnswer, refusal: int = 0, why: str = "") -> Call | None:
        """Handle an answer or refusal from the endpoint; returns the call that it ends, if any."""
        call = self.under_way.get(request)
        if call is None:
            return None
        if refusal:
            self.complaint = why
            if refusal == control_pb2.REFUSAL_AGAIN or call.what == "open":
                return None  # the call is sent again
        elif answer.error == endpoint_pb2.STATE_SESSION_GONE and call.what != "close":
            if self.is_open:
                self._gone()
            return None
        del self.under_way[request]
        if call.what == "open":
            self.is_open, self.complaint = True, ""
            self.opened += 1
        return call

    def _sendable(self) -> Iterator[Call]:
        """The requests that may be sent: only `open` until the session is open, then all, but one change at a time."""
        has_change = False
        for call in self.under_way.values():
            if (call.what == "open") is self.is_open or (call.what in _CHANGES and has_change):
                continue
            if call.what in _CHANGES:
                has_change = True
                if not call.body.call:
                    self._number += 1
                    call.body.call = self._number
            yield call

    def _gone(self) -> None:
        """Reopen the session that the endpoint has lost, and then send all requests again."""
        self.is_open = False
        for request, call in list(self.under_way.items()):
            if call.what == "keep":
                del self.under_way[request]
            call.body.again = call.body.again or bool(call.body.call)
        self.ask_anew()
        self._open()

    def _open(self) -> None:
        numbers = (call.body.call for call in self.under_way.values() if call.body.call)
        body = endpoint_pb2.StateCall(
            call=min(numbers, default=self._number + 1), open=endpoint_pb2.StateOpen(session_s=self._session_s)
        )
        self.start(body)

    def _awaits(self) -> int:
        """The number of the oldest unanswered request that reads a value; the next number if there is none."""
        values = [request for request, call in self.under_way.items() if call.what == "get"]
        return min(values) if values else max(self.under_way, default=-1) + 1
