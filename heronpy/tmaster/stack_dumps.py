"""Asks executors for the stacks of their processes, on behalf of clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from heronpy.common.errors import DeadlineError, InvalidRpcError, RetryableRpcError
from heronpy.proto import control_pb2
from heronpy.tmaster.registry import Executor

STACKS_TIMEOUT_S = 10.0


class StackDumps:
    """See the module. `send` gives a message to a peer; False when that cannot be reached."""

    def __init__(self, topology: str, send: Callable[[bytes, control_pb2.DumpStacks], bool]) -> None:
        self._topology = topology
        self._send = send
        #: Per container: the dump in progress, and the lock that queues others.
        self._waiting: dict[int, asyncio.Future[control_pb2.DumpStacksReply]] = {}
        self._turns: dict[int, asyncio.Lock] = {}

    async def ask(self, executors: Mapping[int, Executor], body: control_pb2.DumpStacks) -> control_pb2.DumpStacksReply:
        """The stacks of a process; InvalidRpcError when no executor runs one of that name."""
        for container, executor in executors.items():
            if any(process.name == body.name for process in executor.record.processes):
                return await self._ask(container, executor.peer, body)
        raise InvalidRpcError(f'there is no process "{body.name}" in {self._topology}')

    async def _ask(self, container: int, peer: bytes, body: control_pb2.DumpStacks) -> control_pb2.DumpStacksReply:
        # Answers carry no request id, so one request at a time.
        async with self._turns.setdefault(container, asyncio.Lock()):
            waiter: asyncio.Future[control_pb2.DumpStacksReply] = asyncio.get_running_loop().create_future()
            self._waiting[container] = waiter
            try:
                if not self._send(peer, body):
                    raise RetryableRpcError(f"the executor of container {container} cannot be reached; try again")
                async with asyncio.timeout(STACKS_TIMEOUT_S):
                    return await waiter
            except TimeoutError:
                raise DeadlineError(
                    f"the executor of container {container} did not dump {body.name} within"
                    f" {STACKS_TIMEOUT_S:g} s; see its log"
                ) from None
            finally:
                del self._waiting[container]

    def take(self, executors: Mapping[int, Executor], peer: bytes, body: control_pb2.DumpStacksReply) -> None:
        """Take the answer of an executor."""
        for container, executor in executors.items():
            waiter = self._waiting.get(container)
            if executor.peer == peer and waiter is not None and not waiter.done():
                waiter.set_result(body)
