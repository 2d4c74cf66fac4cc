"""Decides who may connect to the TCP sockets of this process: answers ZeroMQ's ZAP requests (RFC 27).

ZeroMQ asks once per connection, never per message, and obeys the answer. A `Gate` admits only the client key
of its topology, and the keys of `users`, and counts all others. There is one per process and context, because ZeroMQ
asks at one fixed endpoint. Its owner closes it before the sockets it guards.
"""

from __future__ import annotations

import errno
import hmac
import logging
from collections.abc import Mapping
from typing import Any, Final

import zmq
from zmq.utils import z85
from zmq.utils.monitor import parse_monitor_message

from heronpy.net.curve import Keys
from heronpy.net.porch import Porch
from heronpy.net.zsock import LoopSocket

log = logging.getLogger("heronpy.net")

_ZAP: Final = "inproc://zeromq.zap.01"
_VERSION: Final = b"1.0"
#: Addresses whose refusal is logged; further ones are only counted.
PEERS_MAX: Final = 256
#: Handshakes that fail before ZeroMQ asks: a plain client, another server's key, noise.
_FAILURES: Final = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
_EVENTS: Final = _FAILURES | zmq.EVENT_ACCEPTED
#: What such a failure tells when the other side has closed the connection, and not we because of its silence.
_LEFT: Final = frozenset({errno.EPIPE, errno.ECONNRESET})


class Gate:
    """Guards the sockets given to `watch`, and any other of the context that enforces ZAP."""

    def __init__(
        self, keys: Keys, context: zmq.Context[Any] | None = None, users: Mapping[bytes, str] | None = None
    ) -> None:
        """`users`: further public keys, in Z85, and whose they are, which `ControlServer.user` tells; not ""."""
        self._domain = keys.domain.encode()[:255]
        admitted = {keys.client.public: "", **(users or {})}
        #: By the key as ZeroMQ tells it.
        self._keys: dict[bytes, str] = {z85.decode(key): user for key, user in admitted.items()}
        #: Connections that had the right key.
        self.admitted = 0
        #: Connections refused: the wrong key, or no handshake at all.
        self.refused = 0
        #: Connections that their other side has closed before it presented a key.
        self.left = 0
        self._refused_peers: set[bytes] = set()
        sock = (context or zmq.Context.instance()).socket(zmq.ROUTER)
        sock.setsockopt(zmq.LINGER, 0)
        sock.bind(_ZAP)
        self._socket = LoopSocket(sock, self.answer)
        self._porch = Porch()
        self._watched: list[tuple[zmq.Socket[Any], LoopSocket]] = []

    def watch(self, sock: zmq.Socket[Any]) -> None:
        """Count the connections to this socket that fail before they present a key, and bound their resources."""
        monitor = sock.get_monitor_socket(_EVENTS)
        self._watched.append((sock, LoopSocket(monitor, self._on_event)))

    def _on_event(self, parts: list[bytes]) -> None:
        event = parse_monitor_message(parts)
        if event["event"] == zmq.EVENT_ACCEPTED:
            self._porch.accepted(event["value"])
            return
        if event["value"] in _LEFT and not self._porch.claim():
            # Processes of the topology do so that end while they connect: nobody was refused.
            self.left += 1
            return
        endpoint = bytes(event["endpoint"])
        self.refused += 1
        if endpoint not in self._refused_peers and len(self._refused_peers) < PEERS_MAX:
            self._refused_peers.add(endpoint)
            log.warning(
                "refused a connection to %s that does not use the encryption of this topology", endpoint.decode()
            )

    @property
    def strangers(self) -> int:
        """Connections whose peer has not presented a key."""
        return len(self._porch)

    def answer(self, parts: list[bytes]) -> None:
        """One request: envelope, "", version, id, domain, address, identity, mechanism, credentials."""
        if len(parts) < 4:
            return
        envelope, request = parts[:2], parts[2:]
        address = request[3] if len(request) > 3 else b""
        user = self._user(request)
        if user is not None:
            self.admitted += 1
            status, text = b"200", b"OK"
        else:
            self.refused += 1
            status, text = b"400", b"No access"
            self._log_once(address)
        self._socket.send([*envelope, _VERSION, request[1], status, text, (user or "").encode(), b""])

    def _user(self, request: list[bytes]) -> str | None:
        """Who connects; None for a stranger."""
        if len(request) != 7 or (request[0], request[2], request[5]) != (_VERSION, self._domain, b"CURVE"):
            return None
        return next((user for key, user in self._keys.items() if hmac.compare_digest(request[6], key)), None)

    def _log_once(self, address: bytes) -> None:
        if address not in self._refused_peers and len(self._refused_peers) < PEERS_MAX:
            self._refused_peers.add(address)
            log.warning("refused %s, which does not have the key of this topology", address.decode(errors="replace"))

    def close(self) -> None:
        """Idempotent."""
        for sock, monitor in self._watched:
            if not sock.closed:
                sock.disable_monitor()
            monitor.close()
        self._watched.clear()
        self._porch.close()
        self._socket.close()
