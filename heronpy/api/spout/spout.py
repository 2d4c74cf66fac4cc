"""The class that users extend to write a spout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heronpy.api.spout.base_spout import BaseSpout

if TYPE_CHECKING:
    from heronpy.api.topology_context import TopologyContext


class Spout(BaseSpout):
    """A source of tuples. `outputs` lists its fields and streams; `next_tuple` emits."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Called once, before any other method. `config` holds Python values (int, bool, ...)."""

    def close(self) -> None:
        """Called when the task ends normally; not guaranteed."""

    def next_tuple(self) -> None:
        """Emits zero or more tuples and returns soon. The runtime pauses between calls that emit nothing."""
        raise NotImplementedError(f"spout {type(self).__name__} does not define next_tuple(); define it to emit tuples")

    def ack(self, tup_id: Any) -> None:
        """Called when the tuple emitted with this id was fully processed."""

    def fail(self, tup_id: Any) -> None:
        """Called when the tuple emitted with this id failed or timed out."""

    def activate(self) -> None:
        """Called when a paused topology is activated."""

    def deactivate(self) -> None:
        """Called when the topology is paused; `next_tuple` is not called until `activate`."""
