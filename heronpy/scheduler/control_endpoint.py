"""The control endpoint of a scheduler: a TCP port for requests from containers on other hosts.

A process with the join token may send a hello; every other request needs a submission's secret, which the submission's
process gets in the answer to the hello. The user's clients on other hosts have a separate key, with which they may send
requests through the endpoint (`relay`) and read the state, but not act as containers. The endpoint checks a request's
sender and size; `Handlers` carry it out. A restarted scheduler uses the same port, so that containers find it again.

Invariants: no message can crash the scheduler; a refusal is one sentence; the data kept per container is bounded.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import zmq
from google.protobuf.message import Message

from heronpy.common.errors import ConfigError, FencedError, InvalidRpcError, RetryableRpcError
from heronpy.common.folders import replace_file
from heronpy.net.access import USER
from heronpy.net.authenticator import Authenticator
from heronpy.net.endpoint_keys import EndpointKeys
from heronpy.net.rpc import body_of
from heronpy.net.rpc_loop import ControlServer
from heronpy.proto import control_pb2, endpoint_pb2
from heronpy.scheduler.relay import Relay
from heronpy.scheduler.state_rules import CLIENT

log = logging.getLogger("heronpy.scheduler")

#: Container and submission.
Who = tuple[int, int]
#: How long a restarted scheduler waits for the port of its predecessor, and the interval of its attempts.
PORT_WAIT_S = 5.0
PORT_AGAIN_S = 0.05
#: Number of ports that are tried; with several addresses, a port must be free at each of them.
PORT_TRIES = 100
_PORT_FILE = "endpoint.json"
#: Maximum number of messages that wait for the endpoint, and for one of its peers. With the maximum size of a message,
#: this bounds the bytes. Messages larger than a piece of a package have a lower limit: see `LargeAnswers`.
RECEIVES_MAX = 8
SENDS_MAX = 256
#: Size limit of all requests that carry no data.
SMALL_MAX_BYTES = 64 << 10
_WITH_DATA = frozenset({"state_call", "log_end", "relay"})
_OF_CONTAINERS = frozenset({"renew", "leave", "read_package", "log_end", "start_spans"})
_OF_CLIENTS = frozenset({"relay", "state_call"})
_ASKED = _OF_CONTAINERS | _OF_CLIENTS | {"hello"}


class Handlers(Protocol):
    """The handlers of requests to the endpoint. If a handler raises a HeronError, the request is refused."""

    def hello(self, hello: endpoint_pb2.Hello) -> Awaitable[endpoint_pb2.Welcome]: ...

    def renew(self, who: Who, renew: endpoint_pb2.Renew) -> Awaitable[endpoint_pb2.Renewed]: ...

    def leave(self, who: Who, why: str) -> None: ...

    def read_package(self, package: str, offset: int) -> Awaitable[bytes]: ...

    def log_end(self, who: Who, end: endpoint_pb2.LogEnd) -> Awaitable[None]: ...

    def start_spans(self, who: Who, spans: Sequence[endpoint_pb2.StartSpan]) -> None: ...

    def holder_of(self, container: int) -> int:
        """The container's last activated submission; 0 if there is none."""

    def has_stopped(self, who: Who) -> bool:
        """Whether a submission has reported that all its processes have ended; any later message was delayed."""


class StateHandler(Protocol):
    """The part of `heronpy.scheduler.state_endpoint.StateEndpoint` that this module needs."""

    refused: int

    def container_of(self, session: int) -> int | None: ...

    def call(
        self,
        request: endpoint_pb2.StateCall,
        container: int,
        asked: int,
        send: Callable[[endpoint_pb2.StateChanged], object],
    ) -> Awaitable[endpoint_pb2.StateAnswer]: ...


