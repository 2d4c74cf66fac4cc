"""Forwards requests from the user's clients on other hosts to the topology's processes.

The requests arrive at the endpoint. A client may send only the requests that commands on the scheduler's host send (see
`PASSED_ON`). The number of open requests and waiting answers is bounded, both in total and for each connection, so that
containers, which use the same endpoint, never wait behind them. Every refusal is counted.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from google.protobuf.message import Message

from heronpy.common.errors import DeadlineError, HeronError, InvalidRpcError, LostReplyError, RetryableRpcError
from heronpy.common.ids import executor_id
from heronpy.net.curve import Keys
from heronpy.net.rpc import body_of, parse, refuse, seal, wrap
from heronpy.net.rpc_loop import ControlClient
from heronpy.proto import control_pb2, endpoint_pb2, plan_pb2
from heronpy.scheduler.state_rules import LargeAnswers

log = logging.getLogger("heronpy.scheduler")

#: The requests that a relay may pass on to each process, by the field of the Envelope.
PASSED_ON: Final = {
    "scheduler": frozenset({"get_containers", "kill_topology", "restart_container", "drain_host"}),
    "tmaster": frozenset({
        "get_status", "get_metrics", "get_exceptions", "get_events", "get_load", "get_timeline", "get_slow",
        "get_hot_spots", "get_traces", "set_state", "runtime_config", "restart_target", "update_topology",
        "take_checkpoint", "get_checkpoints", "restore_checkpoint", "delete_checkpoints",
    }),
    "executor": frozenset({"list_files", "read_file", "search_file", "dump_stacks", "profile", "heap"}),
}  # fmt: skip
#: Maximum number of open requests, of all clients and of one connection.
ALL_MAX: Final = 64
CLIENT_MAX: Final = 8
#: Maximum number of known connections. The oldest connections without open requests are forgotten.
CLIENTS_MAX: Final = 256
#: Size limit of a request. The largest request is an update, which contains the whole topology.
REQUEST_MAX_BYTES: Final = 4 << 20
REQUESTS_MAX_BYTES: Final = 16 << 20
#: Leaves room for the other fields of a control message.
REPLY_MAX_BYTES: Final = 15 << 20
#: Bytes of answers that may wait for one client, and for all clients.
CLIENT_MAX_BYTES: Final = 32 << 20
ALL_MAX_BYTES: Final = 64 << 20
#: Maximum time for a process to answer. The longest request is a restart, which waits for all containers.
TIMEOUT_MAX_S: Final = 3600.0
#: How long the reported addresses of the executors' file services are used.
SERVICES_S: Final = 2.0
ASK_S: Final = 5.0

Own = Callable[[control_pb2.Envelope], "Message | Awaitable[Message]"]


class Relay:
    """Forwards requests from clients. Create and close this object on the loop.

    `own` answers for the scheduler; `master`, called in a thread, returns the leading topology master.
    """

    def __init__(self, own: Own, master: Callable[[], plan_pb2.TmasterLocation | None], keys: Keys) -> None:
        self._own = own
        self._master = master
        self._keys = keys
        self._clients: dict[str, ControlClient] = {}
        self._under_way: dict[bytes, int] = {}
        self._all = self._bytes = 0
        self._large = LargeAnswers(CLIENT_MAX_BYTES, ALL_MAX_BYTES)
        #: Map from each connection to its number in `LargeAnswers`, in the order of their last request.
        self._numbers: dict[bytes, int] = {}
        self._next = 1
        self._services: dict[int, str] = {}
        self._services_at = -math.inf
        #: Numbers of requests that were refused temporarily, as not allowed, or as too large.
        self.busy = self.forbidden = self.oversized = 0

    async def pass_on(self, peer: bytes, request: int, relay: endpoint_pb2.Relay) -> endpoint_pb2.Relayed:
        """Forward request number `request` of the client connection `peer` to the process that the request names.

        Raises InvalidRpcError for a request that is not allowed, and RetryableRpcError if too many requests are open.
        """
        kind, envelope, size = self._checked(relay)
        number = self._number_of(peer)
        self._large.settle(number, relay.awaits)
        if (
            self._all >= ALL_MAX
            or self._under_way.get(peer, 0) >= CLIENT_MAX
            or self._bytes + size > REQUESTS_MAX_BYTES
        ):
            self.busy += 1
            raise RetryableRpcError("too many requests from clients are in progress at the control endpoint; try again")
        self._all += 1
        self._bytes += size
        self._under_way[peer] = self._under_way.get(peer, 0) + 1
        try:
            answer = await self._answered(kind, relay, envelope)
        finally:
            self._all -= 1
            self._bytes -= size
            self._under_way[peer] -= 1
            if not self._under_way[peer]:
                del self._under_way[peer]
        if not self._large.take(number, request, answer.ByteSize()):
            self.busy += 1
            raise RetryableRpcError("too many large answers are waiting for this client; read them first")
        return answer

    def _checked(self, relay: endpoint_pb2.Relay) -> tuple[str, control_pb2.Envelope, int]:
        kind = relay.WhichOneof("to") or ""
        if len(relay.request) > REQUEST_MAX_BYTES:
            self.oversized += 1
            raise InvalidRpcError(f"a forwarded request may have at most {REQUEST_MAX_BYTES >> 20} MB")
        envelope = parse(relay.request)
        field = body_of(envelope)[0] if envelope is not None else ""
        if envelope is None or field not in PASSED_ON.get(kind, ()):
            self.forbidden += 1
            raise InvalidRpcError(
                f"the control endpoint does not forward request {field!r} to {kind or 'an unnamed process'!r}"
            )
        if not (math.isfinite(relay.timeout_s) and 0 < relay.timeout_s <= TIMEOUT_MAX_S):
            self.forbidden += 1
            raise InvalidRpcError(f"a request may wait for its answer for at most {TIMEOUT_MAX_S:g} s")
        return kind, envelope, len(relay.request)

    def _number_of(self, peer: bytes) -> int:
        number = self._numbers.pop(peer, 0)
        if not number:
            number, self._next = self._next, self._next + 1
            idle = [one for one in self._numbers if one not in self._under_way]
            for oldest in idle[: max(0, len(self._numbers) + 1 - CLIENTS_MAX)]:
                self._large.end(self._numbers.pop(oldest))
        self._numbers[peer] = number
        return number

    async def _answered(
        self, kind: str, relay: endpoint_pb2.Relay, envelope: control_pb2.Envelope
    ) -> endpoint_pb2.Relayed:
        what = {"scheduler": "the scheduler", "tmaster": "the topology master"}.get(kind, "")
        what = what or f"the executor of container {relay.executor}"
        try:
            async with asyncio.timeout(relay.timeout_s):
                reply = await self._reply(kind, relay, envelope)
        except _AbsentError as error:
            return endpoint_pb2.Relayed(end=endpoint_pb2.RELAY_ABSENT, why=str(error))
        except (DeadlineError, TimeoutError) as error:
            lost = isinstance(error, LostReplyError)
            why = f"{what} did not answer within {relay.timeout_s:g} s"
            if lost:
                why = f"{what} ended before it answered; the request may or may not have been carried out"
            return endpoint_pb2.Relayed(end=endpoint_pb2.RELAY_LOST if lost else endpoint_pb2.RELAY_LATE, why=why)
        data = seal(reply)
        if len(data) > REPLY_MAX_BYTES:
            why = f"{what} answered with more than {REPLY_MAX_BYTES >> 20} MB, the maximum for a forwarded answer"
            data = seal(refuse(0, InvalidRpcError(why)))
        return endpoint_pb2.Relayed(reply=data)

    async def _reply(
        self, kind: str, relay: endpoint_pb2.Relay, envelope: control_pb2.Envelope
    ) -> control_pb2.Envelope:
        """The process's answer or refusal, as an Envelope of the same kind."""
        body = body_of(envelope)[1]
        try:
            if kind == "scheduler":
                result = self._own(envelope)
                answer = await result if inspect.isawaitable(result) else result
            elif kind == "tmaster":
                answer = await self._ask_master(body, relay.timeout_s)
            else:
                answer = await self._ask(await self._service(relay.executor), body, relay.timeout_s)
        except (_AbsentError, LostReplyError):
            raise
        except DeadlineError as error:
            if kind == "scheduler":
                return refuse(0, error)  # the process itself has refused
            raise
        except HeronError as error:
            return refuse(0, error)
        return wrap(answer, 0, True) if answer is not None else control_pb2.Envelope(reply=True)

    async def _ask_master(self, body: Message, timeout_s: float) -> Any:
        location = await asyncio.to_thread(self._master)
        if location is None:
            raise _AbsentError("the topology master is not running")
        return await self._ask(location.endpoint, body, timeout_s)

    async def _service(self, container: int) -> str:
        """The address at which a container's executor listens, as reported by the topology master."""
        if time.monotonic() - self._services_at > SERVICES_S or container not in self._services:
            status = await self._ask_master(control_pb2.GetStatus(), ASK_S)
            self._services = {one.container: one.file_service for one in status.executors if one.file_service}
            self._services_at = time.monotonic()
        if container not in self._services:
            raise _AbsentError(f"{executor_id(container)} is not registered at the topology master")
        return self._services[container]

    async def _ask(self, endpoint: str, body: Message, timeout_s: float) -> Any:
        client = self._clients.get(endpoint)
        if client is None:
            self._forget_idle()
            client = self._clients[endpoint] = ControlClient(endpoint, keys=self._keys, topology_id=self._keys.domain)
        try:
            return await client.call(body, timeout_s)
        except LostReplyError:
            raise
        except DeadlineError:
            # Its process may have been replaced by one with another address.
            if self._clients.get(endpoint) is client and not client.is_waiting:
                del self._clients[endpoint]
                client.close()
            raise

    def _forget_idle(self) -> None:
        """Close idle connections to processes that may have ended."""
        known = {*self._services.values()}
        for endpoint, client in list(self._clients.items()):
            if endpoint not in known and not client.is_waiting:
                del self._clients[endpoint]
                client.close()

    def close(self) -> None:
        """Close the relay. Idempotent."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()


class _AbsentError(HeronError):
    """The requested process is not running."""
