"""Requests to topology masters and executors from an event loop, for programs that poll.

A connection is kept until it fails or its process is replaced. Addresses come from the state manager or, on TCP, from
the authenticated topology master, never from the requesting client.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any, TypeVar, overload

from google.protobuf.message import Message
from msgspec import Struct

from heronpy.clusters.errors import ClusterError
from heronpy.clusters.session import Session, Way
from heronpy.common.errors import DeadlineError, LostReplyError
from heronpy.common.ids import executor_id
from heronpy.net.answers import read
from heronpy.net.relaying import SLACK_S, relayed
from heronpy.net.rpc_loop import ControlClient
from heronpy.net.transport import PATH_MAX_BYTES
from heronpy.plan.launch import LaunchSpec
from heronpy.proto import control_pb2, plan_pb2

T = TypeVar("T", bound=Struct)

ASK_S = 5.0


class NoMasterError(ClusterError):
    """The topology master is not running."""


class Link:
    """A connection to one endpoint, opened when first used."""

    def __init__(self) -> None:
        self._way: Way | None = None
        self._client: ControlClient | None = None

    async def ask(self, way: Way, body: Message, timeout_s: float) -> Any:
        """The body of the answer; raises DeadlineError if there is none in time, RpcError if the request is refused."""
        if self._client is None or self._way != way:
            self.close()
            self._client = ControlClient(way.endpoint, _ignore, keys=way.keys, topology_id=way.topology_id)
            self._way = way
        client = self._client
        try:
            if way.to is None:
                return await client.call(body, timeout_s)
            relay = way.to.request(body, timeout_s)
            relay.awaits = client.awaits
            return relayed(await client.call(relay, timeout_s + SLACK_S))
        except LostReplyError:
            raise
        except DeadlineError:
            if client is self._client:
                self.close()
            raise DeadlineError(f"{way.peer} did not answer within {timeout_s:g} s") from None

    def close(self) -> None:
        """Close the connection; idempotent. The next request opens it again."""
        if self._client is not None:
            self._client.close()
            self._client = None


def _ignore(envelope: control_pb2.Envelope) -> None:
    """Ignore a message that answers no request; topology masters send none."""


class Master:
    """Sends requests to one topology's master, and to its executors' file services."""

    def __init__(self, session: Session, record: plan_pb2.ExecutionState) -> None:
        self.session = session
        self.record = record
        self.name = record.topology
        self._link = Link()
        self._services: dict[int, Link] = {}
        self._launch: LaunchSpec | None = None

    @overload
    async def ask(self, body: control_pb2.GetStatus, timeout_s: float = ...) -> control_pb2.StatusReply: ...
    @overload
    async def ask(self, body: control_pb2.GetMetrics, timeout_s: float = ...) -> control_pb2.MetricsReply: ...
    @overload
    async def ask(self, body: control_pb2.GetExceptions, timeout_s: float = ...) -> control_pb2.ExceptionsReply: ...
    @overload
    async def ask(self, body: control_pb2.GetCheckpoints, timeout_s: float = ...) -> control_pb2.CheckpointsReply: ...
    async def ask(self, body: Message, timeout_s: float = ASK_S) -> Any:
        """Ask the topology master. Raises NoMasterError if it is not running, DeadlineError if it does not answer."""
        return await self._link.ask(await asyncio.to_thread(self._way), body, timeout_s)

    def _way(self) -> Way:
        location = self.session.tmaster_location(self.name)
        if location is None:
            raise NoMasterError(f"the topology master of '{self.name}' is not running")
        return self.session.way(self.name, self.record, "tmaster", location.endpoint)

    async def look(self, body: Message, shape: type[T], timeout_s: float = ASK_S) -> T:
        """Like `ask`, but returns the answer as a read-only struct of this shape."""
        return read(await self.ask(body, timeout_s), shape)  # type: ignore[call-overload]

    async def launch(self) -> LaunchSpec:
        """The content of the launch file; raises HeronError if it cannot be read."""
        return await asyncio.to_thread(self._launch_here)

    def _launch_here(self) -> LaunchSpec:
        if self._launch is None:
            self._launch = self.session.launch_of(self.record)
        return self._launch

    @overload
    async def ask_executor(
        self, container: int, request: control_pb2.ListFiles, timeout_s: float = ...
    ) -> control_pb2.ListFilesReply: ...
    @overload
    async def ask_executor(
        self, container: int, request: control_pb2.ReadFile, timeout_s: float = ...
    ) -> control_pb2.ReadFileReply: ...
    @overload
    async def ask_executor(
        self, container: int, request: control_pb2.SearchFile, timeout_s: float = ...
    ) -> control_pb2.SearchFileReply: ...
    async def ask_executor(self, container: int, request: Message, timeout_s: float = ASK_S) -> Any:
        """List, read or search the files of a container.

        Raises RpcError if there is no such file, and RetryableRpcError while too many searches are running.
        """
        return await self._ask_executor(self._services.setdefault(container, Link()), container, request, timeout_s)

    async def take(self, container: int, request: Message, timeout_s: float) -> Message:
        """Request evidence of a process in a container. Raises RpcError if the executor cannot provide it."""
        # A separate connection, because a late answer to a request for a file closes the connection for files.
        link = Link()
        try:
            reply: Message = await self._ask_executor(link, container, request, timeout_s)
            return reply
        finally:
            link.close()

    async def _ask_executor(self, link: Link, container: int, body: Message, timeout_s: float) -> Any:
        way = await asyncio.to_thread(self._known_way, container)
        if way is None:
            status = await self.ask(control_pb2.GetStatus())
            service = next((one.file_service for one in status.executors if one.container == container), "")
            if not service:
                raise ClusterError(f"the executor of container {container} of '{self.name}' is not registered")
            way = await asyncio.to_thread(self.session.way, self.name, self.record, "executor", service, container)
        return await link.ask(way, body, timeout_s)

    def _known_way(self, container: int) -> Way | None:
        """How to reach an executor, by endpoint or socket; None if only the topology master has its address."""
        session, record = self.session, self.record
        if session.by_endpoint(record) is not None:
            return session.way(self.name, record, "executor", "", container)
        if session.keys(record) is not None:
            return None
        # The name is that of heronpy.executor.file_service.socket_name.
        path = f"{self._launch_here().sockets_dir}/{executor_id(container)}.files"
        if len(path.encode()) > PATH_MAX_BYTES:
            return None
        session.check_here(record, "its executors accept local connections only")
        if not os.path.exists(path):  # there is no socket, so no process would answer
            raise ClusterError(f"the executor of container {container} of '{self.name}' is not running")
        return Way(f"ipc://{path}", f"the executor of container {container}")

    def close(self) -> None:
        for link in (self._link, *self._services.values()):
            link.close()
        self._services.clear()
