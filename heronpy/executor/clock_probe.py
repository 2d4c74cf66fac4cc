"""Requests the current time from a topology master that may be on another host.

Requests are sent only over TCP, because a master whose socket is a file is on this host. If a master turns out to be on
this host, no further requests are sent until this executor registers with another master.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from google.protobuf.message import Message

from heronpy.common.clock import ClockFilter
from heronpy.common.errors import HeronError
from heronpy.common.host import clock_id
from heronpy.proto import control_pb2

#: Interval of requests in seconds: a dozen samples cover the last minute.
EVERY_S: Final = 5.0


class ClockProbe:
    """Measures how this host's monotonic clock differs from the topology master's."""

    def __init__(
        self,
        ask: Callable[[Message], Awaitable[Any]],
        now_ns: Callable[[], int] = time.monotonic_ns,
        own: Callable[[], int] = clock_id,
    ) -> None:
        """`ask` sends a request to the topology master with which this executor is registered."""
        self._ask, self._now_ns, self._own = ask, now_ns, own
        self._filter = ClockFilter()
        #: The id of the master's clock; 0 if unknown.
        self._clock = 0
        self._asking = False
        #: The number of masters with which it has registered.
        self._masters = 0

    def registered(self) -> None:
        """Record that this executor has registered with a new topology master, which may be on another host."""
        self._masters += 1
        self._clock = 0
        self._filter.clear()

    async def ask(self) -> None:
        """Measure one round trip. There is no sample if the master does not answer or runs an earlier release."""
        if self._asking or self._clock == self._own():
            return
        self._asking, master = True, self._masters
        sent_ns = self._now_ns()
        try:
            reply: control_pb2.ClockReply = await self._ask(control_pb2.GetClock())
        except HeronError:
            return
        finally:
            self._asking = False
        heard_ns = self._now_ns()
        if self._masters != master:
            return  # the request was to the previous master
        if reply.clock != self._clock:
            self._clock = reply.clock
            self._filter.clear()
        self._filter.take(sent_ns, reply.at, heard_ns)

    def offset(self) -> control_pb2.ClockOffset | None:
        """The clock offset for heartbeats; None if the master is on the same host, or if unknown."""
        best = self._filter.best(self._now_ns()) if self._clock != self._own() else None
        if best is None:
            return None
        return control_pb2.ClockOffset(clock=self._own(), offset=best.offset, error=best.error)