class ControlEndpoint:
    """The control endpoint of one scheduler; create it on the loop, for example with `bind_endpoint`.

    `state` is None if containers reach the state manager directly.
    """

    def __init__(
        self,
        keys: EndpointKeys,
        topology_id: str,
        endpoints: list[str],
        handlers: Handlers,
        state: StateHandler | None = None,
        clients: Mapping[bytes, str] | None = None,
    ) -> None:
        """`clients` contains the public keys of the user's clients (see `heronpy.net.access`)."""
        self._keys = keys
        self._topology_id = topology_id
        self._handlers = handlers
        self._state = state
        #: Numbers of requests that were refused because the sender is unknown, was replaced, sent too much, or used a
        #: session of another kind of sender.
        self.unknown = self.replaced = self.oversized = self.not_theirs = 0
        #: Forwards requests from clients; None until the scheduler is ready to forward them.
        self.relay: Relay | None = None
        self._authenticator = Authenticator(keys.keys, users=clients)
        try:
            self._server = ControlServer(
                endpoints, self._on_request, keys=keys.keys, receives_max=RECEIVES_MAX, sends_max=SENDS_MAX,
                users=True,
            )  # fmt: skip
        except BaseException:
            self._authenticator.close()
            raise
        self._authenticator.watch(self._server.sock)
        self.listens_at = self._server.endpoints

    @property
    def strangers(self) -> int:
        """The number of connections whose client had no valid key."""
        return self._authenticator.refused

    @property
    def garbage(self) -> int:
        return self._server.garbage

    @property
    def busy(self) -> int:
        """The number of state calls that were temporarily refused."""
        return self._state.refused if self._state is not None else 0

    def close(self, linger_ms: int = 0) -> None:
        """Close the endpoint. Pending answers are sent for up to `linger_ms`."""
        self._authenticator.close()
        self._server.close(linger_ms)

    # ---- requests ---------------------------------------------------------------------------
    def _on_request(
        self, identity: bytes, envelope: control_pb2.Envelope
    ) -> Message | Awaitable[Message | None] | None:
        field, body = body_of(envelope)
        is_client = self._server.user == USER
        if (field not in _OF_CLIENTS) if is_client else (field == "relay"):
            self.not_theirs += 1
            raise InvalidRpcError(
                f"the control endpoint accepts the request {field!r} from {'containers' if is_client else 'clients'}"
                " only"
            )
        if field not in _ASKED:
            # Checked before the size, because an unknown request may not have one.
            raise InvalidRpcError(
                f"the control endpoint of topology {self._topology_id} does not support the request {field!r}"
            )
        if field not in _WITH_DATA and body.ByteSize() > SMALL_MAX_BYTES:
            self.oversized += 1
            raise InvalidRpcError(f"the request {field!r} may not be larger than {SMALL_MAX_BYTES >> 10} KiB")
        if field == "hello":
            if body.topology_id != self._topology_id:
                self.unknown += 1
                raise InvalidRpcError(
                    f"this is the control endpoint of topology {self._topology_id}, not of {body.topology_id[:200]!r}"
                )
            return self._handlers.hello(body)
        if field == "relay":
            if self.relay is None:
                raise RetryableRpcError("the scheduler is starting; try again")
            return self.relay.pass_on(identity, envelope.request_id, body)
        if field == "state_call":
            return self._state_call(identity, envelope.request_id, body, is_client)
        who = self._who(body.credential)
        if field == "renew":
            return self._handlers.renew(who, body)
        if field == "leave":
            self._handlers.leave(who, body.why[:1000])
            return control_pb2.Ok()
        if field == "read_package":
            return self._read_package(body)
        if field == "log_end":
            return self._log_end(who, body)
        self._handlers.start_spans(who, body.spans)
        return control_pb2.Ok()

    def _who(self, claimed: endpoint_pb2.SessionCredential) -> Who:
        if not self._keys.is_valid(claimed.container, claimed.submission, claimed.secret):
            self.unknown += 1
            raise InvalidRpcError(
                f"container {claimed.container}, submission {claimed.submission}, has no session credential of this"
                " topology; send a hello first"
            )
        return claimed.container, claimed.submission

    async def _read_package(self, body: endpoint_pb2.ReadPackage) -> endpoint_pb2.PackagePiece:
        return endpoint_pb2.PackagePiece(data=await self._handlers.read_package(body.package, body.offset))

    async def _log_end(self, who: Who, body: endpoint_pb2.LogEnd) -> control_pb2.Ok:
        if not self._handlers.has_stopped(who):
            # A submission that has reported its end may be replaced before its logs arrive.
            self._check_not_replaced(who)
        await self._handlers.log_end(who, body)
        return control_pb2.Ok()

    # ---- state ------------------------------------------------------------------------------
    def _check_not_replaced(self, who: Who) -> None:
        container, submission = who
        holder = self._handlers.holder_of(container)
        if submission < holder:
            # Messages from its last processes may be read after its final message, which uses another connection.
            self.replaced += not self._handlers.has_stopped(who)
            raise FencedError(f"container {container}, submission {submission}, was replaced by submission {holder}")

    def _check_acts(self, who: Who) -> None:
        """Raise an error unless the submission is the last activated one, because only it may access the state."""
        self._check_not_replaced(who)
        container, submission = who
        if submission > self._handlers.holder_of(container):
            raise RetryableRpcError(
                f"container {container}, submission {submission}, has not been activated yet; try again"
            )

    def _state_call(
        self, identity: bytes, request: int, body: endpoint_pb2.StateCall, is_client: bool
    ) -> Awaitable[endpoint_pb2.StateAnswer]:
        if self._state is None:
            raise InvalidRpcError(
                "this control endpoint does not serve the topology's state; use the topology's state manager"
            )
        opener = self._state.container_of(body.session)
        if opener is not None and (opener == CLIENT) is not is_client:
            self.not_theirs += 1
            raise InvalidRpcError("clients and containers cannot use each other's state sessions")
        container = CLIENT
        if not is_client:
            who = self._who(body.credential)
            container = who[0]
            if opener not in (None, container):
                self.unknown += 1
                raise InvalidRpcError("the sender of this call has not opened the session named in the call")
            self._check_acts(who)
        # A session without a connection learns of a change in the answer to its next request.
        return self._state.call(body, container, request, lambda changed: self._server.send(identity, changed))


