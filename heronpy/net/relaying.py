"""Sends requests through a scheduler's control endpoint, for a client that cannot reach a topology's processes
directly.

The endpoint passes on the process's answer, so the client raises the same errors as for a direct request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from heronpy.common.errors import DeadlineError, LostReplyError, RetryableRpcError, RpcError
from heronpy.net.rpc import RpcClient, answer_of, parse, seal, wrap
from heronpy.proto import endpoint_pb2

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from heronpy.net.curve import Keys

#: How much later than the process itself the endpoint may answer.
SLACK_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class To:
    """Names a process of a topology in requests to the endpoint."""

    #: `scheduler`, `tmaster` or `executor`.
    kind: str
    #: Number of the container, for an executor.
    container: int = 0

    def request(self, body: Message, timeout_s: float) -> endpoint_pb2.Relay:
        """A request for the process, in the endpoint's format."""
        relay = endpoint_pb2.Relay(request=seal(wrap(body)), timeout_s=timeout_s)
        if self.kind == "executor":
            relay.executor = self.container
        else:
            setattr(relay, self.kind, True)
        return relay


SCHEDULER: Final = To("scheduler")
TMASTER: Final = To("tmaster")


def relayed(answer: Any) -> Any:
    """The body of the process's answer; a refusal is raised as the error class that the process named.

    Raises DeadlineError if the process did not answer the endpoint in time, LostReplyError if the process ended, and
    RetryableRpcError if it is not running.
    """
    if not isinstance(answer, endpoint_pb2.Relayed):
        raise RpcError("the control endpoint sent an unexpected answer; install the same heronpy release on both hosts")
    if answer.end == endpoint_pb2.RELAY_LATE:
        raise DeadlineError(answer.why)
    if answer.end == endpoint_pb2.RELAY_LOST:
        raise LostReplyError(answer.why)
    if answer.end == endpoint_pb2.RELAY_ABSENT:
        raise RetryableRpcError(answer.why)
    reply = parse(answer.reply)
    if reply is None:
        raise RpcError(
            "the control endpoint has forwarded an invalid answer; install the same heronpy release on both hosts"
        )
    return answer_of(reply)


class RelayClient(RpcClient):
    """Sends requests to the process `to` through the control endpoint `endpoint`; blocking, like `RpcClient`."""

    def __init__(
        self,
        endpoint: str,
        to: To,
        peer: str,
        keys: Keys | None = None,
        registered: Callable[[], bool] | None = None,
    ) -> None:
        super().__init__(
            endpoint, peer=f"{peer}, through the control endpoint at {endpoint},", keys=keys, registered=registered
        )
        self._to = to
        self._calls = 0

    def call(self, body: Message, timeout_s: float = 5.0) -> Any:
        """Send a request and return the body of its reply; see `relayed`."""
        self._calls += 1
        relay = self._to.request(body, timeout_s)
        relay.awaits = self._calls  # one call at a time, so all earlier calls are over
        return relayed(super().call(relay, timeout_s + SLACK_S))
