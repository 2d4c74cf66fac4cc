"""The executor's connection to the topology master, wherever that is at the moment.

The state manager tells the master's place; a new place or a new epoch means a new connection and a new
registration. Invariants: nothing is sent before the master has accepted the registration; losing the
master or the state manager never disturbs the container, which works on with what it knows.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from google.protobuf.message import DecodeError, Message

from heronpy.common.errors import DeadlineError, HeronError, RpcError
from heronpy.net.curve import Keys
from heronpy.net.rpc import ControlClient
from heronpy.proto import control_pb2 as control
from heronpy.proto import plan_pb2 as plans
from heronpy.statemgr import paths
from heronpy.statemgr.base import StateManager

log = logging.getLogger("heronpy.executor")

_REGISTER_TIMEOUT_S = 2.0
_RETRY_S = 0.3
#: A watch that was missed (the state manager was away) is made up for after this long.
_LOOK_AGAIN_S = 10.0
_LOOK_AGAIN_UNREGISTERED_S = 2.0
#: How the master says that a newer incarnation of this executor exists.
_REPLACED = "was replaced by epoch"


class TmasterLink:
    """Keeps one registered connection. `start` begins, `close` ends."""

    def __init__(
        self,
        state: StateManager,
        topology: str,
        identity: bytes,
        registration: Callable[[], control.RegisterExecutor],
        on_message: Callable[[control.Envelope], None],
        on_fenced: Callable[[str], None],
        on_registered: Callable[[], None],
        keys: Keys | None = None,
    ) -> None:
        self._keys = keys
        self._state = state
        self._path = paths.tmaster(topology)
        self._identity = identity
        self._registration = registration
        self._on_message = on_message
        self._on_fenced = on_fenced
        self._on_registered = on_registered
        self._client: ControlClient | None = None
        self._location: plans.TmasterLocation | None = None
        self._complaint = ""
        self.registered = False
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._watch: object = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()

        def changed(_: str) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: we are ending
                loop.call_soon_threadsafe(self._wake.set)

        self._watch = self._state.watch(self._path, changed)
        self._task = asyncio.create_task(self._run())

    def send(self, body: Message) -> bool:
        """Send a one-way message; False while there is no registered connection."""
        return self.registered and self._client is not None and self._client.send(body)

    def register_again(self) -> None:
        """We were paused; the master may have counted us as lost."""
        self.registered = False
        self._wake.set()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            pause = _LOOK_AGAIN_S
            try:
                self._look()
                if self._client is None:
                    pause = _LOOK_AGAIN_UNREGISTERED_S
                elif not self.registered:
                    pause = _LOOK_AGAIN_S if await self._register(self._client) else _RETRY_S
            except Exception:
                log.exception("the connection to the topology master failed")
                pause = _RETRY_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()

    def _look(self) -> None:
        """Follow the master to its present place."""
        try:
            found = self._state.get(self._path)
            location = plans.TmasterLocation.FromString(found[0]) if found else None
        except (HeronError, OSError, DecodeError) as error:
            self._complain(f"cannot read where the topology master is: {error}")
            return
        if location == self._location:
            return
        self._drop()
        self._location = location
        if location is not None:
            self._client = ControlClient(location.endpoint, self._on_message, self._identity, keys=self._keys)

    async def _register(self, client: ControlClient) -> bool:
        try:
            await client.call(self._registration(), _REGISTER_TIMEOUT_S)
        except RpcError as error:
            if _REPLACED in str(error):
                self._on_fenced(str(error))
            self._complain(f"the topology master refuses this executor: {error}")
            return False
        except DeadlineError as error:
            self._complain(f"the topology master does not answer: {error}")
            return False
        self.registered, self._complaint = client is self._client, ""
        log.info("registered with the topology master at %s", client.endpoint)
        if self.registered:
            self._on_registered()  # what changed since the request was made is not known there yet
        return self.registered

    def _complain(self, text: str) -> None:
        """Say the same thing once."""
        if text != self._complaint:
            self._complaint = text
            log.warning("%s", text)

    def _drop(self) -> None:
        self.registered = False
        if self._client is not None:
            self._client.close()
            self._client = None

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()  # type: ignore[attr-defined]
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._drop()
