"""A SOCKS5 proxy that simulates a bad network: it delays, throttles, resets, corrupts and drops data.

Stream managers reach each other and the topology master through it if `heron.stmgr.socks_proxy` names it. Rules are per
link, named by its ends ("stmgr-1" -> "stmgr-2", "*" for any). Bytes to the accepting side follow the rule of (from,
to), and bytes in the other direction the rule of (to, from), so a partition can be one-way. The proxy runs in its own
thread; rules may change at any time and also apply to open connections.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields

#: Bytes read at a time: the unit to which a rule applies.
CHUNK = 16 << 10
ANY = "*"
_CONNECT, _IPV4, _IPV6 = 1, 1, 4
_SUCCEEDED, _REFUSED, _UNSUPPORTED = 0, 5, 7


@dataclass(frozen=True, slots=True)
class Rule:
    """The faults of a link in one direction."""

    blackhole: bool = False
    """Whether no data passes, without either side being notified."""
    delay_s: float = 0.0
    jitter_s: float = 0.0
    reset_share: float = 0.0
    """Share of the data chunks that reset the connection instead of being forwarded."""
    corrupt_share: float = 0.0
    """Share of the bytes in which one bit is flipped."""
    bytes_per_s: float = 0.0
    """Maximum bytes per second; 0 means no limit."""

    def __str__(self) -> str:
        """Describe the differences from a good link."""
        found = [(one.name, getattr(self, one.name)) for one in fields(self)]
        return ", ".join(f"{name} {value:g}" for name, value in found if value) or "no fault"


PASS = Rule()

#: (local port of the connecting side, requested port) -> (from, to)
Resolver = Callable[[int, int], tuple[str, str]]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class FaultProxy:
    """Listens on a loopback port until it is closed; with `port`, clients are connected to that port without SOCKS."""

    def __init__(self, resolve: Resolver, seed: int, port: int = 0) -> None:
        self._resolve = resolve
        self._port = port
        self._random = random.Random(seed)
        self._rules: dict[tuple[str, str], Rule] = {}
        self._connections: dict[asyncio.Task[None], tuple[str, str]] = {}
        #: Links whose current connections hang forever; new connections pass.
        self._frozen: set[asyncio.Task[None]] = set()
        self.counts: Counter[str] = Counter()
        self.address = ""
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="fault-proxy", daemon=True)
        self._thread.start()
        self._ready.wait()

    def set(self, source: str, target: str, rule: Rule) -> None:
        self._rules[source, target] = rule

    def clear(self) -> None:
        """Remove all rules; frozen connections stay frozen."""
        self._rules.clear()

    def freeze(self, source: str, target: str) -> None:
        """Freeze (half-open) the current connections of a link: they pass no data, and neither side is notified."""
        for task, (one, other) in list(self._connections.items()):
            if any(_matches(source, a) and _matches(target, b) for a, b in ((one, other), (other, one))):
                self._frozen.add(task)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _rule(self, source: str, target: str) -> Rule:
        pairs = ((source, target), (source, ANY), (ANY, target), (ANY, ANY))
        found = (self._rules.get(pair) for pair in pairs)
        return next((rule for rule in found if rule is not None), PASS)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        await self._stop.wait()
        server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        target: asyncio.StreamWriter | None = None
        try:
            port = self._port or await self._requested_port(reader, writer)
            local = writer.get_extra_info("peername")[1]
            ends = await asyncio.get_running_loop().run_in_executor(None, self._resolve, local, port)
            self._connections[task] = ends
            try:
                back, target = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await self._answer(writer, _REFUSED)
                return
            await self._answer(writer, _SUCCEEDED)
            self.counts["connections"] += 1
            await self._carry(task, ends, (reader, writer), (back, target))
        except (OSError, EOFError, ValueError, asyncio.CancelledError):
            pass
        finally:
            self._connections.pop(task, None)
            self._frozen.discard(task)
            for end in (writer, target):
                if end is not None:
                    end.transport.abort()

    async def _carry(self, task: asyncio.Task[None], ends: tuple[str, str], one: Streams, other: Streams) -> None:
        """Forward both directions, until one of them ends."""
        flows = [
            asyncio.ensure_future(self._flow(task, ends, (one[0], other[1]))),
            asyncio.ensure_future(self._flow(task, ends[::-1], (other[0], one[1]))),
        ]
        try:
            await asyncio.wait(flows, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for flow in flows:
                flow.cancel()
            await asyncio.gather(*flows, return_exceptions=True)

    async def _flow(self, task: asyncio.Task[None], ends: tuple[str, str], streams: Streams) -> None:
        reader, writer = streams
        # Delayed bytes, bounded so that a slow link causes backpressure like a real link.
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=64)
        sender = asyncio.ensure_future(self._send_when_due(waiting, writer))
        due = 0.0
        try:
            while data := await reader.read(CHUNK):
                rule = await self._passable(task, ends)
                if rule.reset_share and self._random.random() < rule.reset_share:
                    self.counts["resets"] += 1
                    return
                data = self._corrupted(data, rule)
                delay = max(0.0, rule.delay_s + self._random.uniform(-rule.jitter_s, rule.jitter_s))
                # Bytes never overtake each other.
                due = max(due, time.monotonic() + delay)
                if rule.bytes_per_s:
                    due += len(data) / rule.bytes_per_s
                if sender.done():
                    return
                await waiting.put((due, data))
            # The end of a stream is delayed like its bytes, and does not cross a partition.
            await self._passable(task, ends)
            await waiting.put((due, b""))
            await sender
        finally:
            sender.cancel()

    async def _passable(self, task: asyncio.Task[None], ends: tuple[str, str]) -> Rule:
        """Wait while the link drops all data; earlier bytes are kept, because the kernel would retransmit them."""
        while task in self._frozen or self._rule(*ends).blackhole:
            await asyncio.sleep(0.02)
        return self._rule(*ends)

    async def _send_when_due(self, waiting: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        while True:
            due, data = await waiting.get()
            pause = due - time.monotonic()
            if pause > 0:
                await asyncio.sleep(pause)
            if not data:
                return
            writer.write(data)
            await writer.drain()

    def _corrupted(self, data: bytes, rule: Rule) -> bytes:
        if not rule.corrupt_share or self._random.random() >= rule.corrupt_share * len(data):
            return data
        changed = bytearray(data)
        changed[self._random.randrange(len(changed))] ^= 1 << self._random.randrange(8)
        self.counts["corruptions"] += 1
        return bytes(changed)

    async def _requested_port(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        """Handle the greeting and the request of SOCKS5; only connections to this host's loopback are allowed."""
        version, methods = await reader.readexactly(2)
        await reader.readexactly(methods)
        writer.write(b"\x05\x00")
        version, command, _, kind = await reader.readexactly(4)
        length = {_IPV4: 4, _IPV6: 16}.get(kind) or (await reader.readexactly(1))[0]
        await reader.readexactly(length)
        port = int.from_bytes(await reader.readexactly(2), "big")
        if version != 5 or command != _CONNECT:
            await self._answer(writer, _UNSUPPORTED)
            raise ValueError("the SOCKS5 request is not CONNECT")
        return port

    async def _answer(self, writer: asyncio.StreamWriter, code: int) -> None:
        if self._port:
            return
        writer.write(bytes((5, code, 0, _IPV4, 127, 0, 0, 1, 0, 0)))
        await writer.drain()


def _matches(wanted: str, name: str) -> bool:
    return wanted in (ANY, name)
