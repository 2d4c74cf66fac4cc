"""One session with the scheduler's door: connecting, asking, repeating, and signs of life.

One thread owns the socket; any thread may `call`. Invariants: no call waits longer than its patience, and one from an
event loop's thread only a moment; a write is repeated under its number, so it is carried out once; one whose session
ended before its answer came is `UncertainError`, for its caller to look what became of it. A call that is given up is
not sent again, and once the door hears of that it refuses what may still be on its way.

Losing the connection is not losing the session: that ends when the door says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import zmq

from heronpy.common.errors import StateAwayError, StateError
from heronpy.net.rpc import parse, seal, wrap
from heronpy.net.ticket import Membership, Ticket
from heronpy.net.transport import connect
from heronpy.net.zsock import RARE_HEARTBEAT_MS, configure
from heronpy.proto import control_pb2, door_pb2

log = logging.getLogger("heronpy.net")

PATIENCE_S: Final = 10.0
#: For a caller whose thread runs an event loop, with a connection and without one.
PATIENCE_OF_LOOP_S: Final = 2.0
PATIENCE_OF_LOOP_AWAY_S: Final = 0.1
#: An unanswered request is sent again after this, then after twice as long, and so on.
_AGAIN_S: Final = 1.0
_AGAIN_MAX_S: Final = 8.0
#: An address that does not let us in for this long is followed by the next one of the ticket.
_ADDRESS_S: Final = 3.0
#: Calls that wait for an answer, of all threads together.
CALLS_MAX: Final = 48
#: Of numbers that are not settled; the door refuses the next one.
_WINDOW: Final = 64
_SESSIONS_KEPT: Final = 16
_STOP_MAX_S: Final = 3.0
_CLOSE_S: Final = 1.0


class FullError(StateAwayError):
    """Too many calls of this process wait for the door: this one was not begun."""


class UncertainError(StateError):
    """The session ended before the answer came: whether the call was carried out must be looked up."""


@dataclass(slots=True, eq=False)
class Call:
    """One request of the session."""

    body: door_pb2.StateCall
    #: It changes something, so it gets a number.
    numbered: bool
    #: It goes on when its caller has given up, until its answer comes or its session ends.
    lasting: Callable[[door_pb2.StateAnswer], None] | None
    request: int
    number: int = 0
    sent_at: float = 0.0
    again_s: float = _AGAIN_S
    given_up: bool = False
    answer: door_pb2.StateAnswer | None = None
    error: StateError | None = None
    done: threading.Event = field(default_factory=threading.Event)


class DoorLink:
    """A session that is kept up until `close`. StateAwayError when the door does not answer within `PATIENCE_S`."""

    def __init__(
        self,
        ticket: Ticket,
        member: Membership,
        session_s: float,
        on_session: Callable[[list[str]], None],
        on_changed: Callable[[str, int], None],
    ) -> None:
        self._ticket = ticket
        self._member = member
        self._session_s = session_s
        #: Both are called from the link's thread and must not wait. After a session that ended, with its nodes that
        #: are left; and with how often a watched node has changed.
        self._on_session, self._on_changed = on_session, on_changed
        self._context = zmq.Context()
        self._mutex = threading.Lock()
        self._requests = itertools.count(1)
        self._calls: dict[int, Call] = {}
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._refusal = ""
        self._stopping = False
        #: The session is ready for calls.
        self._ready = threading.Event()
        self._session = 0
        self._earlier: list[int] = []
        self._next_number = 1
        self._opening: Call | None = None
        self._complaint = ""
        #: Why the door will never let this container in.
        self._refused = ""
        self._first = threading.Event()
        self._connected = False
        self._heard_at = self._said_at = 0.0
        self._address, self._tried_at = -1, 0.0
        self._thread = threading.Thread(target=self._run, name="state-door", daemon=True)
        self._thread.start()
        self._first.wait(PATIENCE_S)
        if not self._ready.is_set():
            error = StateError(self._refused) if self._refused else self._away(PATIENCE_S, "no session")
            self.close()
            raise error

    # ---- for callers, from any thread ---------------------------------------------------------
    @property
    def address(self) -> str:
        """The door's address in use."""
        return self._ticket.addresses[max(self._address, 0) % len(self._ticket.addresses)]

    @property
    def session(self) -> int:
        """The number of the session; 0 while there is none."""
        return self._session

    def call(
        self,
        body: door_pb2.StateCall,
        what: str,
        *,
        numbered: bool = False,
        wait_s: float = 0.0,
        lasting: Callable[[door_pb2.StateAnswer], None] | None = None,
    ) -> door_pb2.StateAnswer:
        """Ask, and wait for the answer; `wait_s` longer than usual.

        StateAwayError when none comes, `UncertainError` as in the module. A `lasting` call goes on then, and `lasting`
        gets its answer, in the link's thread.
        """
        patience_s = self.patience()
        call = self.start(body, numbered=numbered, lasting=lasting)
        if not call.done.wait(patience_s + wait_s):
            with self._mutex:
                call.given_up = not call.done.is_set()
                if call.given_up and call.lasting is None:
                    self._calls.pop(call.request, None)
            if call.given_up:
                self.check_open()
                raise self._away(patience_s + wait_s, f"{what} was not served")
        if call.error is not None:
            raise call.error
        assert call.answer is not None
        return call.answer

    def start(
        self,
        body: door_pb2.StateCall,
        *,
        numbered: bool = False,
        lasting: Callable[[door_pb2.StateAnswer], None] | None = None,
        given_up: bool = False,
    ) -> Call:
        """Ask, and do not wait: nobody does, if `given_up`."""
        call = Call(body, numbered, lasting, next(self._requests), given_up=given_up)
        with self._mutex:
            self.check_open()
            if len(self._calls) >= CALLS_MAX:
                raise FullError(f"{CALLS_MAX} calls wait for the scheduler's door at {self.address} already")
            self._calls[call.request] = call
        self._wake()
        return call

    def patience(self) -> float:
        """How long a call from this thread may take."""
        if asyncio._get_running_loop() is None:
            return PATIENCE_S
        return PATIENCE_OF_LOOP_S if self._connected and self._ready.is_set() else PATIENCE_OF_LOOP_AWAY_S

    def is_sure(self) -> bool:
        """Whether the session lives for sure, so that the door would have told of changes."""
        return self._ready.is_set() and time.monotonic() - self._heard_at < self._session_s

    def check_open(self) -> None:
        """Raise if the link can no longer be used."""
        if self._refusal:
            raise StateError(self._refusal)

    def close(self) -> None:
        """End the session, and with it everything that belongs to it."""
        if self._refusal:
            return
        if self._ready.is_set() and self._connected:
            with contextlib.suppress(StateError):
                self.start(door_pb2.StateCall(close=door_pb2.StateClose())).done.wait(_CLOSE_S)
        self.close_silently()

    def close_silently(self) -> None:
        """The same without a word to the door."""
        with self._mutex:
            self._refusal = "this state manager is closed"
            self._stopping = True
        self._wake()
        self._thread.join(_STOP_MAX_S)

    def close_in_child(self) -> None:
        """After a fork: socket and thread belong to the parent."""
        self._refusal = self._refusal or "this state manager was opened before a fork; open a new one"

    # ---- the thread ---------------------------------------------------------------------------
    def _run(self) -> None:
        sock: zmq.Socket[bytes] | None = None
        monitor: zmq.Socket[Any] | None = None
        while not self._stopping:
            now = time.monotonic()
            if sock is None or (not self._connected and now - self._tried_at > _ADDRESS_S and self._has_others()):
                self._drop(sock, monitor)
                sock, monitor = self._connect(now)
            poller = zmq.Poller()
            for one in (sock, monitor, self._wake_read):
                poller.register(one, zmq.POLLIN)
            poller.poll(max(1, int(self._send_due(sock, now) * 1000)))
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_read, 4096)
            assert monitor is not None
            self._look_at(monitor)
            self._receive(sock)
        self._drop(sock, monitor)
        self._context.term()
        os.close(self._wake_read)
        with self._mutex:
            os.close(self._wake_write)
            self._wake_write = -1
            left, self._calls = self._calls, {}
        for call in left.values():
            self._finish(call, None, StateError(self._refusal))

    def _has_others(self) -> bool:
        return len(self._ticket.addresses) > 1

    def _connect(self, now: float) -> tuple[zmq.Socket[bytes], zmq.Socket[Any]]:
        self._address += 1
        self._tried_at = now
        sock = configure(self._context.socket(zmq.DEALER), heartbeat_ms=RARE_HEARTBEAT_MS)
        monitor = sock.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        connect(sock, self.address, self._ticket.keys())
        return sock, monitor

    def _drop(self, sock: zmq.Socket[bytes] | None, monitor: zmq.Socket[Any] | None) -> None:
        self._connected = False
        if sock is not None and monitor is not None:
            sock.disable_monitor()
            monitor.close(linger=0)
            sock.close(linger=0)

    def _look_at(self, monitor: zmq.Socket[Any]) -> None:
        """Notice that the connection is there, or gone."""
        from zmq.utils.monitor import recv_monitor_message

        while monitor.poll(0):
            connected = recv_monitor_message(monitor)["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED
            if connected:
                # What was on its way is lost: ask again, and whether a watched node has changed.
                self._said_at = 0.0
                with self._mutex:
                    for call in self._calls.values():
                        call.sent_at, call.again_s = 0.0, _AGAIN_S
                    if self._opening is not None:
                        self._opening.sent_at = 0.0
            elif self._connected:
                self._tried_at = time.monotonic()
                log.warning("lost the connection to the scheduler's door at %s; connecting again", self.address)
            self._connected = connected

    def _send_due(self, sock: zmq.Socket[bytes], now: float) -> float:
        """Send what is due; in how many seconds the next thing is."""
        if not self._connected:
            return 1.0
        if not self._session:
            return self._send_opening(sock, now)
        with self._mutex:
            due, wait_s = self._take_due(now)
            settled, awaits = self._settled(), self._awaits()
        for call in due:
            call.body.session, call.body.member = self._session, self._member.secret
            call.body.call, call.body.settled, call.body.awaits = call.number, settled, awaits
            self._send(sock, wrap(call.body, call.request))
            self._said_at = now
        keep_in_s = self._said_at + self._session_s / 3 - now
        if keep_in_s <= 0:
            keep = door_pb2.StateCall(session=self._session, member=self._member.secret, keep=door_pb2.StateKeep())
            with self._mutex:
                call = Call(keep, False, self._on_kept, next(self._requests), given_up=True, sent_at=now)
                if not any(one.body.HasField("keep") for one in self._calls.values()):
                    keep.awaits = self._awaits()
                    self._calls[call.request] = call
                    self._send(sock, wrap(keep, call.request))
            self._said_at, keep_in_s = now, self._session_s / 3
        return max(0.001, min(keep_in_s, wait_s))

    def _take_due(self, now: float) -> tuple[list[Call], float]:
        """The calls to send now, and in how many seconds the next one is due; call it with the mutex held."""
        due, wait_s = [], _AGAIN_MAX_S
        for call in self._calls.values():
            if not self._ready.is_set() and not call.body.HasField("take_over"):
                continue  # the session first gets what belongs to it
            if not call.sent_at or call.sent_at + call.again_s <= now:
                if call.numbered and not call.number:
                    if self._next_number >= self._settled() + _WINDOW:
                        continue  # until an older one is answered
                    call.number, self._next_number = self._next_number, self._next_number + 1
                if call.sent_at:
                    call.again_s = min(call.again_s * 2, _AGAIN_MAX_S)
                call.sent_at = now
                due.append(call)
            wait_s = min(wait_s, call.sent_at + call.again_s - now)
        return due, wait_s

    def _settled(self) -> int:
        """No call below this number will be sent again."""
        return min((call.number for call in self._calls.values() if call.number), default=self._next_number)

    def _awaits(self) -> int:
        """All values that were asked for by a request below this number are here, or given up."""
        values = [request for request, call in self._calls.items() if call.body.HasField("get")]
        return min(values) if values else max(self._calls, default=-1) + 1

    def _send_opening(self, sock: zmq.Socket[bytes], now: float) -> float:
        """Ask for a session; what the earlier ones own goes over to it before anything else happens."""
        call = self._opening
        if call is None:
            call = self._opening = Call(door_pb2.StateCall(), False, None, next(self._requests))
        if now - call.sent_at >= call.again_s:
            call.sent_at = now
            opening = door_pb2.StateOpen(member=self._member.to_proto(), session_s=self._session_s)
            self._send(sock, wrap(opening, call.request))
        return call.sent_at + call.again_s - now

    def _send(self, sock: zmq.Socket[bytes], envelope: control_pb2.Envelope) -> None:
        with contextlib.suppress(zmq.Again):  # it is sent again
            sock.send(seal(envelope), zmq.DONTWAIT)

    # ---- answers ------------------------------------------------------------------------------
    def _receive(self, sock: zmq.Socket[bytes]) -> None:
        while True:
            try:
                envelope = parse(sock.recv(zmq.DONTWAIT))
            except zmq.Again:
                return
            if envelope is None:
                continue
            self._heard_at = time.monotonic()
            if envelope.HasField("state_changed"):
                changed = envelope.state_changed
                if changed.session == self._session:
                    self._on_changed(changed.path, changed.count)
            elif self._opening is not None and envelope.request_id == self._opening.request:
                self._opened(envelope)
            else:
                self._answered(envelope)

    def _opened(self, envelope: control_pb2.Envelope) -> None:
        if envelope.refusal:
            self._complain(envelope.error)
            if envelope.refusal != control_pb2.REFUSAL_AGAIN:
                self._refused = f"the scheduler's door at {self.address} refuses this container: {envelope.error}"
                self._first.set()
                self._fail_all(StateError(self._refused))
            return
        self._opening = None
        self._session = envelope.state_opened.session
        self._next_number = 1
        self._said_at = time.monotonic()
        if not self._earlier:
            self._begin([])
            return
        self._take_over(0.0)

    def _take_over(self, sent_at: float) -> None:
        """Ask for the nodes of the earlier sessions, now or a while after an attempt that failed."""
        body = door_pb2.StateCall(take_over=door_pb2.StateTakeOver(sessions=self._earlier))
        call = Call(body, False, self._taken_over, next(self._requests), sent_at=sent_at, given_up=True)
        with self._mutex:
            self._calls[call.request] = call

    def _taken_over(self, answer: door_pb2.StateAnswer) -> None:
        if answer.error:
            self._complain(answer.text)
            self._take_over(time.monotonic())
        else:
            self._begin(list(answer.names))

    def _begin(self, kept: list[str]) -> None:
        """The session is ready. Writes of the one before are uncertain now; what was only asked is asked again."""
        again = bool(self._earlier)
        self._earlier.clear()
        self._complaint = ""
        with self._mutex:
            lost = [call for call in self._calls.values() if call.number]
            for call in lost:
                del self._calls[call.request]
        if again:
            log.info("a new session at the scheduler's door at %s", self.address)
            self._on_session(kept)
        self._ready.set()
        self._first.set()
        for call in lost:
            self._finish(call, None, UncertainError("the session at the scheduler's door ended before the answer came"))

    def _answered(self, envelope: control_pb2.Envelope) -> None:
        answer = envelope.state_answer
        with self._mutex:
            call = self._calls.get(envelope.request_id)
            if call is None:
                return
            if not envelope.refusal and answer.error == door_pb2.STATE_SESSION_GONE:
                if call.body.session == self._session:
                    self._gone()
                return
            if envelope.refusal == control_pb2.REFUSAL_AGAIN:
                self._complain(envelope.error)
                return  # it is sent again
            del self._calls[envelope.request_id]
        if envelope.refusal:
            self._finish(call, None, StateError(f"the scheduler's door at {self.address} refuses: {envelope.error}"))
        else:
            self._finish(call, answer)

    def _finish(self, call: Call, answer: door_pb2.StateAnswer | None, error: StateError | None = None) -> None:
        with self._mutex:
            call.answer, call.error = answer, error
            call.done.set()
        if call.given_up and call.lasting is not None and answer is not None:
            call.lasting(answer)

    def _gone(self) -> None:
        """The door does not know the session; call it with the mutex held."""
        log.warning("the session at the scheduler's door at %s has ended; starting a new one", self.address)
        self._ready.clear()
        self._earlier = [*self._earlier, self._session][-_SESSIONS_KEPT:]
        self._session = 0
        for request, call in list(self._calls.items()):
            if call.body.WhichOneof("what") in ("keep", "take_over", "close"):
                del self._calls[request]
                call.done.set()
            call.sent_at, call.again_s = 0.0, _AGAIN_S

    def _on_kept(self, answer: door_pb2.StateAnswer) -> None:
        for seen in answer.seen:
            self._on_changed(seen.path, seen.count)

    def _fail_all(self, error: StateError) -> None:
        with self._mutex:
            failed, self._calls = self._calls, {}
        for call in failed.values():
            self._finish(call, None, error)

    # ---- help ---------------------------------------------------------------------------------
    def _wake(self) -> None:
        with self._mutex:
            if self._wake_write >= 0:
                with contextlib.suppress(BlockingIOError):
                    os.write(self._wake_write, b"x")

    def _complain(self, text: str) -> None:
        if text != self._complaint:
            self._complaint = text
            log.warning("the scheduler's door at %s refuses: %s", self.address, text)

    def _away(self, patience_s: float, what: str) -> StateAwayError:
        why = f"; it says: {self._complaint}" if self._complaint else ": look whether the scheduler runs"
        return StateAwayError(
            f"the scheduler's door at {self.address} does not answer ({what} within {patience_s:g} s){why}"
        )
