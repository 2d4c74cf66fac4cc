"""The base class of spouts that read their source with coroutines, for example through a broker's async client."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any

from heronpy.api.spout.base_spout import BaseSpout
from heronpy.api.stream import Stream

if TYPE_CHECKING:
    from heronpy.api.topology_context import TopologyContext


class AsyncSpout(BaseSpout):
    """A source of tuples that runs as one coroutine, `run`, instead of being polled.

    `run` runs for as long as the task does. It waits for its source with the source's own library (`async for`,
    a queue, several subscriptions in a TaskGroup) and awaits `emit` for each tuple; `ack` and `fail` may emit, too.
    `emit` is a call instead of a `yield`, so that it takes an id and a stream as in any spout, and can raise errors.
    All coroutines of a task share one thread.
    """

    # Read by the runtime: `run` is a coroutine function.
    is_async = True

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Called once, before the event loop runs, so it cannot emit. Create clients in `run` instead."""

    async def run(self) -> None:
        """Read the source, and await `self.emit` for each tuple.

        This task's input has ended when `run` has returned and every tuple that it emitted with an id has been acked or
        failed (see `end_of_input`). An exception is logged and restarts the task. `run` is cancelled when the task
        ends: release resources in `finally`, or with `async with`.
        """
        raise NotImplementedError(
            f"AsyncSpout {type(self).__name__} does not define run(); define it with `async def` to emit tuples"
        )

    # `emit` is a coroutine here but a plain method in other spouts: no component inherits from both.
    async def emit(  # type: ignore[override]
        self,
        tup: Sequence[Any],
        tup_id: Any = None,
        stream: str = Stream.DEFAULT_STREAM_ID,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int] | None:
        """Wait until this task may emit, then emit a tuple. The arguments are those of `BaseSpout.emit`.

        The call waits while the topology is paused or under backpressure, the out-queue is full, or
        `topology.max.spout.pending` tuples are pending. Coroutines are served in the order of their calls.
        After the emit, the caller continues before any other coroutine runs. An emit that is cancelled while it
        waits emits nothing.
        """
        tasks: list[int] | None = await self.delegate.emit(
            tup, tup_id=tup_id, stream=stream, direct_task=direct_task, need_task_ids=need_task_ids
        )
        return tasks

    # A coroutine, as `emit` is.
    async def emit_batch(  # type: ignore[override]
        self,
        columns: Any = None,
        *,
        rows: Sequence[Sequence[Any]] | None = None,
        ids: Sequence[Any] | None = None,
        stream: str = Stream.DEFAULT_STREAM_ID,
        direct_task: int | None = None,
    ) -> None:
        """Wait until this task may emit, then emit many tuples. The arguments are those of `BaseSpout.emit_batch`.

        The call waits like `emit`, but only once for all tuples.
        """
        await self.delegate.emit_batch(columns, rows=rows, ids=ids, stream=stream, direct_task=direct_task)

    def close(self) -> None:
        """Called after `run` has been cancelled, if the task ends normally. A process that is killed does not call
        it."""

    def ack(self, tup_id: Any) -> Awaitable[None] | None:
        """Called when the tuple with this id is fully processed; may be a coroutine."""
        return None

    def fail(self, tup_id: Any) -> Awaitable[None] | None:
        """Called when the tuple with this id has failed or timed out; may be a coroutine."""
        return None

    def activate(self) -> Awaitable[None] | None:
        """Called when a paused topology is activated; may be a coroutine."""
        return None

    def deactivate(self) -> Awaitable[None] | None:
        """Called when the topology is paused; may be a coroutine. `emit` waits until `activate`; `run` continues."""
        return None