# ---- addresses ------------------------------------------------------------------------------
def bind_endpoint(
    working_dir: str, addresses: Sequence[str], port_range: str, make: Callable[[list[str]], ControlEndpoint]
) -> ControlEndpoint:
    """Open the endpoint at all addresses with one port: the earlier scheduler's port, or else any port of the range.

    `make` creates the endpoint. Raises ConfigError if an address does not belong to this host, or no port is free.
    """
    kept = _kept(working_dir)[0]
    deadline = time.monotonic() + PORT_WAIT_S
    while kept:
        try:
            return make([f"tcp://{address}:{kept}" for address in addresses])
        except zmq.ZMQError as error:
            _refuse_address(error, addresses)
            if time.monotonic() >= deadline:
                log.error("port %d, to which containers connect, is taken; the containers will be replaced", kept)
                break
            time.sleep(PORT_AGAIN_S)
    endpoint = _at_any_port(addresses, port_range, make)
    record = {"port": _port_of(endpoint), "addresses": list(addresses)}
    replace_file(Path(working_dir) / _PORT_FILE, json.dumps(record).encode() + b"\n")
    return endpoint


def _at_any_port(
    addresses: Sequence[str], port_range: str, make: Callable[[list[str]], ControlEndpoint]
) -> ControlEndpoint:
    for _ in range(PORT_TRIES):
        try:
            endpoint = make([f"tcp://{addresses[0]}:{port_range or '*'}"])
            if len(addresses) == 1:
                return endpoint
            # Use the same port at the other addresses as well.
            port = _port_of(endpoint)
            endpoint.close()
            return make([f"tcp://{address}:{port}" for address in addresses])
        except zmq.ZMQError as error:
            _refuse_address(error, addresses)
    raise ConfigError(f"no port is free at {', '.join(addresses)}; set heron.security.network to one network")


def _port_of(endpoint: ControlEndpoint) -> int:
    return int(endpoint.listens_at[0].rpartition(":")[2])


def kept_addresses(working_dir: str) -> tuple[str, ...]:
    """The addresses of an earlier scheduler of this topology; empty for the first scheduler."""
    return _kept(working_dir)[1]


def _kept(working_dir: str) -> tuple[int, tuple[str, ...]]:
    try:
        found = json.loads((Path(working_dir) / _PORT_FILE).read_bytes()[:4096])
        port, addresses = int(found["port"]), tuple(str(ipaddress.IPv4Address(one)) for one in found["addresses"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0, ()
    return (port, addresses) if 0 < port < 1 << 16 else (0, ())


def _refuse_address(error: zmq.ZMQError, addresses: Sequence[str]) -> None:
    if error.errno != zmq.EADDRINUSE:
        raise ConfigError(
            f"the control endpoint cannot listen at {', '.join(addresses)}: {os.strerror(error.errno or 0)};"
            " set heron.security.network to the network of an interface of this host"
        ) from None


def forget_port(working_dir: str) -> None:
    """Remove the record of the port after the topology has ended."""
    (Path(working_dir) / _PORT_FILE).unlink(missing_ok=True)
