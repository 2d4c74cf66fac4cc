"""Guards the gateway's TCP socket: a `Gate` in an event loop of its own, because the gateway has none."""

from __future__ import annotations

import asyncio
import threading

import zmq

from heronpy.net.curve import Keys
from heronpy.net.gate import Gate


class GateThread:
    """Admits holders of the topology's key to a socket, from its making until `close`.

    Make it before the socket is bound, and close it before the socket; meanwhile only its thread touches the monitor.
    """

    def __init__(self, keys: Keys, sock: zmq.Socket[bytes]) -> None:
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._gate: Gate | None = None
        self._taken = 0
        self._thread = threading.Thread(target=self._run, args=(keys, sock), name="gate", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            raise self._error

    def _run(self, keys: Keys, sock: zmq.Socket[bytes]) -> None:
        try:
            self._loop.run_until_complete(self._serve(keys, sock))
        except BaseException as error:
            self._error = error
        finally:
            self._loop.close()
            self._ready.set()

    async def _serve(self, keys: Keys, sock: zmq.Socket[bytes]) -> None:
        gate = self._gate = Gate(keys)
        try:
            gate.watch(sock)
            self._ready.set()
            await self._over.wait()
        finally:
            gate.close()

    def take_refused(self) -> int:
        """How many connections were refused since the last call."""
        refused = self._gate.refused if self._gate is not None else 0
        taken, self._taken = self._taken, refused
        return refused - taken

    def close(self) -> None:
        """Idempotent."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join()
