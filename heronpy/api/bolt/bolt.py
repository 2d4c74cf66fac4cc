"""The class that users extend to write a bolt."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from heronpy.api.bolt.base_bolt import BaseBolt
from heronpy.api.tuple import Tuple

if TYPE_CHECKING:
    from heronpy.api.topology_context import TopologyContext


class Bolt(BaseBolt):
    """Processes tuples. `outputs` lists its fields and streams, if it emits."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Called once, before any other method. `config` holds Python values (int, bool, ...)."""

    def process(self, tup: Tuple) -> Awaitable[None] | None:
        """Processes one tuple; call `self.emit`, then `self.ack` or `self.fail`. Only an AsyncBolt may await."""
        raise NotImplementedError(
            f"bolt {type(self).__name__} does not define process(tup); define it to handle tuples"
        )

    def process_tick(self, tup: Tuple) -> Awaitable[None] | None:
        """Called at the frequency of `topology.tick.tuple.freq.secs` (or `.ms`), when set."""
        return None
