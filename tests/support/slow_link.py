"""A TCP relay on loopback that holds everything back for a while, as a slow network does."""

from __future__ import annotations

import asyncio
import contextlib
import threading


class SlowLink:
    """Relays to a port; `delay_s` may be changed at any time and applies to what arrives from then on."""

    def __init__(self, port: int) -> None:
        self.delay_s = 0.0
        self.port = 0
        self._target = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._started = threading.Event()
        self._thread.start()
        self._started.wait(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            other_reader, other_writer = await asyncio.open_connection("127.0.0.1", self._target)
            ends = [self._relay(reader, other_writer), self._relay(other_reader, writer)]
            try:
                await asyncio.gather(*ends)
            finally:
                writer.close()
                other_writer.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """In order: each piece leaves when its time has come."""
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def send() -> None:
            while True:
                due, data = await pieces.get()
                await asyncio.sleep(max(0.0, due - self._loop.time()))
                if not data:
                    writer.close()
                    return
                writer.write(data)

        sending = asyncio.ensure_future(send())
        try:
            while True:
                with contextlib.suppress(OSError):
                    data = await reader.read(65536)
                    pieces.put_nowait((self._loop.time() + self.delay_s, data))
                    if data:
                        continue
                break
            await sending
        finally:
            sending.cancel()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
