"""The base class of bolts that wait for an external service, such as a web service."""

from __future__ import annotations

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.tuple import Tuple


class AsyncBolt(Bolt):
    """A bolt whose `process` is a coroutine.

    Up to `heron.instance.async_concurrency` tuples are processed concurrently, so they may finish out of order.
    `emit`, `ack` and `fail` are called as in any bolt.
    """

    is_async = True

    async def process(self, tup: Tuple) -> None:
        """Process one tuple: call `self.emit`, then `self.ack` or `self.fail`."""
        raise NotImplementedError(
            f"AsyncBolt {type(self).__name__} does not define process(tup); define it with `async def`"
        )

    async def process_tick(self, tup: Tuple) -> None:
        """Called once per tick interval, if `topology.tick.tuple.freq.secs` (or `.ms`) is set."""
