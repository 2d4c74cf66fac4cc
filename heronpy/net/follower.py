"""The connection of a stream manager or executor to the current topology master.

The state manager has the master's location; a location with a higher epoch causes a new registration. Invariants: a
master that has not accepted the registration receives no other message; losing the master or the state manager does not
affect other parts of the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError, Message

from heronpy.common.errors import DeadlineError, FencedRpcError, HeronError
from heronpy.net.curve import Keys
from heronpy.net.rpc import body_of
from heronpy.net.rpc_loop import ControlClient
from heronpy.proto import control_pb2
from heronpy.proto.plan_pb2 import TmasterLocation
from heronpy.statemgr import paths
from heronpy.statemgr.base import StateManager

log = logging.getLogger("heronpy.net")

TIMEOUT_S = 2.0
#: A missed notification is recovered after this time, in seconds. State in files is checked more often.
LOOK_AGAIN_S = 15.0
LOOK_AGAIN_UNREGISTERED_S = 0.2
#: How long the end of a process may wait for the topology master.
LAST_WORD_S = 0.3


class MasterFollower:
    """This process's connection to the current topology master; `follow` runs until this process is fenced."""

    def __init__(
        self,
        topology: str,
        identity: bytes,
        registration: Callable[[], Message],
        on_message: Callable[[control_pb2.Envelope], None],
        on_registered: Callable[[Any], None],
    ) -> None:
        self._path = paths.tmaster(topology)
        self._identity = identity
        self._registration = registration
        self._on_message = on_message
        #: Called with the body of the reply to a registration.
        self._on_registered = on_registered
        self._client: ControlClient | None = None
        self._epoch = 0
        self._wake = asyncio.Event()
        self._complaint = ""
        self.registered = False

    async def follow(self, state: StateManager, keys: Keys | None) -> None:
        """Stay registered with the current topology master; raises FencedRpcError if this process was replaced."""
        loop = asyncio.get_running_loop()

        def changed(_: str) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, because this process is ending
                loop.call_soon_threadsafe(self._wake.set)

        watch = state.watch(self._path, changed)
        try:
            while True:
                self._wake.clear()
                try:
                    await self._turn(state, keys)
                except FencedRpcError:
                    raise
                except (HeronError, OSError, DecodeError) as error:
                    self._complain(f"topology master: {error}")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_AGAIN_S if self.registered else LOOK_AGAIN_UNREGISTERED_S):
                        await self._wake.wait()
        finally:
            watch.cancel()

    async def _turn(self, state: StateManager, keys: Keys | None) -> None:
        found = await asyncio.to_thread(state.get, self._path)
        if found is None:
            self.close()
            return
        location = TmasterLocation.FromString(found[0])
        if self.registered and location.epoch <= self._epoch:
            return
        if self._client is None or self._client.endpoint != location.endpoint:
            self.close()
            self._client = ControlClient(location.endpoint, self._receive, self._identity, keys=keys)
        self.registered = False
        reply = await self._client.call(self._registration(), TIMEOUT_S)
        self.registered, self._epoch, self._complaint = True, location.epoch, ""
        log.info("registered with topology master epoch %d at %s", location.epoch, location.endpoint)
        self._on_registered(reply)

    def _receive(self, envelope: control_pb2.Envelope) -> None:
        if body_of(envelope)[0] == "register_again":
            self.register_again()
        else:
            self._on_message(envelope)

    def _complain(self, text: str) -> None:
        """Log a problem, unless it is the same as the previous one."""
        if text != self._complaint:
            self._complaint = text
            log.warning("%s", text)

    def register_again(self) -> None:
        """Register again, because the topology master may not have a registration of this process."""
        self.registered = False
        self._wake.set()

    def send(self, body: Message) -> bool:
        """Send a one-way message; returns False while this process is not registered."""
        return self.registered and self._client is not None and self._client.send(body)

    async def call(self, body: Message) -> Any:
        """Send a request; returns the body of the reply. Raises DeadlineError without a reply, RpcError if refused."""
        if self._client is None or not self.registered:
            raise DeadlineError("this process is not registered with a topology master")
        return await self._client.call(body, TIMEOUT_S)

    async def last_word(self, state: StateManager, body: Message) -> bool:
        """Send the final message after `follow` has ended; returns whether the topology master has accepted it.

        Waits at most `LAST_WORD_S`, and not at all if the state manager has no location of a master.
        """
        if not self.registered:
            return False
        with contextlib.suppress(HeronError, OSError, TimeoutError):
            async with asyncio.timeout(LAST_WORD_S):
                if await asyncio.to_thread(state.exists, self._path):
                    await self.call(body)
                    return True
        return False

    def close(self) -> None:
        """Drop the connection; pending calls raise LostReplyError. Idempotent."""
        self.registered = False
        if self._client is not None:
            self._client.close()
            self._client = None
