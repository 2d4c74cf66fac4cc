"""TCP connections that have not presented the topology's key yet: limited in number, time and bytes.

ZeroMQ limits the size of a message, but also accepts that much from strangers before it asks for their key; and it
keeps silent connections. So each accepted connection is observed from outside until its handshake is over: the
kernel counts its bytes (TCP_INFO), and a server sends more than `GREETED_BYTES` only to holders of the key.
"""

from __future__ import annotations

import asyncio
import enum
import os
import socket
import struct
from collections import deque
from contextlib import suppress
from typing import Final

#: At a time; one more closes the oldest.
STRANGERS_MAX: Final = 128
#: A handshake takes some milliseconds; ZeroMQ itself ends it after zsock.HANDSHAKE_MS.
PATIENCE_S: Final = 2.5
#: A client sends about 500 bytes until it is admitted.
SAID_MAX_BYTES: Final = 8192
#: Greeting (64), WELCOME (170) and an ERROR (below 20); an admitted client gets a READY of 60 or more.
GREETED_BYTES: Final = 256
LOOK_S: Final = 0.01
#: ZeroMQ reports within this time that a connection was closed here, unless it has ended it before.
CLAIM_S: Final = 1.0
#: Of such reports that are still to come.
CLAIMS_MAX: Final = 4096
_RESET: Final = struct.pack("ii", 1, 0)
#: In struct tcp_info: tcpi_bytes_acked and tcpi_bytes_received.
_COUNTS: Final = struct.Struct("=120xQQ")


class Verdict(enum.Enum):
    """The verdict on a connection."""

    WAIT = enum.auto()
    ADMITTED = enum.auto()
    REFUSE = enum.auto()


def judge(age_s: float, told_bytes: int, said_bytes: int) -> Verdict:
    """Judge a connection by its age and by the bytes sent to it and received from it. Pure."""
    if told_bytes > GREETED_BYTES:
        return Verdict.ADMITTED
    return Verdict.REFUSE if age_s > PATIENCE_S or said_bytes > SAID_MAX_BYTES else Verdict.WAIT


class Porch:
    """Connections until they are admitted; ZeroMQ reports those closed here like any other that ends."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        #: In the order of their arrival. The descriptors are copies, so no number can be another connection's.
        self._waiting: dict[socket.socket, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        #: When connections were closed here whose end has not been claimed, oldest first.
        self._closed_at: deque[float] = deque(maxlen=CLAIMS_MAX)

    def __len__(self) -> int:
        return len(self._waiting)

    def accepted(self, descriptor: int) -> None:
        """Watch a connection that ZeroMQ has accepted; only TCP connections are watched."""
        try:
            known = socket.socket(fileno=os.dup(descriptor))
        except OSError:
            return  # already gone, or out of descriptors: then only ZeroMQ's own timeout applies
        if known.family not in (socket.AF_INET, socket.AF_INET6):
            known.close()
            return
        self._waiting[known] = self._loop.time()
        if len(self._waiting) > STRANGERS_MAX:
            self._look()
        while len(self._waiting) > STRANGERS_MAX:
            self._refuse(next(iter(self._waiting)))
        if self._timer is None:
            self._timer = self._loop.call_later(LOOK_S, self._look_again)

    def claim(self) -> bool:
        """Whether a connection that has just ended was closed here; each that was is told once."""
        while self._closed_at and self._loop.time() - self._closed_at[0] > CLAIM_S:
            self._closed_at.popleft()
        if not self._closed_at:
            return False
        self._closed_at.popleft()
        return True

    def _look_again(self) -> None:
        self._timer = None
        self._look()
        if self._waiting:
            self._timer = self._loop.call_later(LOOK_S, self._look_again)

    def _look(self) -> None:
        now = self._loop.time()
        for known, since in list(self._waiting.items()):
            try:
                told, said = _COUNTS.unpack(known.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _COUNTS.size))
            except (OSError, struct.error):
                self._let_go(known)
                continue
            verdict = judge(now - since, told, said)
            if verdict is Verdict.REFUSE:
                self._refuse(known)
            elif verdict is Verdict.ADMITTED:
                self._let_go(known)

    def _refuse(self, known: socket.socket) -> None:
        with suppress(OSError):  # it is already gone
            # A reset, so that nothing of it stays in the kernel either.
            known.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            known.shutdown(socket.SHUT_RDWR)
            self._closed_at.append(self._loop.time())
        self._let_go(known)

    def _let_go(self, known: socket.socket) -> None:
        del self._waiting[known]
        known.close()

    def close(self) -> None:
        """Stop observing. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for known in list(self._waiting):
            self._let_go(known)
