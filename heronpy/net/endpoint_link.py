"""One session with the control endpoint: its connection, and the thread that uses the socket (see `endpoint_calls`).

Any thread may use `call`. Invariants: no call waits longer than `patience`, which is short in the thread of an event
loop. Losing the connection does not end the session: only the endpoint ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

import zmq

from heronpy.common.errors import StateAwayError, StateError
from heronpy.net.endpoint_calls import Call, Calls, Result, ignore
from heronpy.net.join_token import JoinToken, SessionCredential
from heronpy.net.rpc import parse, seal, wrap
from heronpy.net.transport import connect
from heronpy.net.zsock import RARE_HEARTBEAT_MS, configure, event_of
from heronpy.proto import control_pb2, endpoint_pb2

log = logging.getLogger("heronpy.net")

PATIENCE_S: Final = 10.0
#: Time limits, in seconds, for a caller whose thread runs an event loop, with a connection and without a connection.
PATIENCE_OF_LOOP_S: Final = 2.0
PATIENCE_OF_LOOP_AWAY_S: Final = 0.1
#: After this time without admission, the next address of the join token is tried.
_ADDRESS_S: Final = 3.0
#: Maximum number of calls, of all threads together, that wait for an answer.
CALLS_MAX: Final = 48
_STOP_MAX_S: Final = 3.0
_CLOSE_S: Final = 1.0


class FullError(StateAwayError):
    """Too many calls of this process are waiting for the endpoint; this call was not started."""


class EndpointLink:
    """A session that stays open until `close`. Raises StateAwayError if the endpoint takes longer than `PATIENCE_S`."""

    def __init__(
        self,
        token: JoinToken,
        credential: SessionCredential,
        session_s: float,
        on_session: Callable[[], None],
        on_changed: Callable[[str, int], None],
        on_life: Callable[[], None],
    ) -> None:
        self._token = token
        self._session_s = session_s
        #: Callbacks in the link's thread, which must not wait: when the session was opened again; with the number of
        #: changes of a watched node; and after each answered keep-alive.
        self._on_session, self._on_changed, self._on_life = on_session, on_changed, on_life
        self._context = zmq.Context()
        self._mutex = threading.Lock()
        #: Used with the mutex held.
        self._calls = Calls(secrets.randbits(63) | 1, credential.to_proto(), session_s, self._on_kept)
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._refusal = ""
        self._stopping = False
        #: Why the endpoint will never admit this container.
        self._refused = ""
        #: Set when the session was opened, or refused, for the first time.
        self._first = threading.Event()
        self._connected = False
        self._heard_at = 0.0
        self._address, self._tried_at = -1, 0.0
        self._thread = threading.Thread(target=self._run, name="state-endpoint", daemon=True)
        self._thread.start()
        self._first.wait(PATIENCE_S)
        if not self._calls.is_open:
            error = StateError(self._refused) if self._refused else self._away(PATIENCE_S, "no session")
            self.close()
            raise error

    # ---- for callers, from any thread ---------------------------------------------------------
    @property
    def address(self) -> str:
        return self._token.addresses[max(self._address, 0) % len(self._token.addresses)]

    @property
    def opened(self) -> int:
        """How many times the session was opened. Watches and ephemerals from before the last opening may be lost."""
        return self._calls.opened

    def call(self, body: endpoint_pb2.StateCall, what: str) -> endpoint_pb2.StateAnswer:
        """Send a request and wait for the answer; raises StateAwayError if there is none."""
        if len(self._calls.under_way) >= CALLS_MAX:
            raise FullError(
                f"{CALLS_MAX} calls are already waiting for the scheduler's control endpoint at {self.address}"
            )
        patience_s = self.patience()
        answer: Future[endpoint_pb2.StateAnswer] = Future()
        call = self.start(body, lambda result: _settle(answer, result))
        try:
            return answer.result(patience_s)
        except TimeoutError:
            with self._mutex:
                is_given_up = self._calls.give_up(call)
            if not is_given_up:
                return answer.result(patience_s)  # the answer has just arrived
            self.check_open()
            raise self._away(patience_s, f"{what} was not served") from None

    def start(self, body: endpoint_pb2.StateCall, end: Callable[[Result], None] = ignore) -> Call:
        """Send a request without waiting. `end` receives the answer in the link's thread, so it must not block."""
        with self._mutex:
            self.check_open()
            call = self._calls.start(body, end)
        self._wake()
        return call

    def patience(self) -> float:
        """How long a call from this thread may wait for its answer, in seconds."""
        if asyncio._get_running_loop() is None:
            return PATIENCE_S
        return PATIENCE_OF_LOOP_S if self._connected and self._calls.is_open else PATIENCE_OF_LOOP_AWAY_S

    def is_sure(self) -> bool:
        """Whether the session is certainly open, so that all changes to watched nodes are reported."""
        return self._calls.is_open and time.monotonic() - self._heard_at < self._session_s

    def check_open(self) -> None:
        """Raise an error if the link can no longer be used."""
        if self._refusal:
            raise StateError(self._refusal)

    def close(self) -> None:
        """End the session, which removes its ephemerals, watches and locks."""
        if self._refusal:
            return
        if self._calls.is_open and self._connected:
            ended = threading.Event()
            with contextlib.suppress(StateError):
                self.start(endpoint_pb2.StateCall(close=endpoint_pb2.StateClose()), lambda _: ended.set())
                ended.wait(_CLOSE_S)
        self.close_silently()

    def close_silently(self) -> None:
        """Close the link without a message; the endpoint ends the session after the session timeout."""
        with self._mutex:
            self._refusal = "this state manager is closed"
            self._stopping = True
        self._wake()
        self._thread.join(_STOP_MAX_S)

    def close_in_child(self) -> None:
        """Stop using the link in a forked child, because the socket and the thread belong to the parent."""
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
        self._fail_all(StateError(self._refusal))

    def _has_others(self) -> bool:
        return len(self._token.addresses) > 1

    def _connect(self, now: float) -> tuple[zmq.Socket[bytes], zmq.Socket[Any]]:
        self._address += 1
        self._tried_at = now
        sock = configure(self._context.socket(zmq.DEALER), heartbeat_ms=RARE_HEARTBEAT_MS)
        monitor = sock.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        connect(sock, self.address, self._token.keys())
        return sock, monitor

    def _drop(self, sock: zmq.Socket[bytes] | None, monitor: zmq.Socket[Any] | None) -> None:
        self._connected = False
        if sock is not None and monitor is not None:
            sock.disable_monitor()
            monitor.close(linger=0)
            sock.close(linger=0)

    def _look_at(self, monitor: zmq.Socket[Any]) -> None:
        """Handle the events of the connection: connected and disconnected."""
        while monitor.poll(0):
            connected = event_of(monitor.recv_multipart())[0] == zmq.EVENT_HANDSHAKE_SUCCEEDED
            if connected:
                with self._mutex:
                    self._calls.ask_anew()
            elif self._connected:
                self._tried_at = time.monotonic()
                log.warning("lost the connection to the control endpoint at %s; reconnecting", self.address)
            self._connected = connected

    def _send_due(self, sock: zmq.Socket[bytes], now: float) -> float:
        """Send all due requests; returns the number of seconds until the next request is due."""
        if not self._connected:
            return 1.0
        with self._mutex:
            due, wait_s = self._calls.due(now)
            for call in due:
                with contextlib.suppress(zmq.Again):  # the request is sent again
                    sock.send(seal(wrap(call.body, call.request)), zmq.DONTWAIT)
        return wait_s

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
                self._on_changed(envelope.state_changed.path, envelope.state_changed.count)
            else:
                self._answered(envelope)

    def _answered(self, envelope: control_pb2.Envelope) -> None:
        refusal = envelope.refusal
        with self._mutex:
            was_open, complaint = self._calls.is_open, self._calls.complaint
            call = self._calls.answered(envelope.request_id, envelope.state_answer, refusal, envelope.error)
            is_open, opened = self._calls.is_open, self._calls.opened
        if refusal and envelope.error != complaint:
            log.warning("the scheduler's control endpoint at %s refuses requests: %s", self.address, envelope.error)
        if was_open and not is_open:
            log.warning("the session at the control endpoint at %s has ended; reopening it", self.address)
        if is_open and not was_open:
            if opened > 1:
                log.info("the session at the control endpoint at %s has been reopened", self.address)
                self._on_session()
            self._first.set()
        if call is not None and refusal:
            call.end(
                StateError(f"the scheduler's control endpoint at {self.address} refuses the call: {envelope.error}")
            )
        elif call is not None:
            call.end(envelope.state_answer)
        elif refusal and refusal != control_pb2.REFUSAL_AGAIN and not is_open:
            self._refused = (
                f"the scheduler's control endpoint at {self.address} refuses this container: {envelope.error}"
            )
            self._first.set()
            self._fail_all(StateError(self._refused))

    def _on_kept(self, result: Result) -> None:
        if not isinstance(result, StateError):
            for seen in result.seen:
                self._on_changed(seen.path, seen.count)
            self._on_life()

    def _fail_all(self, error: StateError) -> None:
        with self._mutex:
            failed = [call for call in self._calls.under_way.values() if call.what != "open"]
            for call in failed:
                self._calls.give_up(call)
        for call in failed:
            call.end(error)

    # ---- help ---------------------------------------------------------------------------------
    def _wake(self) -> None:
        with self._mutex:
            if self._wake_write >= 0:
                with contextlib.suppress(BlockingIOError):
                    os.write(self._wake_write, b"x")

    def _away(self, patience_s: float, what: str) -> StateAwayError:
        complaint = self._calls.complaint
        why = f"; its last refusal: {complaint}" if complaint else ": check that the scheduler is running"
        return StateAwayError(
            f"the scheduler's control endpoint at {self.address} does not answer ({what} within {patience_s:g} s){why}"
        )


def _settle(answer: Future[endpoint_pb2.StateAnswer], result: Result) -> None:
    if isinstance(result, StateError):
        answer.set_exception(result)
    else:
        answer.set_result(result)
