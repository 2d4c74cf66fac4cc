"""Task hooks: user code called at every step of a tuple's life in a task.

Hooks are added with `context.add_task_hook(hook)` in `initialize`, or for all components with the
config key `topology.auto.task.hooks`, a list of class paths. A task without hooks pays nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from heronpy.api.topology_context import TopologyContext


class EmitInfo(NamedTuple):
    """A tuple was emitted; `out_tasks` are the tasks chosen by direct or custom grouping."""

    values: Any
    stream_id: str
    task_id: int
    out_tasks: Any


class SpoutAckInfo(NamedTuple):
    """A spout's tuple was fully processed."""

    message_id: Any
    spout_task_id: int
    complete_latency_ms: float


class SpoutFailInfo(NamedTuple):
    """A spout's tuple failed or timed out."""

    message_id: Any
    spout_task_id: int
    fail_latency_ms: float


class BoltExecuteInfo(NamedTuple):
    """A bolt has returned from `process`."""

    heron_tuple: Any
    executing_task_id: int
    execute_latency_ms: float


class BoltAckInfo(NamedTuple):
    """A bolt acked a tuple."""

    heron_tuple: Any
    acking_task_id: int
    process_latency_ms: float


class BoltFailInfo(NamedTuple):
    """A bolt failed a tuple."""

    heron_tuple: Any
    failing_task_id: int
    fail_latency_ms: float


class ITaskHook:
    """Interface of a task hook; every method is optional."""

    def prepare(self, conf: dict[str, Any], context: TopologyContext) -> None:
        """Called after the component's `initialize`."""

    def clean_up(self) -> None:
        """Called before the task ends."""

    def emit(self, emit_info: EmitInfo) -> None:
        """Called after every emit."""

    def spout_ack(self, spout_ack_info: SpoutAckInfo) -> None:
        """Called when a spout's tuple is acked."""

    def spout_fail(self, spout_fail_info: SpoutFailInfo) -> None:
        """Called when a spout's tuple fails."""

    def bolt_execute(self, bolt_execute_info: BoltExecuteInfo) -> None:
        """Called after a bolt processed a tuple."""

    def bolt_ack(self, bolt_ack_info: BoltAckInfo) -> None:
        """Called after a bolt acked a tuple."""

    def bolt_fail(self, bolt_fail_info: BoltFailInfo) -> None:
        """Called after a bolt failed a tuple."""
