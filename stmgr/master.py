"""A stream manager's connection to the topology master, whoever that is now.

The state manager tells where it is; a new place or a higher epoch means a new registration. Invariant:
nothing but the registration itself is sent to a master that has not taken this stream manager in, and
losing the master changes nothing on the data path.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message

from heronpy.common.errors import DeadlineError, RpcError
from heronpy.net.rpc import ControlClient
from heronpy.proto import control_pb2 as control
from heronpy.proto import plan_pb2
from heronpy.statemgr import paths
from heronpy.statemgr.off_loop import get_off_loop

log = logging.getLogger("heron.stmgr")

TIMEOUT_S = 2.0
#: A watch that was missed is made up for after this long.
LOOK_AGAIN_S = 5.0
LOOK_AGAIN_UNREGISTERED_S = 0.2
#: How a master refuses that begins or ends; another, or this one later, will not.
_AGAIN = "; try again"


class MasterLink:
    """See the module. `follow` is a job that never ends."""

    def __init__(
        self,
        topology: str,
        identity: bytes,
        registration: Callable[[], control.RegisterStmgr],
        on_message: Callable[[control.Envelope], None],
        on_registered: Callable[[control.RegisterStmgrReply | None], None],
        on_refused: Callable[[], None],
    ) -> None:
        self._path = paths.tmaster(topology)
        self._identity = identity
        self._registration = registration
        self._on_message = on_message
        self._on_registered = on_registered
        self._on_refused = on_refused
        self._client: ControlClient | None = None
        self._epoch = 0
        self._changed = asyncio.Event()
        self.registered = False

    async def follow(self, state: Any, keys: Any) -> None:
        """Keep a registration with whoever is topology master."""
        loop = asyncio.get_running_loop()
        watch = state.watch(self._path, lambda _: loop.call_soon_threadsafe(self._changed.set))
        try:
            while True:
                self._changed.clear()
                found = await get_off_loop(state, self._path)
                if found is not None:
                    location = plan_pb2.TmasterLocation.FromString(found[0])
                    if location.epoch > self._epoch or not self.registered:
                        await self._register(location, keys)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_AGAIN_S if self.registered else LOOK_AGAIN_UNREGISTERED_S):
                        await self._changed.wait()
        finally:
            watch.cancel()

    async def _register(self, location: plan_pb2.TmasterLocation, keys: Any) -> None:
        client = self._client
        if client is None or client.endpoint != location.endpoint:
            if client is not None:
                client.close()
            client = ControlClient(location.endpoint, self._on_message, identity=self._identity, keys=keys)
            self._client = client
        self.registered = False
        try:
            reply = await client.call(self._registration(), TIMEOUT_S)
        except DeadlineError as error:
            log.warning("topology master: %s", error)
            return
        except RpcError as error:
            if str(error).endswith(_AGAIN):
                log.warning("topology master: %s", error)
                return
            log.error("topology master refused this stream manager: %s", error)
            self._on_refused()
            return
        self.registered = True
        self._epoch = location.epoch
        log.info("registered with topology master epoch %d at %s", location.epoch, location.endpoint)
        self._on_registered(reply)

    def register_again(self) -> None:
        """The topology master does not know this process."""
        self.registered = False
        self._changed.set()

    def send(self, body: Message) -> None:
        """Send a one-way message, if there is a master."""
        if self._client is not None and self.registered:
            self._client.send(body)

    async def call(self, body: Message) -> Any:
        """Send a request; DeadlineError when nobody answers."""
        if self._client is None or not self.registered:
            raise DeadlineError("this stream manager is registered with no topology master")
        return await self._client.call(body, TIMEOUT_S)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
